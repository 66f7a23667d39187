"""What an update mode promises, and the update of one copy of the variables in NumPy. No TensorFlow.

Optimizer, clipping and loss scale are as their papers have them. Nothing of the trainer's own update is used, so that
a fault there shows. Gradients are dense.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from rnn_scaling.config import learning_rate, registry
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.run_options import TrainingOptions

Arrays = Mapping[str, np.ndarray]
Updated = tuple[
    np.ndarray, tuple[np.ndarray, ...]
]  # the change of a variable, and its slots after it
# Of a variable's way: thousands of roundings of float32 (2**-24). Both sides compute a tower's gradient with the same
# kernels from the same weights, so what is left is the order of sums over towers and one rounding an update.
FLOAT32_SHARE = 2.0**-10
# One rounding of a number: what a gradient may differ by where a weight's last bit turns a rounding of the network.
UNITS = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
# Adam divides an element by its own size: where gradients are nearly zero, rounding decides. It is a few elements.
ADAM_SHARE = 2.0**-5
FLOAT32_LOSS = 1e-5
# An exchange in fewer bits rounds each tower's gradient and, adding in them, each sum; int8: by a step of 127.
COMPRESSED = {"none": 0.0, "bfloat16": 2.0**-8, "float16": 2.0**-11, "int8": 1 / 127}
FIRST_LOSS_SCALE = (
    2.0**15
)  # of float16; halved, and the update left out, where a gradient is not finite


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """What serial training the towers' must equal."""

    shares_one_model: bool  # one training on the towers' batches together; else one for each tower's own
    late: bool  # each gradient is applied one batch after its own
    staged: bool  # each gradient is computed at the weights of one batch before
    share: float  # of a variable's way by which it may differ, as Euclidean norms
    # Of a tower's gradient, what its exchange in fewer bits holds back for later batches, per element of its largest
    # one; 0: nothing.
    lost: float
    loss: float  # by which share of itself a loss may differ

    @property
    def is_stale(self) -> bool:
        return self.late or self.staged


def guarantee_of(config: RunConfig) -> Guarantee:
    update = config.update
    dtype = config.model.compute_dtype
    share = max(
        FLOAT32_SHARE,
        UNITS[dtype],
        ADAM_SHARE if config.training.optimizer == "adam" else 0.0,
    )
    lost = COMPRESSED[update.compress_gradients]
    if update.compress_gradients in ("bfloat16", "float16"):
        share = max(share, lost * config.num_towers)
    return Guarantee(
        shares_one_model=registry.mode_of(update.variable_update).trains_one_model,
        late=update.variable_consistency == "relaxed",
        staged=update.staged_vars,
        share=share,
        lost=lost if update.compress_gradients == "int8" else 0.0,
        loss=max(FLOAT32_LOSS, UNITS[dtype], 10 * lost),
    )


@dataclasses.dataclass(frozen=True)
class Constants:
    """What an optimizer is made of; others than these are faults that an update is compared with."""

    momentum: float = 0.9  # v = momentum v - rate g; w += v
    nesterov: bool = False  # w += momentum v - rate g instead (Sutskever et al., 2013)
    beta_1: float = 0.9  # Adam's, as those below (Kingma and Ba, arXiv:1412.6980, the form that ends section 2)
    beta_2: float = 0.999
    epsilon: float = 1e-7
    # Divides Adam's averages, of gradients and of squares, by 1 - beta^count.
    corrects: tuple[bool, bool] = (True, True)
    offset: int = (
        0  # added to the count of updates that the correction and the learning rate see
    )
    ramp: int = 0  # added to the number of updates over which the learning rate rises
    rate: float = 1.0  # multiplies the learning rate
    # RMSProp's: of the mean square, which starts at 1, and added to it (Tieleman and Hinton, 2012, lecture 6e).
    rmsprop_decay: float = 0.9
    rmsprop_epsilon: float = 1.0
    weight_decay: float = 1.0  # multiplies --weight_decay
    decays_all: bool = False  # weight decay reaches vectors and scalars, too
    # Which optimizers take weight decay off the weights; others add it to the gradient after clipping.
    decouples: tuple[str, ...] = ("adam",)
    is_scheduled: bool = True  # whether the learning rate follows --lr_schedule
    bound: float = 1.0  # multiplies the norm that gradients are clipped to
    # "global": by the norm of all variables together; "variable": by each one's own; "nothing": not at all.
    clips: str = "global"


RIGHT = Constants()


class UpdateRule:
    """What becomes of a complete gradient. loss_scale: what the loss is multiplied by before it is differentiated."""

    def __init__(
        self,
        training: TrainingOptions,
        scales_loss: bool = False,
        num_towers: int = 1,
        constants: Constants = RIGHT,
    ) -> None:
        larger = (
            num_towers * training.gradient_accumulation_steps
            if training.lr_scaling == "linear"
            else 1
        )
        self._larger = larger
        self._last_rate = training.learning_rate * larger
        self._constants = constants
        self._training = training
        self._scales_loss = scales_loss
        self._is_dynamic = training.loss_scale == "dynamic"
        first_scale = (
            FIRST_LOSS_SCALE if self._is_dynamic else float(training.loss_scale)
        )
        self.loss_scale = first_scale if scales_loss else 1.0
        self._updates = 0
        self.has_clipped = (
            False  # whether any gradient of an update was longer than it may be
        )
        self._slots: dict[str, tuple[np.ndarray, ...]] = {}

    def reach(self) -> float:
        """How far a gradient of 1 moves a weight, in the long run."""
        has_momentum = self._training.optimizer in ("momentum", "rmsprop")
        return self._last_rate / (1 - self._constants.momentum if has_momentum else 1)

    def shrink(self, gradient: Arrays) -> float:
        """What clipping multiplies this gradient by."""
        longest = self._training.max_gradient_norm
        return longest / max(length(gradient), longest) if longest else 1.0

    def _rate(self) -> float:
        """Of this update: the schedule's, times an even ramp of --lr_warmup_batches updates from 1 to the scaling.

        Sources: Goyal et al., arXiv:1706.02677, section 2.2; Vaswani et al., arXiv:1706.03762, equation 3.
        """
        training = self._training
        constants = self._constants
        number = self._updates + constants.offset
        ramp = training.lr_warmup_batches + constants.ramp
        schedule = training.lr_schedule if constants.is_scheduled else "constant"
        rate = constants.rate * training.learning_rate
        if schedule == "inverse_sqrt":
            step = max(1, number + 1)
            return (
                rate
                * self._larger
                * max(1, ramp) ** 0.5
                * min(step**-0.5, step * max(1, ramp) ** -1.5)
            )
        for start, following in (
            learning_rate.steps_of(training) if schedule == "piecewise" else ()
        ):
            rate = constants.rate * following if number >= start else rate
        return rate * (
            1 + (self._larger - 1) * (min(1.0, number / ramp) if ramp > 0 else 1.0)
        )

    def change(self, gradient: Arrays, weights: Arrays) -> dict[str, np.ndarray]:
        """What one update adds to each variable of these weights; changes nothing."""
        return {
            name: change
            for name, (change, _) in self._updated(gradient, weights).items()
        }

    def update(self, gradient: Arrays, weights: Arrays) -> dict[str, np.ndarray]:
        """What one update adds to each variable, which is then done; zeros where a scaled gradient is not finite."""
        if self._scales_loss and not all(
            np.isfinite(array).all() for array in gradient.values()
        ):
            self.loss_scale = (
                max(1.0, self.loss_scale / 2) if self._is_dynamic else self.loss_scale
            )
            return {name: np.zeros_like(array) for name, array in gradient.items()}
        longest = self._training.max_gradient_norm
        self.has_clipped |= bool(longest) and length(gradient) > longest
        updated = self._updated(gradient, weights)
        self._slots = {name: slots for name, (_, slots) in updated.items()}
        self._updates += 1
        return {name: change for name, (change, _) in updated.items()}

    def _updated(self, gradient: Arrays, weights: Arrays) -> dict[str, Updated]:
        longest = self._training.max_gradient_norm * self._constants.bound
        clips = self._constants.clips
        if longest and clips == "global":
            gradient = clipped(gradient, longest)
        elif longest and clips == "variable":
            gradient = {
                name: clipped({name: array}, longest)[name]
                for name, array in gradient.items()
            }
        return {
            name: self._decayed(name, array, weights[name])
            for name, array in gradient.items()
        }

    def _decayed(self, name: str, gradient: np.ndarray, weight: np.ndarray) -> Updated:
        """What becomes of one variable, with weight decay."""
        constants = self._constants
        share = self._training.weight_decay * constants.weight_decay
        if not share or (weight.ndim < 2 and not constants.decays_all):
            return self._of_one(name, gradient)
        if self._training.optimizer not in constants.decouples:
            return self._of_one(name, gradient + np.float32(share) * weight)
        change, slots = self._of_one(name, gradient)
        return change - np.float32(self._rate() * share) * weight, slots

    def _of_one(self, name: str, gradient: np.ndarray) -> Updated:
        """What becomes of one variable without it."""
        rate = self._rate()
        zeros = np.zeros_like(gradient)
        constants = self._constants
        if self._training.optimizer == "sgd":
            return -np.float32(rate) * gradient, ()
        if self._training.optimizer == "momentum":
            (velocity,) = self._slots.get(name, (zeros,))
            momentum = np.float32(constants.momentum)
            velocity = momentum * velocity - np.float32(rate) * gradient
            return (
                momentum * velocity - np.float32(rate) * gradient
                if constants.nesterov
                else velocity
            ), (velocity,)
        if self._training.optimizer == "rmsprop":
            square, velocity = self._slots.get(name, (np.ones_like(gradient), zeros))
            square = square + np.float32(1 - constants.rmsprop_decay) * (
                gradient * gradient - square
            )
            step = (
                np.float32(rate)
                * gradient
                / np.sqrt(square + np.float32(constants.rmsprop_epsilon))
            )
            velocity = np.float32(constants.momentum) * velocity - step
            return velocity, (square, velocity)
        mean, square = self._slots.get(name, (zeros, zeros))
        beta_1 = constants.beta_1
        beta_2 = constants.beta_2
        mean = np.float32(beta_1) * mean + np.float32(1 - beta_1) * gradient
        square = (
            np.float32(beta_2) * square + np.float32(1 - beta_2) * gradient * gradient
        )
        count = max(1, self._updates + 1 + constants.offset)
        corrects_mean, corrects_square = constants.corrects
        rate *= np.sqrt(1 - beta_2**count) if corrects_square else 1.0
        rate /= 1 - beta_1**count if corrects_mean else 1.0
        return -np.float32(rate) * mean / (
            np.sqrt(square) + np.float32(constants.epsilon)
        ), (mean, square)


def clipped(gradient: Arrays, longest: float) -> dict[str, np.ndarray]:
    """The gradient, shortened to this Euclidean norm of all its variables together if it is longer."""
    shorter = np.float32(longest / max(length(gradient), longest))
    return {name: array * shorter for name, array in gradient.items()}


def length(gradient: Arrays) -> float:
    """The Euclidean norm of all variables together."""
    return float(
        np.sqrt(
            sum(np.square(array, dtype=np.float64).sum() for array in gradient.values())
        )
    )
