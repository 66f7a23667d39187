"""A rank is called late if it holds the others up beyond chance, and noise is not."""

import random

import pytest

from rnn_scaling.analysis.steps.straggler import judge_ranks
from rnn_scaling.records.workers import Rank, Workers


def judge(rng, size, scatter=0.010, late=None, batches=30, exchanges=True, times=True):
    """Judge ranks that are ready after about 80 ms of batches of 100 ms.

    Args:
      rng: The source of the noise.
      size: The number of ranks that train.
      scatter: Standard deviation of the times, in seconds.
      late: Rank -> seconds by which it comes later.
      batches: The number of measured batches.
      exchanges: Whether the ranks exchange gradients.
      times: Whether the times of ready gradients are recorded.
    """
    ranks = [Rank(rank=0, role="coordinator")]
    for rank in range(1, size + 1):
        mean = 0.08 + (late or {}).get(rank, 0.0)
        ends = tuple(rng.gauss(mean, scatter) for _ in range(batches + 2))
        seconds = (0.1,) * len(ends) if exchanges else ends
        ready = ends if exchanges and times else ()
        items = (10,) * len(ends)
        ranks.append(Rank(rank=rank, seconds=seconds, ready=ready, items=items))
    return judge_ranks(Workers(ranks=tuple(ranks)), 2, exchanges)


@pytest.mark.parametrize("exchanges", [True, False])
def test_only_the_ranks_that_hold_up_the_others_are_named(exchanges):
    rng = random.Random(1)
    for late in ({3: 0.06}, {1: 0.07, 3: 0.06}, {6: 0.06}):
        judged = judge(rng, 6, late=late, exchanges=exchanges)
        assert judged.late_ranks == tuple(late)
        assert judged.reason.values["ranks"] == [str(rank) for rank in late]
        assert judged.reason.values["measured"] == 30
        num_last = {times.rank.rank: times.num_last for times in judged.ranks}
        assert sum(num_last.values()) == sum(num_last[rank] for rank in late) == 30


@pytest.mark.parametrize("size", [2, 256])
def test_noise_is_not_named(size):
    rng = random.Random(size)
    judged = [judge(rng, size) for _ in range(100)]
    assert {one.reason.kind for one in judged} == {"ranks-not-late"}


@pytest.mark.parametrize(
    "options, kind",
    [
        ({"scatter": 1e-6, "late": {2: 5e-4}}, "ranks-not-late"),  # 0.5 % of a batch
        ({"late": {2: 0.005}}, "ranks-not-late"),  # less than its scatter
        ({"late": {2: 0.06}, "batches": 9}, "ranks-few-batches"),
        ({"late": {2: 0.06}, "times": False}, "ranks-not-timed"),
    ],
)
def test_without_evidence_no_rank_is_named(options, kind):
    judged = judge(random.Random(3), 4, **options)
    assert judged.late_ranks == ()
    assert judged.reason.kind == kind


def test_fewer_than_two_ranks_with_times_are_not_judged():
    assert judge(random.Random(3), 1) is None
    assert judge_ranks(Workers(ranks=(Rank(rank=0), Rank(rank=1))), 2, True) is None
