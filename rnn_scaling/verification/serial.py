"""Serial training of a run's batches: the towers' one after the other at the same weights, then one update."""

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
    summed,
)
from rnn_scaling.verification.rule import Arrays, UpdateRule, guarantee_of

LARGEST = 127  # of a number that travels in 8 bits
FLIPPED = 0.002  # of the elements that travel in 8 bits: those that another rounding takes to the next number


@dataclasses.dataclass
class Training:
    """One set of weights and the towers whose batches train it."""

    towers: Sequence[int]
    weights: dict[str, np.ndarray]
    stale: dict[str, np.ndarray]
    rule: UpdateRule
    # The gradient of the last batch, of training that applies it with the next; None: nothing is held back.
    late: dict[str, np.ndarray] | None
    way: dict[
        str, float
    ]  # how far each variable has gone, the Euclidean norms of all updates added
    lost: dict[
        str, float
    ]  # how far each may lag behind because an exchange in fewer bits held back a part


@dataclasses.dataclass(frozen=True)
class Step:
    """What a training did with one batch: each tower's part, and the rule as it was before the update."""

    parts: dict[int, GradientPart]
    rule: UpdateRule


class Serial:
    """The trainings that a run's replicas must equal: one of all towers, or one for each tower of this process."""

    def __init__(
        self,
        config: RunConfig,
        gradients: SerialGradients,
        weights: Arrays,
        towers: Sequence[int],
    ) -> None:
        self._gradients, self._guarantee = gradients, guarantee_of(config)
        self._exchange = Exchange(config)
        # Each tower's own averages, such as a batch normalisation's.
        self.moving: dict[int, Arrays] = dict.fromkeys(
            range(gradients.num_towers), gradients.first_moving
        )
        scales_loss = config.model.compute_dtype == "float16"
        is_one = self._guarantee.shares_one_model
        zeros = {name: np.zeros_like(value) for name, value in weights.items()}
        self.trainings = [
            Training(
                towers=group,
                weights=dict(weights),
                stale=dict(weights),
                rule=UpdateRule(config.training, scales_loss, gradients.num_towers),
                late=dict(zeros) if self._guarantee.late else None,
                way=dict.fromkeys(weights, 0.0),
                lost=dict.fromkeys(weights, 0.0),
            )
            for group in (
                [range(gradients.num_towers)]
                if is_one
                else [[tower] for tower in towers]
            )
        ]

    def of_tower(self, tower: int) -> int:
        """Number of the training that has this tower's batches."""
        return next(
            number
            for number, training in enumerate(self.trainings)
            if tower in training.towers
        )

    def step(self, number: int, towers: Towers) -> list[Step]:
        """Trains the batches of step `number`; what each training did."""
        return [self._step(training, number, towers) for training in self.trainings]

    def _step(self, training: Training, number: int, towers: Towers) -> Step:
        rule = copy.copy(training.rule)  # as it is now; later updates do not reach it
        at = training.stale if self._guarantee.staged else training.weights
        weights = dict.fromkeys(training.towers, at)
        parts = self.parts(number, towers, weights, rule.loss_scale, self.moving)
        self.moving |= {tower: part.moving for tower, part in parts.items()}
        applied = gradient = self._exchange.sum(parts)
        if training.late is not None:
            applied = training.late
            training.late = gradient
        change = training.rule.update(applied, training.weights)
        training.stale = training.weights
        training.weights = {
            name: value + change[name] for name, value in training.weights.items()
        }
        for name, array in change.items():
            training.way[name] += norm(array)
        if self._guarantee.lost:
            self._lose(training, parts, training.rule.shrink(applied))
        return Step(parts, rule)

    def parts(
        self,
        number: int,
        towers: Towers,
        weights: Mapping[int, Arrays],
        loss_scale: float = 1.0,
        moving: Mapping[int, Arrays] | None = None,
    ) -> dict[int, GradientPart]:
        """By tower: its loss, and its part of the gradient of the mean loss over all the towers in `weights`.

        Each computes at its `weights`, with its averages in `moving`; None: the next averages are not needed.
        """
        items = sum(towers.loss_items[tower] for tower in weights)
        parts = {}
        for tower, at in weights.items():
            draw = number * self._gradients.num_towers + tower
            averages = moving[tower] if moving else None
            part = self._gradients.part(
                at, towers.batches[tower], loss_scale / items, draw, averages
            )
            if loss_scale != 1.0:
                scaled = {
                    name: array / np.float32(loss_scale)
                    for name, array in part.gradient.items()
                }
                part = dataclasses.replace(part, gradient=scaled)
            parts[tower] = part
        return parts

    def _lose(
        self, training: Training, parts: Mapping[int, GradientPart], shrink: float
    ) -> None:
        """Where the rounding of float32 turns that of 8-bit numbers, a few elements differ, until the next step."""
        step = training.rule.reach() * shrink * self._guarantee.lost
        for name, weights in training.weights.items():
            largest = sum(
                float(np.abs(part.gradient[name]).max(initial=0.0))
                for part in parts.values()
            )
            held_back = step * largest * math.sqrt(max(1.0, FLIPPED * weights.size))
            training.lost[name] = max(training.lost[name], 2.0 * held_back)


class Exchange:
    """The sum of the towers' gradients as the run's --compress_gradients has it: exact, or of 8-bit numbers.

    A dense gradient has one scale, of an embedding's touched rows each has its own. What a tower loses of a dense one
    comes with the next (Seide et al., "1-bit stochastic gradient descent", 2014).
    """

    def __init__(
        self, config: RunConfig, keeps: bool = True, factor: float = 1.0
    ) -> None:
        """keeps: whether what is lost comes later. factor: of what arrives. Other values than these are faults."""
        self._quantises = config.update.compress_gradients == "int8"
        self._gathers = config.update.sparse_gradients != "densify"
        self._keeps = keeps
        self._factor = factor
        self._lost: dict[tuple[int, str], np.ndarray] = {}  # by tower and variable

    def sum(self, parts: Mapping[int, GradientPart]) -> dict[str, np.ndarray]:
        """The gradient that is applied, of these parts by tower; to be asked once a step."""
        return summed([self._arrived(tower, part) for tower, part in parts.items()])

    def _arrived(self, tower: int, part: GradientPart) -> Arrays:
        if not self._quantises:
            return part.gradient
        arrived = {}
        for name, array in part.gradient.items():
            if self._gathers and name in part.rows:
                ids, rows = part.rows[name]
                arrived[name] = np.zeros(array.shape, np.float32)
                np.add.at(arrived[name], ids, self._sent(rows))
                continue
            whole = array + self._lost.get((tower, name), np.float32(0.0))
            arrived[name] = self._sent(whole.reshape(1, -1)).reshape(whole.shape)
            if self._keeps:
                self._lost[tower, name] = whole - arrived[name]
        return arrived

    def _sent(self, rows: np.ndarray) -> np.ndarray:
        """[R, D] as they arrive: whole multiples of 1/127 of the row's largest element."""
        scales = np.abs(rows).max(axis=1, keepdims=True, initial=0.0) / np.float32(
            LARGEST
        )
        whole = np.round(
            np.divide(rows, scales, out=np.zeros_like(rows), where=scales > 0)
        )
        return whole * (scales * np.float32(self._factor))


def norm(values: np.ndarray) -> float:
    """Euclidean."""
    return float(np.sqrt(np.square(values, dtype=np.float64).sum()))
