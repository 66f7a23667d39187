"""Serial training of a run's batches.

The batches of all towers are computed one after the other at the same weights, then one
update is applied.

`certifier` trains with `Serial`, and `trials` repeat its updates with one change.
"""

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.verification.gradients import (
    GradientPart,
    SerialGradients,
    Towers,
    sum_gradients,
)
from rnn_scaling.verification.rule import Arrays, Guarantee, SerialUpdateRule, norm

_MAX_INT8 = 127
# Share of the elements that round to another 8-bit number if float32 rounds otherwise.
_FLIPPED = 0.002


@dataclasses.dataclass
class Training:
    """One set of weights and the towers whose batches train it.

    Attributes:
      towers: The towers.
      weights: The variables.
      stale: The variables one update before.
      rule: The update rule.
      late: The gradient of the last batch, which the next update applies; None if
        gradients are applied at once.
      distance: Distance that each variable has moved: the sum of the norms of all
        updates.
      withheld: Distance by which each variable may lag because an 8-bit exchange kept
        back a part of the gradient.
    """

    towers: Sequence[int]
    weights: dict[str, np.ndarray]
    stale: dict[str, np.ndarray]
    rule: SerialUpdateRule
    late: dict[str, np.ndarray] | None
    distance: dict[str, float]
    withheld: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Step:
    """Each tower's part of one batch, and a copy of the rule before the update."""

    parts: dict[int, GradientPart]
    rule: SerialUpdateRule


class Serial:
    """The trainings that a run's replicas must equal.

    One training has all towers, or each tower of this process has its own.
    """

    def __init__(
        self,
        config: RunConfig,
        gradients: SerialGradients,
        weights: Arrays,
        towers: Sequence[int],
    ) -> None:
        self._gradients = gradients
        self._guarantee = Guarantee.from_config(config)
        self._exchange = Exchange(config)
        all_towers = range(gradients.num_towers)
        # Each tower's averages, such as the averages of a batch normalisation.
        self.moving: dict[int, Arrays] = dict.fromkeys(
            all_towers, gradients.first_moving
        )
        groups: list[Sequence[int]] = [all_towers]
        if not self._guarantee.shares_one_model:
            groups = [[tower] for tower in towers]
        scales_loss = config.model.compute_dtype == "float16"
        self.trainings = []
        for group in groups:
            rule = SerialUpdateRule(config.training, scales_loss, gradients.num_towers)
            late = None
            if self._guarantee.late:
                late = {name: np.zeros_like(value) for name, value in weights.items()}
            self.trainings.append(
                Training(
                    towers=group,
                    weights=dict(weights),
                    stale=dict(weights),
                    rule=rule,
                    late=late,
                    distance=dict.fromkeys(weights, 0.0),
                    withheld=dict.fromkeys(weights, 0.0),
                )
            )

    def training_number(self, tower: int) -> int:
        """Return the index of the training that has this tower's batches."""
        return next(
            number
            for number, training in enumerate(self.trainings)
            if tower in training.towers
        )

    def step(self, number: int, towers: Towers) -> list[Step]:
        """Train the batches of one step and return one entry per training."""
        return [self._step(training, number, towers) for training in self.trainings]

    def _step(self, training: Training, number: int, towers: Towers) -> Step:
        """Take one step of serial training, with all towers at the same weights."""
        rule = copy.copy(training.rule)
        replica = training.stale if self._guarantee.staged else training.weights
        weights = dict.fromkeys(training.towers, replica)
        parts = self.parts(number, towers, weights, rule.loss_scale, self.moving)
        self.moving |= {tower: part.moving for tower, part in parts.items()}
        gradient = self._exchange.sum(parts)
        applied_gradient = gradient
        if training.late is not None:
            applied_gradient = training.late
            training.late = gradient
        change = training.rule.update(applied_gradient, training.weights)
        training.stale = training.weights
        training.weights = {
            name: value + change[name] for name, value in training.weights.items()
        }
        for name, array in change.items():
            training.distance[name] += norm(array)
        if self._guarantee.withheld:
            self._allow_for_rounding(
                training, parts, training.rule.clipping_factor(applied_gradient)
            )
        return Step(parts, rule)

    def parts(
        self,
        number: int,
        towers: Towers,
        weights: Mapping[int, Arrays],
        loss_scale: float = 1.0,
        moving: Mapping[int, Arrays] | None = None,
    ) -> dict[int, GradientPart]:
        """Compute each tower's loss and its part of the gradient of the mean loss.

        Args:
          number: The step.
          towers: The batches of all towers.
          weights: The variables of each tower that computes.
          loss_scale: Factor of the loss; gradients are divided by it.
          moving: The averages of each tower; None for the first averages.
        """
        items = sum(towers.loss_items[tower] for tower in weights)
        parts = {}
        for tower, replica in weights.items():
            draw = number * self._gradients.num_towers + tower
            averages = moving[tower] if moving else None
            part = self._gradients.part(
                replica, towers.batches[tower], loss_scale / items, draw, averages
            )
            if loss_scale != 1.0:
                part = _divide_by_loss_scale(part, np.float32(loss_scale))
            parts[tower] = part
        return parts

    def _allow_for_rounding(
        self, training: Training, parts: Mapping[int, GradientPart], factor: float
    ) -> None:
        """Allow for elements that round to another 8-bit number than in the run.

        They differ until the next step.

        Args:
          training: The training whose allowance grows.
          parts: The gradients of all towers.
          factor: The factor by which clipping multiplied the gradient.
        """
        step = training.rule.reach() * factor * self._guarantee.withheld
        for name, weights in training.weights.items():
            largest = 0.0
            for part in parts.values():
                largest += float(np.abs(part.gradient[name]).max(initial=0.0))
            num_flipped = max(1.0, _FLIPPED * weights.size)
            withheld = 2.0 * step * largest * math.sqrt(num_flipped)
            training.withheld[name] = max(training.withheld[name], withheld)


def _divide_by_loss_scale(part: GradientPart, divisor: np.float32) -> GradientPart:
    """Return a part with all gradients divided by the loss scale."""

    def divide(gradient: Arrays) -> Arrays:
        return {name: array / divisor for name, array in gradient.items()}

    micro_gradients = [divide(gradient) for gradient in part.micro_gradients]
    return dataclasses.replace(
        part, gradient=divide(part.gradient), micro_gradients=micro_gradients
    )


class Exchange:
    """Adds the towers' gradients as --compress_gradients does: exactly, or in 8 bits.

    A dense gradient has one scale; each row that an embedding looked up has its own. A
    tower adds the rounding error of a dense gradient to its next one (Seide et al.,
    "1-bit stochastic gradient descent", 2014).
    """

    def __init__(
        self, config: RunConfig, keeps_errors: bool = True, factor: float = 1.0
    ) -> None:
        """Start an exchange. Other values of `keeps_errors` and `factor` are faults.

        Args:
          config: The options of the run.
          keeps_errors: Whether rounding errors are added to the next gradient.
          factor: Multiplies the numbers that arrive.
        """
        self._quantises = config.update.compress_gradients == "int8"
        self._gathers = config.update.sparse_gradients != "densify"
        self._keeps_errors = keeps_errors
        self._factor = factor
        # Rounding errors by tower and variable.
        self._errors: dict[tuple[int, str], np.ndarray] = {}

    def sum(self, parts: Mapping[int, GradientPart]) -> dict[str, np.ndarray]:
        """Return the gradient that is applied. Call it once per step."""
        return sum_gradients(
            [self._receive(tower, part) for tower, part in parts.items()]
        )

    def _receive(self, tower: int, part: GradientPart) -> Arrays:
        """Return a tower's gradient as the others receive it after compression."""
        if not self._quantises:
            return part.gradient
        received = {}
        for name, array in part.gradient.items():
            if self._gathers and name in part.rows:
                ids, rows = part.rows[name]
                received[name] = np.zeros(array.shape, np.float32)
                np.add.at(received[name], ids, self._quantise(rows))
                continue
            gradient = array + self._errors.get((tower, name), np.float32(0.0))
            quantised = self._quantise(gradient.reshape(1, -1))
            received[name] = quantised.reshape(gradient.shape)
            if self._keeps_errors:
                self._errors[tower, name] = gradient - received[name]
        return received

    def _quantise(self, rows: np.ndarray) -> np.ndarray:
        """Round rows [R, D] to multiples of 1/127 of each row's largest element."""
        largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
        scales = largest / np.float32(_MAX_INT8)
        quotients = np.zeros_like(rows)
        np.divide(rows, scales, out=quotients, where=scales > 0)
        return np.round(quotients) * (scales * np.float32(self._factor))
