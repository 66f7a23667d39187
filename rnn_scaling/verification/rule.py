"""The update of one copy of the variables in plain numpy: optimizer, clipping and loss scale as their papers have them.

Nothing of the trainer's own update is used, so that a fault there shows. Gradients are dense.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping

import numpy as np

from rnn_scaling.settings.run_options import TrainingOptions

Arrays = Mapping[str, np.ndarray]
FIRST_LOSS_SCALE = 2.0**15  # of float16; halved, and the update left out, where a gradient is not finite


@dataclasses.dataclass(frozen=True)
class Constants:
    """What an optimizer is made of; others than these are faults that an update is compared with.

    Attributes:
      momentum: of momentum: v = momentum v - rate g; w += v.
      nesterov: w += momentum v - rate g instead (Sutskever et al., 2013).
      beta_1, beta_2, epsilon: Adam's (Kingma and Ba, arXiv:1412.6980, the form that ends section 2).
      corrects: divides Adam's averages, of gradients and of squares, by 1 - beta^count.
      offset: added to the count of updates that the correction and the learning rate see.
      ramp: added to the number of updates over which the learning rate rises.
      rate: multiplies the learning rate.
      bound: multiplies the norm that gradients are clipped to.
      clips: "global": by the norm of all variables together; "variable": by each one's own; "nothing": not at all.
    """

    momentum: float = 0.9
    nesterov: bool = False
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    corrects: tuple[bool, bool] = (True, True)
    offset: int = 0
    ramp: int = 0
    rate: float = 1.0
    bound: float = 1.0
    clips: str = "global"


RIGHT = Constants()


class UpdateRule:
    """What becomes of a complete gradient. loss_scale: what the loss is multiplied by before it is differentiated."""

    def __init__(
        self, training: TrainingOptions, scales_loss: bool = False, num_towers: int = 1, constants: Constants = RIGHT
    ) -> None:
        self._last_rate = training.learning_rate * (num_towers if training.lr_scaling == "linear" else 1)
        self._constants = constants
        self._training, self._scales_loss = training, scales_loss
        self.loss_scale = FIRST_LOSS_SCALE if scales_loss else 1.0
        self._updates = 0
        self.has_clipped = False  # whether any gradient of an update was longer than it may be
        self._slots: dict[str, tuple[np.ndarray, ...]] = {}

    def snapshot(self) -> UpdateRule:
        """The rule as it is now; later updates of this one do not reach it."""
        return copy.copy(self)

    def reach(self) -> float:
        """How far a gradient of 1 moves a weight, in the long run."""
        return self._last_rate / (1 - self._constants.momentum if self._training.optimizer == "momentum" else 1)

    def shrink(self, gradient: Arrays) -> float:
        """What clipping multiplies this gradient by."""
        longest = self._training.max_gradient_norm
        return longest / max(length(gradient), longest) if longest else 1.0

    def _rate(self) -> float:
        """Of this update: an even ramp of --lr_warmup_batches updates, the first at the unscaled rate.

        Source: Goyal et al., arXiv:1706.02677, section 2.2.
        """
        first, ramp = self._training.learning_rate, self._training.lr_warmup_batches + self._constants.ramp
        share = min(1.0, (self._updates + self._constants.offset) / ramp) if ramp > 0 else 1.0
        return self._constants.rate * (first + (self._last_rate - first) * share)

    def change(self, gradient: Arrays) -> dict[str, np.ndarray]:
        """What one update adds to each variable; changes nothing."""
        return {name: change for name, (change, _) in self._updated(gradient).items()}

    def update(self, gradient: Arrays) -> dict[str, np.ndarray]:
        """What one update adds to each variable, which is then done; zeros where a scaled gradient is not finite."""
        if self._scales_loss and not all(np.isfinite(array).all() for array in gradient.values()):
            self.loss_scale = max(1.0, self.loss_scale / 2)
            return {name: np.zeros_like(array) for name, array in gradient.items()}
        longest = self._training.max_gradient_norm
        self.has_clipped |= bool(longest) and length(gradient) > longest
        updated = self._updated(gradient)
        self._slots = {name: slots for name, (_, slots) in updated.items()}
        self._updates += 1
        return {name: change for name, (change, _) in updated.items()}

    def _updated(self, gradient: Arrays) -> dict[str, tuple[np.ndarray, tuple[np.ndarray, ...]]]:
        longest, clips = self._training.max_gradient_norm * self._constants.bound, self._constants.clips
        if longest and clips == "global":
            gradient = clipped(gradient, longest)
        elif longest and clips == "variable":
            gradient = {name: clipped({name: array}, longest)[name] for name, array in gradient.items()}
        return {name: self._of_one(name, array) for name, array in gradient.items()}

    def _of_one(self, name: str, gradient: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """(change, slots after it) of one variable."""
        rate, zeros, constants = self._rate(), np.zeros_like(gradient), self._constants
        if self._training.optimizer == "sgd":
            return -np.float32(rate) * gradient, ()
        if self._training.optimizer == "momentum":
            (velocity,) = self._slots.get(name, (zeros,))
            momentum = np.float32(constants.momentum)
            velocity = momentum * velocity - np.float32(rate) * gradient
            return (momentum * velocity - np.float32(rate) * gradient if constants.nesterov else velocity), (velocity,)
        mean, square = self._slots.get(name, (zeros, zeros))
        beta_1, beta_2 = constants.beta_1, constants.beta_2
        mean = np.float32(beta_1) * mean + np.float32(1 - beta_1) * gradient
        square = np.float32(beta_2) * square + np.float32(1 - beta_2) * gradient * gradient
        count = max(1, self._updates + 1 + constants.offset)
        corrects_mean, corrects_square = constants.corrects
        rate *= np.sqrt(1 - beta_2**count) if corrects_square else 1.0
        rate /= 1 - beta_1**count if corrects_mean else 1.0
        return -np.float32(rate) * mean / (np.sqrt(square) + np.float32(constants.epsilon)), (mean, square)


def clipped(gradient: Arrays, longest: float) -> dict[str, np.ndarray]:
    """The gradient, shortened to this Euclidean norm of all its variables together if it is longer."""
    shorter = np.float32(longest / max(length(gradient), longest))
    return {name: array * shorter for name, array in gradient.items()}


def length(gradient: Arrays) -> float:
    """The Euclidean norm of all variables together."""
    return float(np.sqrt(sum(np.square(array, dtype=np.float64).sum() for array in gradient.values())))
