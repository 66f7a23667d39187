"""Ranks of a run that share cores with each other."""

import dataclasses

import pytest

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.records.environment import LoadWindows
from rnn_scaling.records.workers import (
    Rank,
    Workers,
    drop_load_of_each_other,
    find_ranks_sharing_cores,
)
from rnn_scaling.training import cluster
from tests.support.records import change_record, make_record


def workers(*cores, **fields):
    """Return a rank for each (host, core), with a load of 40 % by others."""
    windows = LoadWindows(batches=(1,), seconds=(1.0,), others=(0.4,), steal=(0.0,))
    each = (
        Rank(
            rank=n,
            host=host,
            cpu_affinity=(core,),
            load_others=0.4,
            load_windows=windows,
            seconds=(1.0,),
        )
        for n, (host, core) in enumerate(cores)
    )
    return Workers(ranks=tuple(each), **fields)


def test_a_rank_that_shares_its_core_with_another_does_not_take_it_for_load():
    crowded = drop_load_of_each_other(workers(("a", 0), ("a", 1), ("a", 0), ("b", 0)))
    assert [rank.load_others for rank in crowded.ranks] == [None, 0.4, None, 0.4]
    has_windows = [rank.load_windows is not None for rank in crowded.ranks]
    assert has_windows == [False, True, False, True]


@pytest.mark.parametrize("link, sharing, line, num_cores", [
    (None, set(), "", 3),
    ("50 Mbit/s asked", {0, 1}, "ranks 0 and 1 share core 0: the run is slower than with one core per rank", 2),
])  # fmt: skip
def test_nodes_of_a_network_that_was_made_for_the_run_are_one_machine(
    link, sharing, line, num_cores
):
    told = workers(("10.200.0.1", 0), ("10.200.0.2", 0), ("10.200.0.3", 1), link=link)
    assert find_ranks_sharing_cores(told) == sharing
    assert cluster.warn_about_shared_cores(told) == line
    crowded = {"resolved": {"cpu_affinity": [0], "oversubscribed": True}}
    run = dataclasses.replace(change_record(make_record(), **crowded), workers=told)
    [row] = build_rows([run])
    assert disturbance.count_shared_cores(row.good_runs) == num_cores
