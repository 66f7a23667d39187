"""Bandwidth of the host's memory and caches: the C library's memcpy, memchr and memset, on one core and on all.

No TensorFlow. ctypes lets go of Python's lock in a call, so threads really run side by side. Bytes are counted as
STREAM does: a copy reads and writes each byte, so it counts twice; what caches fetch before they are written to is not
counted. Source: https://www.cs.virginia.edu/stream/ref.html, "Counting Bytes and FLOPS".
"""

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Sequence

import numpy as np

from rnn_scaling.links import rounds
from rnn_scaling.links.series import MEMORY, Series, counted

SMALLEST_SHARED = 2**20  # threads that start and meet take longer than less
TRAFFIC = {"copy": 2, "read": 1, "write": 1}
FILL = 1
ABSENT = 2
BUDGET_S = 3.0  # of one size


class _Buffers:
    """A source and a target that the thread that makes them touches first."""

    def __init__(self, num_bytes: int) -> None:
        self.source = np.full(num_bytes, FILL, np.uint8)
        self.target = np.full(num_bytes, 0, np.uint8)


def transfer(kernel: str, buffers: _Buffers) -> Callable[[int], None]:
    """A function that moves its argument's number of bytes: "copy", "read" or "write"."""
    libc = ctypes.CDLL(None)
    source, target = (
        ctypes.c_void_p(array.ctypes.data) for array in (buffers.source, buffers.target)
    )
    # memchr reads to the end for a byte that is not there.
    calls = {
        "copy": (libc.memcpy, (target, source)),
        "read": (libc.memchr, (source, ABSENT)),
        "write": (libc.memset, (target, FILL)),
    }
    function, arguments = calls[kernel]
    function.restype = ctypes.c_void_p
    return lambda num_bytes: function(*arguments, ctypes.c_size_t(num_bytes))


class Crew:
    """Threads, one on each core, that move their share of the bytes at the same time."""

    def __init__(self, cores: Sequence[int], num_bytes: int) -> None:
        self._num_bytes = num_bytes
        self._kernel = ""
        self._share = 0
        self._start, self._end = (threading.Barrier(len(cores) + 1) for _ in range(2))
        self._threads = [
            threading.Thread(target=self._run, args=(core,), daemon=True)
            for core in cores
        ]
        for thread in self._threads:
            thread.start()
        self._end.wait()

    def move(self, kernel: str, num_bytes: int) -> None:
        """Moves `num_bytes` in equal shares; returns when the last thread has finished."""
        self._kernel, self._share = kernel, num_bytes // len(self._threads)
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
        moves = {kernel: transfer(kernel, buffers) for kernel in TRAFFIC}
        with contextlib.suppress(
            threading.BrokenBarrierError
        ):  # another thread has no memory
            self._end.wait()
            while self._start.wait() >= 0 and self._kernel:
                moves[self._kernel](self._share)
                self._end.wait()


def measure(
    sizes: Sequence[int], repeats: int, cores: Sequence[int], tell: rounds.Tell
) -> list[Series]:
    """Times of copy, read and write on one core, and on all `cores` where there are several.

    sizes: bytes of a transfer, increasing; a copy has as many at its source and at its target.
    """
    crew = Crew(cores, max(sizes)) if len(cores) > 1 else None
    os.sched_setaffinity(0, {cores[0]})
    try:
        buffers = _Buffers(max(sizes))
        jobs: dict[tuple[str, int], list[tuple[int, rounds.Job]]] = {}
        for kernel in TRAFFIC:
            move = transfer(kernel, buffers)
            for size in sizes:
                job = rounds.prepared(functools.partial(move, size))
                jobs.setdefault((kernel, 1), []).append((size, job))
                if crew is not None and size >= SMALLEST_SHARED:
                    job = rounds.prepared(functools.partial(crew.move, kernel, size))
                    jobs.setdefault((kernel, len(cores)), []).append((size, job))
        points = rounds.measured_points(jobs, repeats, BUDGET_S, tell, "host memory")
    finally:
        os.sched_setaffinity(0, cores)
        if crew is not None:
            crew.close()
    return [
        Series(
            MEMORY,
            f"host memory {kernel}, {counted(threads, 'core')}",
            sized,
            TRAFFIC[kernel],
        )
        for (kernel, threads), sized in points.items()
    ]
