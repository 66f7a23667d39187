"""Measure the microseconds that a Recorder adds to a step of any loop.

    python -m benchmarks.recorder_cost [--steps=20000] [--rounds=7]

Prints the median, fastest and slowest round: the time per step of a loop that only
calls `step`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rnn_scaling import Recorder
from rnn_scaling.system.files.markdown import format_table

# Steps until the warm-up ends, where the ranks of a run meet.
NUM_WARMUP = 10
ITEMS = 64
LOSS = 2.5
HEAD = ("step with", "Median (us)", "Fastest (us)", "Slowest (us)")


def main() -> None:
    options = parse_options()
    rows = []
    for name, time_case in make_cases(options.steps).items():
        rounds_us = []
        with tempfile.TemporaryDirectory() as folder:
            for number in range(options.rounds):
                seconds = time_case(Path(folder, f"{number}.json"))
                rounds_us.append(1e6 * seconds / options.steps)
        cells = [
            name,
            f"{statistics.median(rounds_us):.2f}",
            f"{min(rounds_us):.2f}",
            f"{max(rounds_us):.2f}",
        ]
        rows.append(cells)
    print(format_table(HEAD, rows), end="")


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps", type=int, default=20_000, help="number of steps per round"
    )
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds")
    return parser.parse_args()


def make_cases(num_steps: int) -> dict[str, Callable[[Path], float]]:
    """Return the cases by name; each records to a path and returns seconds."""
    items = np.int64(ITEMS)
    loss = np.float32(LOSS)
    return {
        "Python's numbers": lambda path: time_one_process(path, num_steps),
        "numpy's numbers": lambda path: time_one_process(path, num_steps, items, loss),
        "with lines of progress": lambda path: time_one_process(
            path, num_steps, progress=True, num_steps=num_steps
        ),
        "one of two ranks": lambda path: time_rank_0(path, num_steps),
    }


def time_one_process(
    path: Path, count: int, items: Any = ITEMS, loss: Any = LOSS, **options: Any
) -> float:
    """Return the seconds of `count` steps of a single process.

    Args:
      options: Arguments of the Recorder.
    """
    with Recorder(path, **options) as recorder:
        return time_steps(recorder, count, items, loss)


def time_rank_0(path: Path, count: int) -> float:
    """Return the seconds of rank 0's steps after the other rank has made its own."""
    first, second = (
        Recorder(path, num_devices=2, rank=rank, num_ranks=2) for rank in range(2)
    )
    # Starting waits for the other rank.
    second_start = threading.Thread(target=second.start)
    second_start.start()
    first.start()
    second_start.join()
    # So does the end of the warm-up.
    second_steps = threading.Thread(target=time_steps, args=(second, count))
    second_steps.start()
    time_steps(first, NUM_WARMUP)
    second_steps.join()
    second.close()
    seconds = time_steps(first, count - NUM_WARMUP)
    first.close()
    return seconds


def time_steps(
    recorder: Recorder, count: int, items: Any = ITEMS, loss: Any = LOSS
) -> float:
    """Return the seconds of `count` steps."""
    start = time.perf_counter()
    for _ in range(count):
        recorder.step(items, loss)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
