"""Measures the time that a Recorder adds to a step of any loop, in microseconds.

    python -m benchmarks.recorder_cost [--steps=20000] [--rounds=7]

Prints the median, fastest and slowest round: the time per step of a loop that contains only `step`.
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps", type=int, default=20_000, help="number of steps per round"
    )
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds")
    own = parser.parse_args()
    loss, items = np.float32(2.5), np.int64(64)
    cases: dict[str, Callable[[Path], float]] = {
        "Python's numbers": lambda path: alone(path, own.steps, 64, 2.5),
        "numpy's numbers": lambda path: alone(path, own.steps, items, loss),
        "with lines of progress": lambda path: alone(
            path, own.steps, 64, 2.5, progress=True, num_steps=own.steps
        ),
        "one of two ranks": lambda path: of_two(path, own.steps),
    }
    print(
        "| step with | Median (us) | Fastest (us) | Slowest (us) |\n| --- | ---: | ---: | ---: |"
    )
    for name, seconds in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            rounds = [
                1e6 * seconds(Path(folder, f"{n}.json")) / own.steps
                for n in range(own.rounds)
            ]
        print(
            f"| {name} | {statistics.median(rounds):.2f} | {min(rounds):.2f} | {max(rounds):.2f} |"
        )


def alone(path: Path, steps: int, items: Any, loss: Any, **options: Any) -> float:
    """Seconds of so many steps of one process."""
    with Recorder(path, **options) as recorder:
        return loop(recorder, steps, items, loss)


def of_two(path: Path, steps: int) -> float:
    """Seconds of so many steps of rank 0, once the other rank, which idles, has ended its own."""
    recorders = [
        Recorder(path, num_devices=2, rank=rank, num_ranks=2) for rank in range(2)
    ]
    starting = threading.Thread(target=recorders[1].start)
    starting.start()
    recorders[0].start()
    starting.join()
    warming = threading.Thread(target=loop, args=(recorders[1], steps, 64, 2.5))
    warming.start()
    loop(recorders[0], 10, 64, 2.5)  # to the end of the warm-up, where the ranks meet
    warming.join()
    recorders[1].close()
    seconds = loop(recorders[0], steps - 10, 64, 2.5)
    recorders[0].close()
    return seconds


def loop(recorder: Recorder, steps: int, items: Any, loss: Any) -> float:
    """Seconds of so many steps."""
    begin = time.perf_counter()
    for _ in range(steps):
        recorder.step(items, loss)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
