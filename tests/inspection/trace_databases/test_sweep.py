"""The streaming sweep against brute force over the units of time."""

from __future__ import annotations

import random

import pytest

from rnn_scaling.inspection.trace_databases.layouts import COPY, KERNEL, MEMSET
from rnn_scaling.inspection.trace_databases.sweep import DeviceSweep


def units(events):
    return {t for start, end in events for t in range(start, end)}


def random_events(seed):
    rng = random.Random(seed)
    events = []
    for _ in range(rng.randrange(1, 40)):
        start = rng.randrange(120)
        end = start + rng.choice([0, 1, 2, 5, 30])
        events.append(
            (start, end, rng.choice([KERNEL, COPY, MEMSET]), rng.randrange(3))
        )
    return sorted(events)


@pytest.mark.parametrize("seed", range(60))
def test_busy_overlap_exposed_and_gaps_equal_brute_force(seed):
    events = random_events(seed)
    sweep = DeviceSweep(largest_gaps=3)
    for start, end, what, _ in events:
        sweep.add(what, start, end)
    kernels = units(e[:2] for e in events if e[2] == KERNEL)
    copies = units(e[:2] for e in events if e[2] == COPY)
    busy = units(e[:2] for e in events)
    assert sweep.kernels.length == len(kernels)
    assert sweep.copies.length == len(copies)
    assert sweep.any.length == len(busy)
    numbers = sweep.numbers(window_ns=1000)
    assert numbers["overlap_ns"] == len(kernels & copies)
    assert numbers["exposed_copy_ns"] == len(copies - kernels)
    assert numbers["idle_ns"] == 1000 - len(busy)
    # An event of no length splits a gap, as one of any length does.
    edges = sorted({t for e in events for t in e[:2]})
    idle = [b - a for a, b in zip(edges, edges[1:]) if not busy & set(range(a, b))]
    assert sweep.gap_ns == sum(idle)
    assert sweep.gaps == len(idle)
    assert [gap["ns"] for gap in numbers["largest_gaps"]] == sorted(idle, reverse=True)[
        :3
    ]
    assert sum(sweep.count.values()) == len(events)


def test_a_gap_names_what_ended_last_before_it_not_what_started_last():
    sweep = DeviceSweep()
    sweep.add(KERNEL, 0, 10, label="long")
    sweep.add(KERNEL, 1, 2, label="short")
    sweep.add(COPY, 15, 16, label="after")
    (gap,) = sweep.numbers(window_ns=16)["largest_gaps"]
    assert gap == {"ns": 5, "start_ns": 10, "before": "long", "after": "after"}


@pytest.mark.parametrize("seed", range(30))
def test_communication_is_overlapped_by_computing_kernels_alone(seed):
    """Not by copies, by memsets or by communication itself."""
    rng = random.Random(seed)
    events = [
        (*event, event[2] != MEMSET and rng.random() < 0.4)
        for event in random_events(seed)
    ]
    sweep = DeviceSweep()
    for start, end, what, _, communicates in events:
        sweep.add(what, start, end, communicates=communicates)
    communication = units(e[:2] for e in events if e[4])
    compute = units(e[:2] for e in events if e[2] == KERNEL and not e[4])
    assert sweep.communication.length == len(
        communication
    ) and sweep.compute.length == len(compute)
    numbers = sweep.numbers(window_ns=1000)["communication"]
    assert numbers["overlapped_ns"] == len(communication & compute)
    assert numbers["exposed_ns"] == len(communication - compute)
    assert sum(sweep.communication_count.values()) == sum(e[4] for e in events)
    assert sweep.communication_sum_ns == sum(e[1] - e[0] for e in events if e[4])
