"""Measure the bandwidth of the host's memory and caches, on one core and on all.

It is measured with memcpy, memchr and memset of the C library, without TensorFlow.
ctypes releases Python's lock during a call, so threads run at the same time. Bytes are
counted like in STREAM: a copy reads and writes each byte, so it counts twice; bytes
that caches fetch before a write are not counted.
Source: https://www.cs.virginia.edu/stream/ref.html, "Counting Bytes and FLOPS".
"""

import contextlib
import ctypes
import functools
import itertools
import os
import threading
from collections.abc import Callable, Sequence

import numpy as np

from rnn_scaling.links import rounds
from rnn_scaling.links.series import MEMORY, Series
from rnn_scaling.system.files.terminal import format_count

_MIN_SHARED_BYTES = 2**20  # bytes; starting threads takes longer than copying fewer
_TRAFFIC = {"copy": 2, "read": 1, "write": 1}
_FILL = 1
ABSENT = 2
_BUDGET_S = 3.0  # time for one size


class _Buffers:
    """A source and a target near the core of the thread that creates them."""

    def __init__(self, num_bytes: int) -> None:
        self.source = np.full(num_bytes, _FILL, np.uint8)
        self.target = np.full(num_bytes, 0, np.uint8)


def make_transfer(kernel: str, buffers: _Buffers) -> Callable[[int], None]:
    """Return a function that copies, reads or writes a number of bytes."""
    libc = ctypes.CDLL(None)
    source = ctypes.c_void_p(buffers.source.ctypes.data)
    target = ctypes.c_void_p(buffers.target.ctypes.data)
    # memchr reads to the end if the byte is absent.
    calls = {
        "copy": (libc.memcpy, (target, source)),
        "read": (libc.memchr, (source, ABSENT)),
        "write": (libc.memset, (target, _FILL)),
    }
    function, arguments = calls[kernel]
    function.restype = ctypes.c_void_p
    return lambda num_bytes: function(*arguments, ctypes.c_size_t(num_bytes))


class Crew:
    """Threads, one per core, that move equal shares of the bytes at the same time."""

    def __init__(self, cores: Sequence[int], num_bytes: int) -> None:
        self._num_bytes = num_bytes
        self._kernel = ""
        self._share = 0
        self._start = threading.Barrier(len(cores) + 1)
        self._end = threading.Barrier(len(cores) + 1)
        self._threads = [
            threading.Thread(target=self._run, args=(core,), daemon=True)
            for core in cores
        ]
        for thread in self._threads:
            thread.start()
        self._end.wait()

    def move(self, kernel: str, num_bytes: int) -> None:
        """Move bytes in equal shares; return when the last thread has finished."""
        self._kernel = kernel
        self._share = num_bytes // len(self._threads)
        self._start.wait()
        self._end.wait()

    def close(self) -> None:
        self._kernel = ""
        self._start.wait()
        for thread in self._threads:
            thread.join()

    def _run(self, core: int) -> None:
        try:
            os.sched_setaffinity(0, {core})
            buffers = _Buffers(-(-self._num_bytes // len(self._threads)))
        except BaseException:
            self._end.abort()
            raise
        moves = {kernel: make_transfer(kernel, buffers) for kernel in _TRAFFIC}
        # The barrier breaks if another thread has no memory.
        with contextlib.suppress(threading.BrokenBarrierError):
            self._end.wait()
            while self._start.wait() >= 0 and self._kernel:
                moves[self._kernel](self._share)
                self._end.wait()


def measure(
    sizes: Sequence[int], repeats: int, cores: Sequence[int], report: rounds.Report
) -> list[Series]:
    """Measure copy, read and write on one core, and on all cores if there are several.

    Args:
      sizes: Bytes of a transfer, increasing; source and target of a copy have this
        size.
      repeats: Number of rounds.
      cores: The cores.
      report: Called with finished rounds, all rounds and a title.
    """
    crew = Crew(cores, max(sizes)) if len(cores) > 1 else None
    os.sched_setaffinity(0, {cores[0]})
    try:
        buffers = _Buffers(max(sizes))
        jobs: dict[tuple[str, int], list[tuple[int, rounds.Job]]] = {}
        for kernel, size in itertools.product(_TRAFFIC, sizes):
            move = make_transfer(kernel, buffers)
            job = rounds.prepare(functools.partial(move, size))
            jobs.setdefault((kernel, 1), []).append((size, job))
            if crew is not None and size >= _MIN_SHARED_BYTES:
                job = rounds.prepare(functools.partial(crew.move, kernel, size))
                jobs.setdefault((kernel, len(cores)), []).append((size, job))
        points = rounds.measure_points(
            jobs,
            repeats=repeats,
            budget_s=_BUDGET_S,
            report=report,
            title="host memory",
        )
    finally:
        os.sched_setaffinity(0, cores)
        if crew is not None:
            crew.close()
    return [
        Series(
            MEMORY,
            f"host memory {kernel}, {format_count(threads, 'core')}",
            series_points,
            _TRAFFIC[kernel],
        )
        for (kernel, threads), series_points in points.items()
    ]
