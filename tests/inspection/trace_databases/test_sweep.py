"""The streaming sweep against brute force over the units of time."""

import random

import pytest

from rnn_scaling.inspection.trace_databases.layouts import COPY, KERNEL, MEMSET
from rnn_scaling.inspection.trace_databases.sweep import DeviceSweep


def list_units(events, contains):
    """Return the units of time that events of a class cover."""
    covered = set()
    for start, end, kind, communicates in events:
        if contains(kind, communicates):
            covered.update(range(start, end))
    return covered


def random_events(seed):
    """Return (start, end, kind, whether it communicates) in the order of starts."""
    rng = random.Random(seed)
    events = []
    for _ in range(rng.randrange(1, 40)):
        start = rng.randrange(120)
        kind = rng.choice([KERNEL, COPY, MEMSET])
        communicates = kind != MEMSET and rng.random() < 0.4
        end = start + rng.choice([0, 1, 2, 5, 30])
        events.append((start, end, kind, communicates))
    return sorted(events)


@pytest.mark.parametrize("seed", range(10))
def test_every_sum_equals_brute_force(seed):
    """Only computing kernels hide communication, and only kernels hide copies."""
    events = random_events(seed)
    sweep = DeviceSweep(largest_gaps=3)
    for start, end, kind, communicates in events:
        sweep.add(kind, start, end, communicates=communicates)
    numbers = sweep.compute_sums(window_ns=1000)
    kernels = list_units(events, lambda kind, _: kind == KERNEL)
    copies = list_units(events, lambda kind, _: kind == COPY)
    busy = list_units(events, lambda *_: True)
    compute = list_units(events, lambda kind, talks: kind == KERNEL and not talks)
    communication = list_units(events, lambda _, talks: talks)
    assert numbers["kernel_busy_ns"] == len(kernels)
    assert numbers["copy_busy_ns"] == len(copies)
    assert numbers["overlap_ns"] == len(kernels & copies)
    assert numbers["exposed_copy_ns"] == len(copies - kernels)
    assert numbers["compute_busy_ns"] == len(compute)
    assert numbers["idle_ns"] == 1000 - len(busy) == 1000 - numbers["busy_ns"]
    # An event without length also splits a gap.
    edges = sorted({time for event in events for time in event[:2]})
    idle = [b - a for a, b in zip(edges, edges[1:]) if not busy & set(range(a, b))]
    assert numbers["gap_ns"] == sum(idle)
    assert numbers["gaps"] == len(idle)
    largest = [gap["ns"] for gap in numbers["largest_gaps"]]
    assert largest == sorted(idle, reverse=True)[:3]
    assert sum(numbers["count"].values()) == len(events)
    talking = [event for event in events if event[3]]
    found = numbers["communication"]
    assert found["kernels"] + found["copies"] == len(talking)
    assert found["sum_ns"] == sum(end - start for start, end, *_ in talking)
    assert found["busy_ns"] == len(communication)
    assert found["overlapped_ns"] == len(communication & compute)
    assert found["exposed_ns"] == len(communication - compute)
