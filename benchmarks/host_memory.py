"""Compare the copy bandwidth that `links` measures with that of mbw and of NumPy.

    python -m benchmarks.host_memory [--mib=256] [--rounds=10]

It needs mbw (Debian, Ubuntu: apt install mbw). One core copies an array that is larger
than the last-level cache. The three programs take turns, one copy per round, so that
other load affects all of them. All count bytes as `links` does: read and written.
Prints a Markdown table; compare its ratios.
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
from rnn_scaling.system.files.markdown import format_table
from rnn_scaling.system.machine.cores import list_available_cores

FLAGS = flags.FLAGS
flags.DEFINE_integer("mib", 256, "size of the array, in MiB", lower_bound=1)
flags.DEFINE_integer("rounds", 10, "number of copies with each program", lower_bound=2)

HEAD = (
    "copy, one core",
    "GB/s (median)",
    "lowest",
    "highest",
    "links / this (median of rounds)",
)


def measure_mbw(mib: int) -> float:
    """Return GB/s of mbw's memcpy, from the time that it prints.

    Only its second copy counts, because the first one touches the pages.

    Raises:
      RuntimeError: If it does not print two times.
    """
    finished = subprocess.run(
        ["mbw", "-q", "-a", "-n", "2", "-t0", str(mib)],
        capture_output=True,
        text=True,
        check=True,
    )
    times = re.findall(r"Elapsed: ([0-9.]+)", finished.stdout)
    if len(times) < 2:
        raise RuntimeError(f"expected two times from mbw, got {finished.stdout!r}")
    return 2 * mib * 2**20 / float(times[1]) / 1e9


def measure_copy(copy: Callable[[], object], num_bytes: int) -> float:
    """Return GB/s of one copy, read and written."""
    start = time.perf_counter()
    copy()
    return 2 * num_bytes / (time.perf_counter() - start) / 1e9


def main(_: list[str]) -> None:
    os.sched_setaffinity(0, {list_available_cores()[0]})
    num_bytes = FLAGS.mib * 2**20
    copy_by_links = host_memory.make_transfer("copy", host_memory._Buffers(num_bytes))
    # Writing the arrays touches their pages.
    source = np.full(num_bytes, 1, np.uint8)
    target = np.full(num_bytes, 2, np.uint8)
    programs: dict[str, Callable[[], float]] = {
        "links": lambda: measure_copy(lambda: copy_by_links(num_bytes), num_bytes),
        "numpy.copyto": lambda: measure_copy(
            lambda: np.copyto(target, source), num_bytes
        ),
        "mbw memcpy": lambda: measure_mbw(FLAGS.mib),
    }
    gb_per_s: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(FLAGS.rounds):
        for name, measure in programs.items():
            gb_per_s[name].append(measure())
    rows = []
    for name, rates in gb_per_s.items():
        ratios = [links / this for links, this in zip(gb_per_s["links"], rates)]
        cells = [
            name,
            f"{statistics.median(rates):.1f}",
            f"{min(rates):.1f}",
            f"{max(rates):.1f}",
            f"{statistics.median(ratios):.2f}",
        ]
        rows.append(cells)
    print(format_table(HEAD, rows, padded=False), end="")


if __name__ == "__main__":
    app.run(main)
