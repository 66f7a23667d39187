"""Batches of several ranks as those of one run."""

from __future__ import annotations

import math

import pytest

from rnn_scaling.records.workers import Rank, join_batches


def rank(
    number: int,
    seconds: list[float],
    items: list[int],
    loss: list[float | None] | None = None,
) -> Rank:
    steps = range(len(seconds))
    return Rank(
        rank=number,
        seconds=tuple(seconds),
        items=tuple(items),
        loss=tuple(loss or [1.0] * len(items)),
        loss_items=tuple(items),
        tower_items=tuple((items[k],) for k in steps),
        tower_positions=tuple((items[k] + 1,) for k in steps),
    )


def test_a_batch_ends_when_the_last_rank_ends_it():
    fast = rank(0, [5.0, 1.0, 1.0, 1.0], [10, 10, 10, 10])
    slow = rank(1, [1.0, 2.0, 2.0, 3.0], [30, 20, 20, 20])
    batches = join_batches([fast, slow], warmup=1)
    assert batches.seconds == (
        5.0,
        2.0,
        2.0,
        3.0,
    )  # the slow warm-up of rank 0 is no part of the measured batches
    assert batches.items == (40, 30, 30, 30)
    assert (batches.warmup, batches.measured) == (1, 3)
    assert batches.tower_items[0] == (10, 30) and batches.tower_positions[0] == (11, 31)


def test_who_is_last_may_change():
    batches = join_batches(
        [rank(0, [3.0, 1.0, 5.0], [1] * 3), rank(1, [1.0, 4.0, 1.0], [1] * 3)], warmup=0
    )
    assert batches.seconds == (3.0, 2.0, 4.0)
    assert math.fsum(batches.seconds) == 9.0  # of the last rank to end


def test_the_loss_is_the_mean_over_what_the_ranks_losses_are_means_of():
    ranks = [rank(0, [1.0], [30], [2.0]), rank(1, [1.0], [10], [4.0])]
    assert join_batches(ranks, 0).loss == (2.5,)
    assert join_batches([ranks[0], rank(1, [1.0], [10], [None])], 0).loss == (None,)


@pytest.mark.parametrize("ranks", [[], [rank(0, [1.0, 1.0], [1, 1]), rank(1, [], [])]])
def test_only_batches_that_every_rank_ended_count(ranks):
    assert join_batches(ranks, 1).seconds == ()


def test_what_one_rank_had_ahead_is_left_out():
    batches = join_batches(
        [rank(0, [1.0, 1.0, 1.0], [1] * 3), rank(1, [1.0, 1.5], [1] * 2)], 1
    )
    assert batches.seconds == (1.0, 1.5) and (batches.warmup, batches.measured) == (
        1,
        1,
    )
