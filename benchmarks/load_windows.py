"""Show what the load per window of batches adds to the load per run.

    python -m benchmarks.load_windows [--parts=ticks,cost,selection,steady,trial]
        [--repetitions=2000]

ticks: Windows that clock ticks alone make disturbed, and windows in which others use a
  tenth of a device that are found, by the length of the window.
cost: Microseconds to read the load of this machine's cores.
selection: Runs whose batches take 1.07 s, or 2.1 s while another process shares the
  core: `ab` with six pairs and a sweep with three repeats, by three rules. All runs
  count; disturbed runs are left out; disturbed batches are left out (the rule of
  analysis.disturbance).
steady: Runs beside a process that always uses the same small share of the core.
trial: The trainer on one core, alone and beside a process that comes and goes. It needs
  a core that is otherwise idle.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import math
import os
import statistics
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.comparison_coverage import list_places
from rnn_scaling.analysis import confidence, disturbance
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.records import record
from rnn_scaling.records.environment import Environment, Load, LoadWindows, Resolved
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import Batches, Throughput
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.files.markdown import format_table
from rnn_scaling.system.machine import load

TICK_S = 0.01
BATCH_S = 1.07  # of a quiet batch
SLOWED = 1 - 1.07 / 2.1  # share of the core that the other process takes
BETWEEN_BATCHES = 0.01  # standard deviation of log seconds
BETWEEN_RUNS = 0.02
ALIKE = 0.3  # correlation of one run with the next
NUM_BATCHES = 20
CHANGE = 1.05  # true ratio that `ab` shall find
PAIRS = 6
REPEATS = 3
TRIALS = 4
RULES = ("all runs", "quiet runs", "quiet batches")
HEADERS = {
    "ticks": [
        "cores = devices",
        "window (s)",
        "quiet, but disturbed",
        "a tenth used, found",
    ],
    "cost": ["reading", "us"],
    "selection": [
        "runs beside a process",
        "it runs, pauses (s)",
        "rule",
        "runs that count",
        "false winners",
        "half interval",
        "a true 5 % found",
        "coverage",
        "three repeats",
    ],
    "steady": [
        "share used by others",
        "batches per window",
        "runs with quiet batches",
        "their rate / quiet rate",
    ],
    "trial": [
        "round",
        "disturbed batches",
        "all batches / alone",
        "quiet batches / alone",
    ],
}
TEMPLATE = RunRecord(
    "ok",
    None,
    Options({**RunConfig().flat(), "num_devices": 1}),
    resolved=Resolved(cpu_affinity=(0,)),
)


def simulate_ticks(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Simulate the idle times of cores, of which Linux reports whole ticks."""
    random = np.random.default_rng(seed)
    for num_cores in (1, 2, 4, 16, 64):
        chosen = load.choose_window_seconds(num_cores, num_cores)
        for window_s in sorted({0.25, 0.5, chosen}):
            size = (20 * repetitions, num_cores)
            starts = random.uniform(0, TICK_S, size)
            idle_s = random.uniform(0, window_s / 2, size)
            end_ticks = np.floor((starts + idle_s) / TICK_S)
            ticks_s = TICK_S * (end_ticks - np.floor(starts / TICK_S))
            errors = (idle_s - ticks_s).sum(axis=1) / window_s
            name = f"{window_s:.2g}"
            if window_s == chosen:
                name += " (used)"
            yield [
                str(num_cores),
                name,
                f"{np.mean(errors > load.NOTICEABLE_LOAD):.2%}",
                f"{np.mean(0.1 + errors > load.NOTICEABLE_LOAD):.2%}",
            ]


def measure_cost(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Time one reading of the load."""
    cores = sorted(os.sched_getaffinity(0))
    samples = {
        "this process": load._sample,
        "with child processes": load.sample_with_descendants,
    }
    for name, sample in samples.items():
        reading = _measure_microseconds(functools.partial(sample, cores))
        yield [f"{name}, {len(cores)} cores", reading]
    line = "4321 0 1234 98765 12 0 34 0 0 0"
    text = "\n".join(f"cpu{core} {line}" for core in range(256))
    reading = _measure_microseconds(lambda: load.parse_stat(text, range(256), 100))
    yield ["text of 256 cores", reading]
    meter = load.WindowMeter(cores, len(cores))
    yield ["batch within a window", _measure_microseconds(lambda: meter.end_batch(0))]


def _measure_microseconds(function: Callable[[], object]) -> str:
    """Return the fastest time of a call."""
    fastest = min(timeit.repeat(function, number=50, repeat=20))
    return f"{1e6 * fastest / 50:.1f}"


@dataclasses.dataclass(frozen=True)
class Visitor:
    """A process that shares the core for some time and then pauses.

    Attributes:
      share: Share of the core that it takes while it runs.
    """

    runs_s: float = 2.0
    pauses_s: float = 3.0
    share: float = SLOWED


def simulate_run(
    random: np.random.Generator,
    rate: float,
    visitor: Visitor | None,
    batch_s: float = BATCH_S,
    num_batches: int = NUM_BATCHES,
) -> RunRecord:
    """Return a run whose load is recorded with the errors of clock ticks.

    Args:
      random: Source of random numbers.
      rate: Rate of the quiet batches, as a ratio to 1 / batch_s.
      visitor: The process beside it, or None.
      batch_s: Mean seconds of a quiet batch.
      num_batches: Number of measured batches.
    """
    work = batch_s / rate * np.exp(BETWEEN_BATCHES * random.normal(size=num_batches))
    is_running = visitor is not None and random.random() < 0.5
    change_s = 0.0  # time until the visitor starts or stops
    seconds = []
    taken = []
    for work_s in work:
        elapsed_s = 0.0
        taken_s = 0.0
        while work_s > 0:
            if visitor is not None and change_s <= 0:
                is_running = not is_running
                mean_s = visitor.runs_s if is_running else visitor.pauses_s
                change_s = random.exponential(mean_s)
            share = visitor.share if visitor is not None and is_running else 0.0
            step_s = work_s / (1 - share)
            if visitor is not None:
                step_s = min(step_s, change_s)
                change_s -= step_s
            work_s -= step_s * (1 - share)
            work_s = 0.0 if work_s < 1e-12 else work_s
            elapsed_s += step_s
            taken_s += step_s * share
        seconds.append(elapsed_s)
        taken.append(taken_s)
    return _record(random, seconds, taken)


def _record(
    random: np.random.Generator, seconds: Sequence[float], taken: Sequence[float]
) -> RunRecord:
    """Return the record of batches of which others took some seconds of the core."""
    windows = []
    stop = 0
    for number in range(1, len(seconds) + 1):
        if math.fsum(seconds[stop:number]) >= load.WINDOW_S:
            windows.append((stop, number))
            stop = number
    if stop < len(seconds):
        start = windows.pop()[0] if windows else 0
        windows.append((start, len(seconds)))
    window_s = [math.fsum(seconds[first:last]) for first, last in windows]
    others = []
    for (first, last), length_s in zip(windows, window_s):
        # Two readings of the idle time, each rounded down to a tick.
        error_s = TICK_S * (random.random() - random.random())
        share = (math.fsum(taken[first:last]) + error_s) / length_s
        others.append(min(1.0, max(0.0, share)))
    total_s = math.fsum(seconds)
    items = len(seconds)
    return dataclasses.replace(
        TEMPLATE,
        batches=Batches(
            measured=items, seconds=tuple(seconds), items=tuple([1] * items)
        ),
        throughput=Throughput(
            items=items, seconds=total_s, items_per_second=items / total_s
        ),
        environment=Environment(
            load=Load(
                others=math.fsum(taken) / total_s,
                steal=0.0,
                seconds=total_s,
                windows=LoadWindows(
                    batches=tuple(last - first for first, last in windows),
                    seconds=tuple(window_s),
                    others=tuple(others),
                    steal=tuple([0.0] * len(windows)),
                ),
            )
        ),
    )


def remove_windows(made: RunRecord) -> RunRecord:
    """Return the record with the load of the run only."""
    own_load = dataclasses.replace(made.environment.load, windows=None)
    environment = dataclasses.replace(made.environment, load=own_load)
    return dataclasses.replace(made, environment=environment)


def run_rates(random: np.random.Generator, count: int) -> np.ndarray:
    """Return the rates of runs one after the other, each like the one before it."""
    noise = random.normal(size=count)
    for i in range(1, count):
        noise[i] = ALIKE * noise[i - 1] + math.sqrt(1 - ALIKE**2) * noise[i]
    return np.exp(BETWEEN_RUNS * noise)


def list_counted_rates(
    groups: Sequence[Sequence[RunRecord]], rule: str
) -> list[list[float]]:
    """Return the rates that count, by group.

    Args:
      groups: Pairs of runs, or repeats as groups of one run.
      rule: One of RULES.
    """
    if rule == "all runs":
        return list(map(list_measured_rates, groups))
    if rule == "quiet runs":
        groups = [list(map(remove_windows, group)) for group in groups]

    def is_disturbed(group: Sequence[RunRecord]) -> bool:
        return any(map(disturbance.is_disturbed, group))

    quiet = disturbance.select_quiet(groups, is_disturbed)
    all_batches = any(map(is_disturbed, quiet))
    rates = []
    for group in quiet:
        group_rates = []
        for run in group:
            group_rates.append(disturbance.compute_counted_rate(run, all_batches))
        rates.append(group_rates)
    return rates


def list_measured_rates(runs: Sequence[RunRecord]) -> list[float]:
    """Return the rates of runs with all of their batches."""
    return [run.throughput.items_per_second for run in runs]


def compare_selections(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Compare the rules for runs with two levels of batches."""
    often = Visitor()
    for share, visitor in (
        (0.0, often),
        (0.1, often),
        (0.5, often),
        (1.0, often),
        (1.0, Visitor(2.0, 1.0)),
        (1.0, Visitor(20.0, 30.0)),
    ):
        random = np.random.default_rng([seed, int(100 * share), int(visitor.pauses_s)])
        experiments = []
        for _ in range(repetitions):
            rates = run_rates(random, 2 * PAIRS)
            made = []
            for rate in rates:
                beside = visitor if random.random() < share else None
                made.append(simulate_run(random, rate, beside))
            experiments.append(made)
        for rule in RULES:
            yield [
                f"{share:.0%}",
                f"{visitor.runs_s:g}, {visitor.pauses_s:g}",
                rule,
                *_judge(experiments, rule),
            ]


def _judge(experiments: Sequence[Sequence[RunRecord]], rule: str) -> list[str]:
    """Return the cells of `compare_selections` for one rule."""
    num_counted = []
    intervals: list[Interval] = []
    widths = []
    for made in experiments:
        pairs = [(made[i], made[j]) for i, j in zip(*list_places(PAIRS))]
        rates = np.array(list_counted_rates(pairs, rule))
        num_counted.append(len(rates))
        intervals.append(confidence.compute_paired_ratio(rates[:, 0], rates[:, 1]))
        repeats = list_counted_rates([[run] for run in made[:REPEATS]], rule)
        repeated = confidence.compute_interval_over_runs([rate for (rate,) in repeats])
        widths.append(repeated.half_width / repeated.value)
    is_false = [not interval.low <= 1.0 <= interval.high for interval in intervals]
    # A change multiplies all rates of one side, and so the interval.
    is_found = [CHANGE * interval.low > 1.0 for interval in intervals]
    half_width = np.median([interval.half_width for interval in intervals])
    return [
        f"{np.mean(num_counted) / PAIRS:.0%}",
        f"{np.mean(is_false):.1%}",
        f"{half_width:.1%}",
        f"{np.mean(is_found):.1%}",
        f"{1 - np.mean(is_false):.1%}",
        f"{np.median(widths):.1%}",
    ]


def steady(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Show that a constant load near the limit cannot be selected away."""
    for share in (0.03, 0.04, 0.05, 0.06, 0.08):
        for batch_s, per_window in ((BATCH_S, 1), (0.1, 5)):
            random = np.random.default_rng([seed, int(1000 * share)])
            visitor = Visitor(1e9, 1e-9, share)
            ratios = []
            for _ in range(repetitions):
                made = simulate_run(random, 1.0, visitor, batch_s, 60)
                if disturbance.has_counted_windows(made):
                    ratios.append(disturbance.compute_counted_rate(made) * batch_s)
            mean = f"{np.mean(ratios):.3f}" if ratios else ""
            yield [
                f"{share:.0%}",
                str(per_window),
                f"{len(ratios) / repetitions:.0%}",
                mean,
            ]


def run_trials(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Run the trainer alone and beside a process that runs 2 s and pauses 3 s."""
    core = max(os.sched_getaffinity(0))
    all_ratios = []
    quiet_ratios = []
    for number in range(1, 1 + TRIALS):
        alone = _train(core)
        with _run_visitor(core):
            beside = _train(core)
        base = disturbance.compute_counted_rate(alone)
        all_ratios.append(beside.throughput.items_per_second / base)
        quiet_ratios.append(disturbance.compute_counted_rate(beside) / base)
        left_out = disturbance.count_batches_left_out([[beside]]).get("batches", 0)
        yield [
            str(number),
            f"{left_out} of {beside.batches.measured}",
            f"{all_ratios[-1]:.3f}",
            f"{quiet_ratios[-1]:.3f}",
        ]
    yield [
        "median",
        "",
        f"{statistics.median(all_ratios):.3f}",
        f"{statistics.median(quiet_ratios):.3f}",
    ]


def _train(core: int) -> RunRecord:
    """Run the trainer on one core."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        words = [
            "taskset",
            "--cpu-list",
            str(core),
            sys.executable,
            "-m",
            "rnn_scaling.train",
            "--device=cpu",
            "--preset=small",
            "--num_devices=1",
            "--num_batches=40",
            f"--result_file={path}",
        ]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        return record.read(path)


@contextlib.contextmanager
def _run_visitor(core: int) -> Iterator[None]:
    """Run a process on the core that works 2 s and pauses 3 s."""
    script = (
        "import time\n"
        "while True:\n"
        "    end = time.monotonic() + 2\n"
        "    while time.monotonic() < end: pass\n"
        "    time.sleep(3)\n"
    )
    words = ["taskset", "--cpu-list", str(core), sys.executable, "-c", script]
    with subprocess.Popen(words) as visitor:
        try:
            yield
        finally:
            visitor.terminate()


PARTS = {
    "ticks": simulate_ticks,
    "cost": measure_cost,
    "selection": compare_selections,
    "steady": steady,
    "trial": run_trials,
}


def main() -> None:
    """Print the tables of the chosen parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts",
        default="ticks,cost,selection,steady",
        help="parts to run, separated by commas",
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        default=2000,
        help="number of repetitions of each row",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the random numbers"
    )
    own = parser.parse_args()
    for name in own.parts.split(","):
        rows = list(PARTS[name](own.repetitions, own.seed))
        print(f"\n{name}\n")
        print(format_table(HEADERS[name], rows))


if __name__ == "__main__":
    main()
