"""Processes of one run on one machine take different cores while there are enough."""

from __future__ import annotations

import pytest

from rnn_scaling.system.machine import cores


@pytest.fixture
def four_cores(monkeypatch):
    """Fake four cores; 0 and 2, and 1 and 3, are hyper-threads of one core."""
    siblings = {0: [0, 2], 2: [0, 2], 1: [1, 3], 3: [1, 3]}
    monkeypatch.setattr(cores, "list_available_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(cores, "_read_siblings", siblings.__getitem__)
    bound: list[list[int]] = []
    monkeypatch.setattr(
        cores.os,
        "sched_setaffinity",
        lambda _, taken: bound.append(list(taken)),
        raising=False,
    )
    return bound


@pytest.mark.parametrize(
    "count, taken",
    [
        (1, [[0], [1], [2], [3]]),
        (2, [[0, 1], [2, 3]]),
        (4, [[0, 1, 2, 3]] * 2),
        (9, [[0, 1, 2, 3]] * 2),
    ],
)
def test_each_local_rank_takes_the_next_cores(four_cores, count, taken):
    assert [cores.bind_to_cores(count, rank) for rank in range(len(taken))] == taken
    assert four_cores == taken


def test_processes_of_one_machine_divide_the_cores_that_no_launcher_has_divided(
    four_cores, monkeypatch
):
    monkeypatch.setattr(cores.os, "cpu_count", lambda: 4)
    assert [cores.share_of_cores(size) for size in (1, 2, 3, 9)] == [4, 2, 1, 1]
    monkeypatch.setattr(cores.os, "cpu_count", lambda: 8)
    assert cores.share_of_cores(2) == 4


def test_ranks_share_from_the_first_core_on_where_there_are_too_few(four_cores):
    assert [cores.bind_to_cores(3, rank) for rank in range(3)] == [
        [0, 1, 2],
        [0, 1, 3],
        [0, 2, 3],
    ]
