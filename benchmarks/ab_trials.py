"""Score `ab` on real runs beside a real load: equal sides, and a difference of 5 %.

    python -m benchmarks.ab_trials [--trials=20] [--pairs=6] [--visitors=1]
        [--out=results/ab_trials]

Every trial is one command `ab` on a program whose steps multiply matrices a given
number of times: 500 on both sides (A/A), or 525 and 500, so that the true ratio of the
rates is 1.05 (A/B). Both kinds alternate. With --visitors=N, N processes without a core
of their own run for 2 s and pause for 3 s; with 0, the load is whatever else runs on
the machine. Trials that exist in --out are scored without being repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rnn_scaling.analysis.comparison import judgement
from rnn_scaling.analysis.comparison.judgement import Question
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.system.files.markdown import format_table

EQUAL_WORK = 500  # multiplications per step
MORE_WORK = 525  # multiplications per step
SIZE = 192  # rows and columns of the matrices
WARM_UP = 10  # steps
MEASURED = 20  # steps
PROGRAM = "benchmarks.ab_trials"
# Work of side A in each kind of trial; side B always has EQUAL_WORK.
WORK_OF_A = {"equal sides": EQUAL_WORK, "5 % faster": MORE_WORK}
HEAD = ("sides", "trials", "winner named", "coverage", "half interval", "pairs")
# Works for 2 s and pauses for 3 s.
VISITOR = """\
import time
while True:
    end = time.monotonic() + 2
    while time.monotonic() < end: pass
    time.sleep(3)
"""


@dataclasses.dataclass(frozen=True)
class Trial:
    """The result of one `ab`.

    Attributes:
      truth: The true ratio of the rates, B / A.
      ratio: The measured ratio; None if the sides were not compared.
      num_pairs: Pairs of runs that the comparison uses.
    """

    truth: float
    ratio: Interval | None
    num_pairs: int

    @property
    def has_winner(self) -> bool:
        """Whether the interval excludes equal sides."""
        return self._has_interval and not self._contains(1.0)

    @property
    def contains_truth(self) -> bool:
        """Whether the interval contains the true ratio."""
        return self._has_interval and self._contains(self.truth)

    @property
    def _has_interval(self) -> bool:
        return self.ratio is not None and self.ratio.ends is not None

    def _contains(self, value: float) -> bool:
        low, high = self.ratio.ends
        return low <= value <= high


def train(work: int) -> None:
    """Be the program of a trial: record steps of `work` multiplications each."""
    import numpy as np

    from rnn_scaling import Recorder

    matrix = np.ones((SIZE, SIZE), np.float32) / SIZE
    recorder = Recorder(
        os.environ["RNN_SCALING_RESULT_FILE"],
        unit="steps",
        num_devices=int(os.environ["RNN_SCALING_NUM_DEVICES"]),
        num_warmup_batches=WARM_UP,
    )
    with recorder:
        for _ in range(WARM_UP + MEASURED):
            product = matrix
            for _ in range(work):
                product = product @ matrix
            recorder.step(items=1)


def run_trial(out: Path, work_a: int, pairs: int) -> Trial:
    """Run `ab`, which continues if its folder exists, and return its result."""
    program = f"{sys.executable} -m {PROGRAM} --work={{work}}"
    words = [
        sys.executable,
        "-m",
        "rnn_scaling",
        "ab",
        f"--trainer={program}",
        f"--a=--axis:work={work_a}",
        f"--b=--axis:work={EQUAL_WORK}",
        f"--repeats={pairs}",
        "--device=cpu",
        "--num_devices=1",
        f"--out={out}",
    ]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(
        words, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    sides = judgement.read(out / "a", out / "b")
    [result] = judgement.judge(*sides, Question(paired=True)).results
    ratio = result.comparison.ratio if result.comparison else None
    return Trial(work_a / EQUAL_WORK, ratio, result.runs[0])


@contextlib.contextmanager
def run_visitors(count: int) -> Iterator[None]:
    """Run processes that come and go, while the context lasts."""
    running = []
    try:
        for _ in range(count):
            running.append(subprocess.Popen([sys.executable, "-c", VISITOR]))
        yield
    finally:
        for process in running:
            process.terminate()
            process.wait()


def score(name: str, trials: list[Trial]) -> list[str]:
    """Return the table row of one kind of trial."""
    half_widths = []
    for trial in trials:
        if trial.ratio is not None and trial.ratio.half_width is not None:
            half_widths.append(trial.ratio.half_width)
    half_widths.sort()
    median_width = ""
    if half_widths:
        median_width = f"{half_widths[len(half_widths) // 2]:.1%}"
    num_winners = sum(trial.has_winner for trial in trials)
    num_covered = sum(trial.contains_truth for trial in trials)
    num_pairs = sum(trial.num_pairs for trial in trials)
    return [
        name,
        str(len(trials)),
        f"{num_winners / len(trials):.0%}",
        f"{num_covered / len(trials):.0%}",
        median_width,
        f"{num_pairs / len(trials):.1f}",
    ]


def main() -> None:
    options = parse_options()
    if options.work is not None:
        train(options.work)
        return
    trials: dict[str, list[Trial]] = {name: [] for name in WORK_OF_A}
    with run_visitors(options.visitors):
        for number in range(1, options.trials + 1):
            for name, work_a in WORK_OF_A.items():
                folder = options.out / f"{work_a}-{number}"
                trials[name].append(run_trial(folder, work_a, options.pairs))
    print(format_table(HEAD, [score(name, kind) for name, kind in trials.items()]))


def parse_options() -> argparse.Namespace:
    """Return the options of the benchmark and of the program of a trial."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--trials", type=int, default=20, help="number of trials of each kind"
    )
    parser.add_argument(
        "--pairs", type=int, default=6, help="number of pairs of runs per trial"
    )
    parser.add_argument(
        "--visitors",
        type=int,
        default=1,
        help="number of processes that run for 2 s and pause for 3 s",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/ab_trials"),
        help="folder of the records",
    )
    parser.add_argument(
        "--work",
        type=int,
        help="be the program of a trial, with this number of products per step",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
