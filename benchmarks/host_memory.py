"""Compares the copy bandwidth that `links` measures with mbw's and numpy's; prints a Markdown table.

    python -m benchmarks.host_memory                     needs mbw (Debian, Ubuntu: apt install mbw)
    python -m benchmarks.host_memory --mib=256 --rounds=10

One core copies an array that is larger than the last-level cache. The three programs take turns, one copy per round, so
that other load affects all of them. Compare the ratios. All count bytes as `links` does: read and written.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable

import numpy as np
from absl import app, flags

from rnn_scaling.links import host_memory
from rnn_scaling.system.machine.cores import available_cores

FLAGS = flags.FLAGS
flags.DEFINE_integer("mib", 256, "size of the array, in MiB", lower_bound=1)
flags.DEFINE_integer("rounds", 10, "number of copies with each program", lower_bound=2)


def mbw_gb_per_s(mib: int) -> float:
    """mbw's memcpy, by the time that it prints: of its second copy, since the first touches the pages.

    Raises:
      RuntimeError: if it prints no time.
    """
    said = subprocess.run(
        ["mbw", "-q", "-a", "-n", "2", "-t0", str(mib)],
        capture_output=True,
        text=True,
        check=True,
    )
    times = re.findall(r"Elapsed: ([0-9.]+)", said.stdout)
    if len(times) < 2:
        raise RuntimeError(f"expected two times from mbw, got {said.stdout!r}")
    return 2 * mib * 2**20 / float(times[1]) / 1e9


def timed(copy: Callable[[], object], num_bytes: int) -> float:
    """GB/s of one copy, read and written."""
    start = time.perf_counter()
    copy()
    return 2 * num_bytes / (time.perf_counter() - start) / 1e9


def main(_: list[str]) -> None:
    os.sched_setaffinity(0, {available_cores()[0]})
    num_bytes = FLAGS.mib * 2**20
    buffers = host_memory._Buffers(num_bytes)
    source, target = (
        np.full(num_bytes, 1, np.uint8),
        np.full(num_bytes, 2, np.uint8),
    )  # touched
    ours = host_memory.make_transfer("copy", buffers)
    ways: dict[str, Callable[[], float]] = {
        "links": lambda: timed(lambda: ours(num_bytes), num_bytes),
        "numpy.copyto": lambda: timed(lambda: np.copyto(target, source), num_bytes),
        "mbw memcpy": lambda: mbw_gb_per_s(FLAGS.mib),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(FLAGS.rounds):
        for name, way in ways.items():
            rates[name].append(way())
    print(
        "| copy, one core | GB/s (median) | lowest | highest | links / this (median of rounds) |"
    )
    print("| --- | --- | --- | --- | --- |")
    for name, each in rates.items():
        ratio = statistics.median(a / b for a, b in zip(rates["links"], each))
        print(
            f"| {name} | {statistics.median(each):.1f} | {min(each):.1f} | {max(each):.1f} | {ratio:.2f} |"
        )


if __name__ == "__main__":
    app.run(main)
