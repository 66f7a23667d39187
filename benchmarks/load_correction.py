"""Show how well rates are corrected for the load of other programs.

    python -m benchmarks.load_correction [--parts=simulation,trial] [--repetitions=1000]
        [--trials=6] [--busy=1] [--out=results/load_correction]

simulation: Efficiencies of two devices from three runs each, of which each run on two
  devices shares its cores with other programs. The work per CPU second changes by the
  error that analysis.disturbance assumes.
trial: The trainer beside --busy endless loops, and beside whatever else runs on the
  machine. A trial has two runs on one device and two on two devices. Runs that exist in
  --out are not repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from rnn_scaling.analysis import disturbance, load_correction, load_effect
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import EFFICIENCY
from rnn_scaling.analysis.rows import Row, build_rows
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.records import record
from rnn_scaling.records.environment import Environment, Load, LoadWindows, Resolved
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import Batches, Throughput
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.files.markdown import format_table

DEVICES = 2
REPEATS = 2  # runs on each number of devices
MEASURED = 20
# Two devices without other programs (docs/results/default).
QUIET_EFFICIENCY = 0.939

BETWEEN_RUNS = 0.02  # standard deviation of log rates between runs
TRUE_EFFICIENCY = 0.95
USUAL_IDLE = 0.02  # largest share of the cores that is idle without other programs
NUM_BATCHES = 20
WINDOW_S = 0.5
HEADERS = {
    "simulation": [
        "used by others",
        "they are",
        "uncorrected",
        "corrected",
        "half interval",
        "coverage",
    ],
    "trial": [
        "trial",
        "share of the cores: 1 device",
        "2 devices",
        "uncorrected",
        "corrected",
        "95 % interval",
    ],
}


def make_record(
    num_devices: int, rate: float, own: float, others: float, seed: int
) -> RunRecord:
    """Return a run that used, and left to others, these shares of its cores.

    Args:
      num_devices: Devices of one core each.
      rate: Items/s.
      own: Share of the cores that the run used.
      others: Share of the cores that other programs used.
      seed: The number of the run.
    """
    seconds = [1 / rate] * NUM_BATCHES
    load = Load(
        others=others,
        steal=0.0,
        seconds=math.fsum(seconds),
        windows=LoadWindows(
            batches=tuple([1] * NUM_BATCHES),
            seconds=tuple(seconds),
            others=tuple([others] * NUM_BATCHES),
            steal=tuple([0.0] * NUM_BATCHES),
            own=tuple([own] * NUM_BATCHES),
        ),
    )
    return RunRecord(
        "ok",
        None,
        Options({**RunConfig().flat(), "num_devices": num_devices}),
        resolved=Resolved(device_type="CPU", cpu_affinity=tuple(range(num_devices))),
        batches=Batches(
            measured=NUM_BATCHES, seconds=tuple(seconds), items=tuple([1] * NUM_BATCHES)
        ),
        throughput=Throughput(
            items=NUM_BATCHES, seconds=math.fsum(seconds), items_per_second=rate
        ),
        environment=Environment(load=load),
    )


def simulate_run(
    random: np.random.Generator, num_devices: int, share: float, is_on_one_core: bool
) -> RunRecord:
    """Return a run beside other programs that use a share of its cores.

    Args:
      random: Source of random numbers.
      num_devices: Devices of one core each.
      share: Share of the cores that other programs use, 0 to 1.
      is_on_one_core: Whether they stay on one core, so that the other devices wait.
        Otherwise they move to cores that wait.
    """
    usual_idle = USUAL_IDLE * random.random() if num_devices > 1 else 0.0
    rate = num_devices * (TRUE_EFFICIENCY if num_devices > 1 else 1.0)
    rate *= math.exp(BETWEEN_RUNS * random.normal())
    if not share:
        return make_record(num_devices, rate, 1 - usual_idle, 0.0, 0)
    most = load_effect.MAX_SHARE_OF_SHARED_CORE
    taken = min(most, share * num_devices) if is_on_one_core else share
    left = 1 - taken
    slowed = rate * left
    own = (1 - usual_idle) * left
    # The same work takes more CPU time beside other programs, or less.
    error = (
        load_correction.CORRECTION_ERROR * math.log(1 / left) * random.standard_t(11)
    )
    return make_record(num_devices, slowed * math.exp(error), own, share, 0)


def run_simulation(repetitions: int) -> Iterator[list[str]]:
    """Yield how the corrected efficiencies agree with the true one."""
    for share in (0.0, 0.1, 0.25, 0.4):
        for is_on_one_core in (False, True):
            random = np.random.default_rng([1, int(100 * share), is_on_one_core])
            corrected = []
            raw = []
            for _ in range(repetitions):
                runs = [simulate_run(random, 1, 0.0, False) for _ in range(3)]
                for _ in range(3):
                    runs.append(simulate_run(random, DEVICES, share, is_on_one_core))
                corrected.append(find_efficiency(runs))
                raw.append(compute_uncorrected_efficiency(runs))
            yield [
                f"{share:.0%}",
                "on one core" if is_on_one_core else "where cores are free",
                f"{np.mean(raw):.1%}",
                f"{np.mean([each.value for each in corrected]):.1%}",
                f"{np.median([each.half_width for each in corrected]):.1%}",
                f"{compute_coverage(corrected, TRUE_EFFICIENCY):.1%}",
            ]


def find_row(runs: Sequence[RunRecord], num_devices: int) -> Row:
    """Return the row of runs on a number of devices."""
    [row] = [row for row in build_rows(runs) if row.num_devices == num_devices]
    return row


def find_efficiency(runs: Sequence[RunRecord]) -> Interval:
    """Return the efficiency on DEVICES devices, like a report."""
    found = find_row(runs, DEVICES).metric(EFFICIENCY)
    assert found is not None
    return found


def compute_uncorrected_efficiency(runs: Sequence[RunRecord]) -> float:
    """Return the efficiency that follows from all batches of all runs."""
    logs = {}
    for num_devices in (1, DEVICES):
        rates = []
        for run in runs:
            if run.options["num_devices"] == num_devices:
                rates.append(disturbance.compute_counted_rate(run, all_batches=True))
        logs[num_devices] = float(np.mean(np.log(rates)))
    return math.exp(logs[DEVICES] - logs[1]) / DEVICES


def compute_coverage(intervals: Sequence[Interval], truth: float) -> float:
    """Return the share of intervals that contain the truth."""
    hits = []
    for each in intervals:
        hits.append(each.ends is not None and each.ends[0] <= truth <= each.ends[1])
    return float(np.mean(hits))


def train(path: Path, num_devices: int, busy: int) -> RunRecord:
    """Train unless the record exists; return the record."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        words = [
            sys.executable,
            "-m",
            "rnn_scaling.train",
            "--device=cpu",
            "--variable_update=replicated",
            f"--num_devices={num_devices}",
            f"--num_batches={MEASURED}",
            f"--result_file={path}",
        ]
        with run_busy_loops(busy):
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return record.read(path)


@contextlib.contextmanager
def run_busy_loops(count: int) -> Iterator[None]:
    """Run endless loops while the context lasts."""
    running = []
    try:
        for _ in range(count):
            running.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def compute_own_share(runs: Sequence[RunRecord], num_devices: int) -> float:
    """Return the mean share of the cores that the runs on some devices used."""
    shares = []
    for run in runs:
        load = run.environment.load
        if run.options["num_devices"] == num_devices and load and load.windows:
            shares.append(np.average(load.windows.own, weights=load.windows.seconds))
    return float(np.mean(shares))


def run_trials(trials: int, busy: int, out: Path) -> Iterator[list[str]]:
    """Yield the efficiency of each trial."""
    errors = []
    found = []
    for number in range(1, trials + 1):
        runs = []
        for repeat in range(1, REPEATS + 1):
            for num_devices in (1, DEVICES):
                path = out / f"busy{busy}" / f"{number}-{num_devices}.r{repeat}.json"
                runs.append(train(path, num_devices, busy))
        corrected = find_efficiency(runs)
        errors.append(math.log(corrected.value / QUIET_EFFICIENCY))
        found.append(corrected)
        yield [
            str(number),
            f"{compute_own_share(runs, 1):.0%}",
            f"{compute_own_share(runs, DEVICES):.0%}",
            f"{compute_uncorrected_efficiency(runs):.1%}",
            f"{corrected.value:.1%}",
            " to ".join(f"{end:.1%}" for end in corrected.ends or ()),
        ]
    yield [
        "all",
        "",
        "",
        "mean error, deviation",
        f"{np.mean(errors):+.1%}, {np.std(errors, ddof=1):.1%}",
        f"{compute_coverage(found, QUIET_EFFICIENCY):.0%} contain {QUIET_EFFICIENCY:.1%}",
    ]


def main() -> None:
    """Print the tables of the chosen parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts", default="simulation,trial", help="parts to run, separated by commas"
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        default=1000,
        help="number of repetitions of the simulation",
    )
    parser.add_argument("--trials", type=int, default=6, help="number of trials")
    parser.add_argument(
        "--busy", type=int, default=1, help="number of endless loops beside the trainer"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/load_correction"),
        help="folder of the records",
    )
    options = parser.parse_args()
    for name in options.parts.split(","):
        if name == "simulation":
            rows = list(run_simulation(options.repetitions))
        else:
            rows = list(run_trials(options.trials, options.busy, options.out))
        print(f"\n{name}\n")
        print(format_table(HEADERS[name], rows), flush=True)


if __name__ == "__main__":
    main()
