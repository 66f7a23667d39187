"""Whether a training left its optimum behind: a loss of many times what it began with, or none that is finite."""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings.naming import TRAINER

MANIFOLD = 10  # times the first loss, from which on it is said
REMEDY = "a speed is measured all the same, but not of a training that works; try a lower --learning_rate"


def growth(losses: Sequence[float | None]) -> float | None:
    """The last loss over the first one where that is MANIFOLD or more; None where it is not, or is not known."""
    known = [loss for loss in losses if loss is not None]
    if len(known) < 2 or known[0] <= 0 or known[-1] < MANIFOLD * known[0]:
        return None
    return known[-1] / known[0]


def is_lost(run: RunRecord) -> bool:
    """Whether a run's training diverged. Ours tells a loss of every batch: where there is none it was not finite."""
    losses = run.batches.loss
    is_ours = TRAINER not in run.config
    return bool(growth(losses) or end_of_loss(losses) or (is_ours and losses and losses[-1] is None))


def end_of_loss(losses: Sequence[float | None]) -> int | None:
    """The batch from which on no finite loss is told, where each one before had one, two at least; None elsewhere.

    A trainer that tells its loss now and then has gaps from the start, and one that never does has none to lose.
    """
    end = next((k for k, loss in enumerate(losses) if loss is None), 0)
    return end if end > 1 and all(loss is None for loss in losses[end:]) else None
