"""Host memory: all bytes are moved, and every thread moves its share.

The tests do not measure speed.
"""

import os
import threading

import numpy as np

from rnn_scaling.links import host_memory

CORES = sorted(os.sched_getaffinity(0))


def test_kernels_move_what_they_say():
    buffers = host_memory._Buffers(1000)
    host_memory.make_transfer("copy", buffers)(600)
    assert np.array_equal(buffers.target, [1] * 600 + [0] * 400)
    buffers.target[:] = 0
    host_memory.make_transfer("write", buffers)(700)
    assert np.array_equal(buffers.target, [1] * 700 + [0] * 300)
    read = host_memory.make_transfer("read", buffers)
    # It reads all bytes, because none of them is the one that it searches for.
    assert read(1000) is None
    buffers.source[999] = host_memory.ABSENT
    assert read(999) is None and read(1000) == buffers.source.ctypes.data + 999


def test_every_thread_of_a_crew_moves_its_share(monkeypatch):
    moved = []
    monkeypatch.setattr(
        host_memory,
        "make_transfer",
        lambda kernel, buffers: (
            lambda n: moved.append((kernel, n, threading.get_ident()))
        ),
    )
    before = threading.active_count()
    crew = host_memory.Crew([CORES[0]] * 3, 3000)
    crew.move("read", 1500)
    assert [each[:2] for each in moved] == [("read", 500)] * 3
    assert len({each[2] for each in moved}) == 3
    crew.close()
    assert threading.active_count() == before


def test_measures_every_kernel_on_one_core_and_on_all():
    rounds = []
    cores = (CORES * 2)[:2]
    found = host_memory.measure(
        [2**10, 2**20, 2**21], 3, cores, lambda *what: rounds.append(what)
    )
    by_name = {each.name: each for each in found}
    assert set(by_name) == {
        f"host memory {k}, {n}"
        for k in ("copy", "read", "write")
        for n in ("1 core", "2 cores")
    }
    assert by_name["host memory copy, 1 core"].sizes == [2**10, 2**20, 2**21]
    assert by_name["host memory copy, 2 cores"].sizes == [2**20, 2**21]
    assert by_name["host memory copy, 1 core"].traffic == 2
    assert by_name["host memory read, 1 core"].traffic == 1
    assert all(len(p.seconds) == 3 for each in found for p in each.points)
    assert rounds == [(n, 3, "host memory") for n in (1, 2, 3)]
    assert os.sched_getaffinity(0) == set(
        cores
    )  # it leaves the thread on the cores that it was given
    os.sched_setaffinity(0, CORES)
    (only, *_) = host_memory.measure([2**10], 3, CORES[:1], lambda *what: None)
    assert only.name == "host memory copy, 1 core"
    os.sched_setaffinity(0, CORES)
