"""The update of one copy of the variables in plain numpy: optimizer, clipping and loss scale as their papers have them.

Nothing of the trainer's own update is used, so that a fault there shows. Gradients are dense.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np

from rnn_scaling.settings.learning_rate import LearningRate, constant
from rnn_scaling.settings.run_options import TrainingOptions

Arrays = Mapping[str, np.ndarray]
MOMENTUM = 0.9
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-7  # Adam's
FIRST_LOSS_SCALE = 2.0**15  # of float16; halved, and the update left out, where a gradient is not finite


class Rule:
    """What becomes of a complete gradient. loss_scale: what the loss is multiplied by before it is differentiated."""

    def __init__(
        self, training: TrainingOptions, scales_loss: bool = False, learning_rate: LearningRate | None = None
    ) -> None:
        """Args:
        training: optimizer and clipping.
        scales_loss: whether the loss is scaled (float16).
        learning_rate: of each update; None: always that of `training`.
        """
        self._learning_rate = learning_rate or constant(training.learning_rate)
        self._training, self._scales_loss = training, scales_loss
        self.loss_scale = FIRST_LOSS_SCALE if scales_loss else 1.0
        self._updates = 0
        self._slots: dict[str, tuple[np.ndarray, ...]] = {}

    def snapshot(self) -> Rule:
        """The rule as it is now; later updates of this one do not reach it."""
        return copy.copy(self)

    def reach(self) -> float:
        """How far a gradient of 1 moves a weight, in the long run."""
        return self._learning_rate.last / (1 - MOMENTUM if self._training.optimizer == "momentum" else 1)

    def change(self, gradient: Arrays) -> dict[str, np.ndarray]:
        """What one update adds to each variable; changes nothing."""
        return {name: change for name, (change, _) in self._updated(gradient).items()}

    def update(self, gradient: Arrays) -> dict[str, np.ndarray]:
        """What one update adds to each variable, which is then done; zeros where a scaled gradient is not finite."""
        if self._scales_loss and not all(np.isfinite(each).all() for each in gradient.values()):
            self.loss_scale = max(1.0, self.loss_scale / 2)
            return {name: np.zeros_like(each) for name, each in gradient.items()}
        updated = self._updated(gradient)
        self._slots = {name: slots for name, (_, slots) in updated.items()}
        self._updates += 1
        return {name: change for name, (change, _) in updated.items()}

    def _updated(self, gradient: Arrays) -> dict[str, tuple[np.ndarray, tuple[np.ndarray, ...]]]:
        scale = self._clip_scale(gradient)
        return {name: self._of_one(name, each * np.float32(scale)) for name, each in gradient.items()}

    def _clip_scale(self, gradient: Arrays) -> float:
        longest = self._training.max_gradient_norm
        if not longest:
            return 1.0
        norm = float(np.sqrt(sum(np.square(each, dtype=np.float64).sum() for each in gradient.values())))
        return longest / max(norm, longest)

    def _of_one(self, name: str, gradient: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """(change, slots after it) of one variable."""
        rate, zeros = self._learning_rate.at(self._updates), np.zeros_like(gradient)
        if self._training.optimizer == "sgd":
            return -np.float32(rate) * gradient, ()
        if self._training.optimizer == "momentum":
            (velocity,) = self._slots.get(name, (zeros,))
            velocity = np.float32(MOMENTUM) * velocity - np.float32(rate) * gradient
            return velocity, (velocity,)
        mean, square = self._slots.get(name, (zeros, zeros))
        mean = np.float32(BETA_1) * mean + np.float32(1 - BETA_1) * gradient
        square = np.float32(BETA_2) * square + np.float32(1 - BETA_2) * gradient * gradient
        count = self._updates + 1
        rate *= np.sqrt(1 - BETA_2**count) / (1 - BETA_1**count)
        return -np.float32(rate) * mean / (np.sqrt(square) + np.float32(EPSILON)), (mean, square)
