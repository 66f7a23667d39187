"""A rank is called late where it holds the others up beyond chance, and noise is named for what it is."""

from __future__ import annotations

import random

import pytest

from rnn_scaling.analysis.steps.straggler import judge_ranks
from rnn_scaling.records.workers import Rank, Workers


def _cluster(random_, size, scatter=0.010, late=None, batches=30, exchanges=True):
    """Ranks ready after about 80 ms of batches of 100 ms; `late`: rank -> seconds by which it comes later."""
    ranks = []
    for rank in range(size):
        at = [
            0.08 + (late or {}).get(rank, 0.0) + random_.gauss(0, scatter)
            for _ in range(batches + 2)
        ]
        seconds = (0.1,) * len(at) if exchanges else tuple(at)
        ready = tuple(at) if exchanges else ()
        ranks.append(
            Rank(rank=rank + 1, seconds=seconds, ready=ready, items=(10,) * len(at))
        )
    return Workers(ranks=(Rank(rank=0, role="coordinator"), *ranks))


@pytest.mark.parametrize("exchanges", [True, False])
def test_the_ranks_that_hold_up_the_others_are_named_and_no_more(exchanges):
    random_ = random.Random(1)
    for late in ({2: 0.06}, {0: 0.07, 2: 0.06}, {5: 0.06}):
        told = judge_ranks(
            _cluster(random_, 6, late=late, exchanges=exchanges), 2, exchanges
        )
        assert told.late_ranks == tuple(rank + 1 for rank in late)
        assert (
            told.reason.values["ranks"] == [str(rank) for rank in told.late_ranks]
            and told.reason.values["measured"] == 30
        )
        slow = {each.rank.rank: each.num_last for each in told.ranks}
        assert sum(slow.values()) == 30 == sum(slow[rank] for rank in told.late_ranks)


@pytest.mark.parametrize("size", [2, 3, 16, 256])
def test_noise_is_not_named(size):
    random_ = random.Random(size)
    named = [
        judge_ranks(_cluster(random_, size), 2, True).late_ranks for _ in range(100)
    ]
    assert not any(named)
    assert judge_ranks(_cluster(random_, size), 2, True).reason.kind == "ranks-not-late"


def test_what_nobody_waits_for_or_cannot_be_known_is_not_named():
    random_ = random.Random(3)
    assert (
        judge_ranks(
            _cluster(random_, 4, scatter=1e-6, late={1: 5e-4}), 2, True
        ).late_ranks
        == ()
    )  # 0.5 % of a batch
    assert (
        judge_ranks(_cluster(random_, 4, late={1: 0.005}), 2, True).late_ranks == ()
    )  # less than its scatter
    few = judge_ranks(_cluster(random_, 4, late={1: 0.06}, batches=9), 2, True)
    assert (few.late_ranks, few.reason.kind) == ((), "ranks-few-batches")
    silent = judge_ranks(_cluster(random_, 4, late={1: 0.06}, exchanges=False), 2, True)
    assert (silent.late_ranks, silent.reason.kind) == ((), "ranks-not-timed")
    assert judge_ranks(_cluster(random_, 1), 2, True) is None
    assert judge_ranks(Workers(ranks=(Rank(rank=0), Rank(rank=1))), 2, True) is None
