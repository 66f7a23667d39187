"""Explain the wrong loss of a tower by an input that it may have used instead.

`certifier` asks for an explanation if a loss differs from serial training.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.verification.gradients import SerialGradients, Towers
from rnn_scaling.verification.replicas import TrainedBatch
from rnn_scaling.verification.rule import Guarantee


class _WrongInput(NamedTuple):
    """An input that a tower may have used instead of its own.

    Attributes:
      fault: The statement of a certificate if this input explains the loss.
      dropout_tower: The tower whose random stream is drawn from.
      towers: The batches of all towers of the step of the input.
      batch_tower: The tower whose batch is computed.
    """

    fault: Statement
    dropout_tower: int
    towers: Towers
    batch_tower: int


class TowerLosses:
    """Computes and explains the losses of single towers.

    The certifier adds earlier batches to `history` while the run trains.
    """

    def __init__(
        self,
        config: RunConfig,
        gradients: SerialGradients,
        guarantee: Guarantee,
        history: Sequence[TrainedBatch],
    ) -> None:
        self._config = config
        self._gradients = gradients
        self._guarantee = guarantee
        self._history = history

    def compute_loss(
        self,
        batch: TrainedBatch,
        tower: int,
        weights_tower: int | None = None,
        dropout_tower: int | None = None,
    ) -> float:
        """Return the summed loss of a tower's batch.

        Args:
          batch: The batches of all towers.
          tower: The tower whose batch is used.
          weights_tower: The tower whose weights are used; None for `tower`.
          dropout_tower: The tower whose dropout is used; None for `tower`.
        """
        if weights_tower is None:
            weights_tower = tower
        if dropout_tower is None:
            dropout_tower = tower
        replicas = (
            batch.stale_replicas if self._guarantee.staged else batch.replicas_before
        )
        weights = next(
            replica.weights
            for replica in replicas
            if replica.tower in (None, weights_tower)
        )
        number = batch.number * self._gradients.num_towers + dropout_tower
        batches = batch.towers.batches[tower]
        return self._gradients.part(weights, batches, 1.0, number).loss_sum

    def is_near(self, got: float, expected: float) -> bool:
        """Return whether a summed loss is within the tolerance of the expected one."""
        return abs(got - expected) <= self._guarantee.loss * abs(expected)

    def explain(
        self, batch: TrainedBatch, tower: int, got: float, items: float, serial: float
    ) -> Statement:
        """Return the fault of a tower's items, batch or dropout that its loss shows.

        Args:
          batch: The batch.
          tower: The tower whose loss is wrong.
          got: The summed loss of the tower.
          items: The number of items that the tower counted.
          serial: The summed loss of serial training.
        """
        for wrong in self._propose_wrong_inputs(batch, tower):
            if items != wrong.towers.loss_items[wrong.batch_tower]:
                continue
            wrong_batch = dataclasses.replace(batch, towers=wrong.towers)
            loss = self.compute_loss(
                wrong_batch, wrong.batch_tower, tower, wrong.dropout_tower
            )
            if self.is_near(got, loss):
                return wrong.fault
        expected = batch.towers.loss_items[tower]
        if items != expected:
            values = {"tower": tower, "got": items, "expected": expected}
            return Statement("input-items-missing", "items left out", values)
        values = {"tower": tower, "got": got / items, "expected": serial / items}
        return Statement("loss-unequal", "unequal loss", values)

    def _propose_wrong_inputs(
        self, batch: TrainedBatch, tower: int
    ) -> Iterator[_WrongInput]:
        """Yield inputs that may explain a wrong loss, the likelier ones first."""
        towers = batch.towers
        num_towers = self._gradients.num_towers
        for neighbor in range(num_towers):
            values = {"tower": tower, "instead": neighbor}
            if neighbor != tower:
                fault = Statement("input-batch-of-tower", "another's batch", values)
                yield _WrongInput(fault, neighbor, towers, neighbor)
                fault = Statement("input-dropout-of-tower", "another's dropout", values)
                yield _WrongInput(fault, neighbor, towers, tower)
        if not batch.number:
            return
        if self._config.model.dropout:
            fault = Statement("input-dropout-repeats", "same dropout", {"tower": tower})
            # The random stream that the tower had at step 0.
            dropout_tower = tower - batch.number * num_towers
            yield _WrongInput(fault, dropout_tower, towers, tower)
        for past in [*self._history[:1], *self._history[-1:]]:
            values = {"tower": tower, "earlier": past.number}
            fault = Statement("input-batch-repeats", "same batch", values)
            yield _WrongInput(fault, tower, past.towers, tower)
