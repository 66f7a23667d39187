"""Batches of the whole run from those that each rank timed by its own clock. Pure.

No two clocks are compared. All ranks leave a barrier before the first batch, and another after the warm-up; from each
of the two on every rank counts seconds by itself. E[k] is the largest over the ranks of their seconds since the
barrier at the end of batch k, and the batch took E[k] - E[k-1].
"""

import math
from collections.abc import Sequence
from itertools import accumulate

from rnn_scaling.records.parts import Batches
from rnn_scaling.records.workers import Rank

WINDOW = "from a barrier after the warm-up to the end of the last rank; each rank counts seconds by its own clock"


def join(ranks: Sequence[Rank], warmup: int) -> Batches:
    """The batches that all of these ranks have ended, `warmup` of them before the second barrier."""
    steps = min((len(rank.seconds) for rank in ranks), default=0)
    correct = [rank.correct for rank in ranks if rank.correct is not None]
    counts_right = bool(ranks) and len(correct) == len(ranks)
    return Batches(
        warmup=min(steps, warmup),
        measured=max(0, steps - warmup),
        seconds=tuple(seconds(ranks, warmup, steps)),
        items=tuple(sum(rank.items[k] for rank in ranks) for k in range(steps)),
        loss=tuple(_loss(ranks, k) for k in range(steps)),
        tower_items=towers(ranks, "tower_items", steps),
        tower_positions=towers(ranks, "tower_positions", steps),
        loss_items=tuple(sum(rank.loss_items[k] for rank in ranks) for k in range(steps)) if counts_right else None,
        correct=tuple(sum(counts[k] for counts in correct) for k in range(steps)) if counts_right else None,
    )


def seconds(ranks: Sequence[Rank], warmup: int, steps: int) -> list[float]:
    """Seconds of the batches, whose ranks all have as many."""
    return [*_ends(ranks, 0, min(steps, warmup)), *_ends(ranks, warmup, steps)]


def towers(ranks: Sequence[Rank], name: str, steps: int) -> tuple[tuple[int, ...], ...]:
    """A number of each tower of all ranks, in their order, for each batch; empty where a rank does not tell it."""
    of_ranks = [getattr(rank, name) for rank in ranks]
    return tuple(tuple(n for shares in of_ranks for n in shares[k]) for k in range(steps if all(of_ranks) else 0))


def _ends(ranks: Sequence[Rank], first: int, stop: int) -> list[float]:
    """Seconds of the batches from `first` on, whose start all ranks share."""
    since = [list(accumulate(rank.seconds[first:stop])) for rank in ranks]
    last = [max(ends[k] for ends in since) for k in range(max(0, stop - first))]
    return [end - start for start, end in zip([0.0, *last], last)]


def _loss(ranks: Sequence[Rank], k: int) -> float | None:
    """The mean of the ranks' losses, by what each is a mean over."""
    losses = [rank.loss[k] for rank in ranks]
    if any(loss is None for loss in losses):
        return None
    over = [(rank.loss_items or rank.items)[k] for rank in ranks]
    return math.fsum((loss or 0.0) * items for loss, items in zip(losses, over)) / sum(over)
