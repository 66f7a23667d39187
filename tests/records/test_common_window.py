"""The batches of several ranks become the batches of one run."""

import pytest

from rnn_scaling.records.workers import Rank, join_batches


def rank(number, seconds, items=1, **fields):
    """Return a rank with the same number of items in each batch."""
    steps = len(seconds)
    return Rank(
        rank=number,
        seconds=tuple(seconds),
        items=(items,) * steps,
        loss=fields.get("loss", (1.0,) * steps),
        loss_items=(items,) * steps,
        tower_items=((items,),) * steps,
        tower_positions=((items + 1,),) * steps,
    )


def test_a_batch_ends_when_the_last_rank_ends_it():
    fast = rank(0, [5.0, 1.0, 1.0, 1.0], 10)
    slow = rank(1, [1.0, 2.0, 2.0, 3.0], 20)
    batches = join_batches([fast, slow], warmup=1)
    # The slow warm-up of rank 0 is not part of the measured batches.
    assert batches.seconds == (5.0, 2.0, 2.0, 3.0)
    assert batches.items == (30,) * 4
    assert batches.warmup == 1
    assert batches.measured == 3
    assert batches.tower_items[0] == (10, 20)
    assert batches.tower_positions[0] == (11, 21)


def test_the_last_rank_may_change():
    ranks = [rank(0, [3.0, 1.0, 5.0]), rank(1, [1.0, 4.0, 1.0])]
    assert join_batches(ranks, warmup=0).seconds == (3.0, 2.0, 4.0)


def test_the_loss_is_weighted_by_the_items_of_the_ranks():
    ranks = [rank(0, [1.0], 30, loss=(2.0,)), rank(1, [1.0], 10, loss=(4.0,))]
    assert join_batches(ranks, 0).loss == (2.5,)
    unknown = rank(1, [1.0], 10, loss=(None,))
    assert join_batches([ranks[0], unknown], 0).loss == (None,)


@pytest.mark.parametrize(
    "ranks, seconds",
    [
        ([], ()),
        ([rank(0, [1.0, 1.0]), rank(1, [])], ()),
        ([rank(0, [1.0, 1.0, 1.0]), rank(1, [1.0, 1.5])], (1.0, 1.5)),
    ],
)
def test_only_batches_that_every_rank_ended_count(ranks, seconds):
    batches = join_batches(ranks, 1)
    assert batches.seconds == seconds
    assert batches.measured == max(0, len(seconds) - 1)
