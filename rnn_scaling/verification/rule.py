"""The guarantee of an update mode, and the update of one replica in NumPy.

Optimizers, clipping and loss scale are written from their papers. The trainer's code is
not used, so a fault in it shows. Gradients are dense. Does not import TensorFlow.

`serial` and `asynchronous` apply `SerialUpdateRule`; `certifier` asks the `Guarantee`
what must be equal. A new optimizer of the trainer needs a rule here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from rnn_scaling.config import learning_rate, registry
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.run_options import TrainingOptions

Arrays = Mapping[str, np.ndarray]
# The change of a variable, and its slots after the update.
VariableUpdate = tuple[np.ndarray, tuple[np.ndarray, ...]]
# Share of a variable's distance moved: thousands of rounding errors of float32
# (2**-24). Both sides compute a tower's gradient with the same kernels from the same
# weights. Only the order of sums over towers and one rounding per update differ.
_FLOAT32_SHARE = 2.0**-10
# One rounding of a number. A gradient may differ by it if the last bit of a weight
# changes how the network rounds.
_UNITS = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
# Adam divides an element by its size, so rounding decides about the few elements that
# are nearly zero.
_ADAM_SHARE = 2.0**-5
_FLOAT32_LOSS = 1e-5
# Share by which an exchange in fewer bits rounds each tower's gradient and each sum.
# int8 rounds to a step of 1/127.
_COMPRESSED = {"none": 0.0, "bfloat16": 2.0**-8, "float16": 2.0**-11, "int8": 1 / 127}
# Optimizers that `SerialUpdateRule` supports; a test compares them with --optimizer.
OPTIMIZERS = ("sgd", "momentum", "rmsprop", "adam")
# With float16. If a gradient is not finite, the update is left out and the scale
# halved.
_FIRST_LOSS_SCALE = 2.0**15


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """The serial training that a run must equal, and how closely.

    Attributes:
      shares_one_model: Whether all towers train one model, not one model each.
      late: Whether each gradient is applied one batch late.
      staged: Whether each gradient is computed at the weights of the batch before.
      share: Share of a variable's distance moved by which it may differ, as norms.
      withheld: Share of the largest element of a tower's gradient that an 8-bit
        exchange keeps back for later batches, per element; 0 for other exchanges.
      loss: Relative difference that a loss may have.
    """

    shares_one_model: bool
    late: bool
    staged: bool
    share: float
    withheld: float
    loss: float

    @classmethod
    def from_config(cls, config: RunConfig) -> Guarantee:
        """Return the guarantee of a run's mode, dtype and compression."""
        update = config.update
        dtype = config.model.compute_dtype
        rounding = _COMPRESSED[update.compress_gradients]
        share = max(_FLOAT32_SHARE, _UNITS[dtype])
        if config.training.optimizer == "adam":
            share = max(share, _ADAM_SHARE)
        withheld = 0.0
        if update.compress_gradients == "int8":
            withheld = rounding
        else:
            share = max(share, rounding * config.num_towers)
        return cls(
            shares_one_model=registry.find_mode(
                update.variable_update
            ).trains_one_model,
            late=update.variable_consistency == "relaxed",
            staged=update.staged_vars,
            share=share,
            withheld=withheld,
            loss=max(_FLOAT32_LOSS, _UNITS[dtype], 10 * rounding),
        )

    @property
    def is_stale(self) -> bool:
        return self.late or self.staged


@dataclasses.dataclass(frozen=True)
class Constants:
    """The constants of an update rule. Other values than the defaults are faults.

    Attributes:
      momentum: v = momentum v - rate g; w += v.
      nesterov: Whether w += momentum v - rate g instead (Sutskever et al., 2013).
      beta_1: Adam's decay of the mean gradient (Kingma and Ba, arXiv:1412.6980, in
        the form at the end of section 2).
      beta_2: Adam's decay of the mean square.
      epsilon: Added to Adam's divisor.
      corrects: Whether Adam's averages, of gradients and of squares, are divided by
        1 - beta^count.
      first_count: Adam's count of updates in the first update.
      count_step: Added to Adam's count by each update.
      offset: Added to the count of updates that the correction and the learning rate
        use.
      ramp: Added to the number of updates over which the learning rate rises.
      resets: Numbers of the updates before which the slots are emptied; None for all.
      rate: Multiplies the learning rate.
      rmsprop_decay: Decay of RMSProp's mean square, which starts at 1 (Tieleman and
        Hinton, 2012, lecture 6e).
      rmsprop_epsilon: Added to RMSProp's mean square.
      weight_decay: Multiplies --weight_decay.
      decays_all: Whether weight decay includes vectors and scalars.
      decouples: Optimizers that subtract weight decay from the weights. The others add
        it to the gradient after clipping.
      is_scheduled: Whether the learning rate follows --lr_schedule.
      bound: Multiplies --max_gradient_norm.
      clips: Whether gradients are clipped by the norm of all variables together
        ("global"), by the norm of each variable ("variable"), or not ("nothing").
    """

    momentum: float = 0.9
    nesterov: bool = False
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    corrects: tuple[bool, bool] = (True, True)
    first_count: int = 1
    count_step: int = 1
    offset: int = 0
    ramp: int = 0
    resets: tuple[int, ...] | None = ()
    rate: float = 1.0
    rmsprop_decay: float = 0.9
    rmsprop_epsilon: float = 1.0
    weight_decay: float = 1.0
    decays_all: bool = False
    decouples: tuple[str, ...] = ("adam",)
    is_scheduled: bool = True
    bound: float = 1.0
    clips: str = "global"


RIGHT = Constants()


class SerialUpdateRule:
    """Computes the change of every variable from a complete gradient.

    A shallow copy (`copy.copy`) is an independent rule: `update` makes new
    arrays and dictionaries and changes none in place.

    Attributes:
      loss_scale: Factor of the loss before it is differentiated.
      has_clipped: Whether any gradient was longer than --max_gradient_norm.
    """

    def __init__(
        self,
        training: TrainingOptions,
        scales_loss: bool = False,
        num_towers: int = 1,
        constants: Constants = RIGHT,
    ) -> None:
        """Start a rule with empty slots.

        Args:
          training: The options of the optimizer.
          scales_loss: Whether --loss_scale applies, as with float16.
          num_towers: Towers that share a variable, for --lr_scaling=linear.
          constants: The constants of the optimizer.

        Raises:
          ValueError: If the optimizer is not in OPTIMIZERS.
        """
        if training.optimizer not in OPTIMIZERS:
            raise ValueError(
                f"--optimizer={training.optimizer} has no serial update to compare "
                f"with; use one of {', '.join(OPTIMIZERS)}"
            )
        self._training = training
        self._constants = constants
        self._scales_loss = scales_loss
        self._rate_factor = 1
        if training.lr_scaling == "linear":
            self._rate_factor = num_towers * training.gradient_accumulation_steps
        self.loss_scale = 1.0
        if scales_loss and training.loss_scale == "dynamic":
            self.loss_scale = _FIRST_LOSS_SCALE
        elif scales_loss:
            self.loss_scale = float(training.loss_scale)
        self.has_clipped = False
        self._num_updates = 0
        self._slots: dict[str, tuple[np.ndarray, ...]] = {}

    def reach(self) -> float:
        """Return how far a constant gradient of 1 moves a weight per update."""
        rate = self._training.learning_rate * self._rate_factor
        if self._training.optimizer in ("momentum", "rmsprop"):
            return rate / (1 - self._constants.momentum)
        return rate

    def clipping_factor(self, gradient: Arrays) -> float:
        """Return the factor by which clipping multiplies this gradient."""
        bound = self._training.max_gradient_norm
        return clipping_factor(gradient, bound) if bound else 1.0

    def update(self, gradient: Arrays, weights: Arrays) -> dict[str, np.ndarray]:
        """Do one update.

        Returns:
          The change of each variable; zeros if a scaled gradient is not finite.
        """
        if self._scales_loss and not _is_finite(gradient):
            if self._training.loss_scale == "dynamic":
                self.loss_scale = max(1.0, self.loss_scale / 2)
            return {name: np.zeros_like(array) for name, array in gradient.items()}
        bound = self._training.max_gradient_norm
        self.has_clipped |= bool(bound) and total_norm(gradient) > bound
        resets = self._constants.resets
        if resets is None or self._num_updates in resets:
            self._slots = {}
        changes = {}
        # Not in place, because copies of this rule share the old dictionary.
        slots = {}
        for name, array in self._clip(gradient).items():
            changes[name], slots[name] = self._update_with_decay(
                name, array, weights[name]
            )
        self._slots = slots
        self._num_updates += 1
        return changes

    def _clip(self, gradient: Arrays) -> Arrays:
        bound = self._training.max_gradient_norm * self._constants.bound
        if not bound or self._constants.clips == "nothing":
            return gradient
        if self._constants.clips == "global":
            return clip_gradient(gradient, bound)
        return {
            name: clip_gradient({name: array}, bound)[name]
            for name, array in gradient.items()
        }

    def _update_with_decay(
        self, name: str, gradient: np.ndarray, weight: np.ndarray
    ) -> VariableUpdate:
        """Return the update of one variable with weight decay."""
        constants = self._constants
        share = self._training.weight_decay * constants.weight_decay
        if not share or (weight.ndim < 2 and not constants.decays_all):
            return self._optimize(name, gradient)
        if self._training.optimizer not in constants.decouples:
            return self._optimize(name, gradient + np.float32(share) * weight)
        change, slots = self._optimize(name, gradient)
        return change - np.float32(self._learning_rate() * share) * weight, slots

    def _optimize(self, name: str, gradient: np.ndarray) -> VariableUpdate:
        """Return the update of one variable by the optimizer, without weight decay."""
        optimizer = self._training.optimizer
        if optimizer == "momentum":
            return self._momentum(name, gradient)
        if optimizer == "rmsprop":
            return self._rmsprop(name, gradient)
        if optimizer == "adam":
            return self._adam(name, gradient)
        return -np.float32(self._learning_rate()) * gradient, ()

    def _momentum(self, name: str, gradient: np.ndarray) -> VariableUpdate:
        momentum = np.float32(self._constants.momentum)
        (velocity,) = self._slots.get(name, (np.zeros_like(gradient),))
        step = np.float32(self._learning_rate()) * gradient
        velocity = momentum * velocity - step
        if self._constants.nesterov:
            return momentum * velocity - step, (velocity,)
        return velocity, (velocity,)

    def _rmsprop(self, name: str, gradient: np.ndarray) -> VariableUpdate:
        constants = self._constants
        zeros = np.zeros_like(gradient)
        square, velocity = self._slots.get(name, (np.ones_like(gradient), zeros))
        renewed = np.float32(1 - constants.rmsprop_decay)
        square = square + renewed * (gradient * gradient - square)
        divisor = np.sqrt(square + np.float32(constants.rmsprop_epsilon))
        step = np.float32(self._learning_rate()) * gradient / divisor
        velocity = np.float32(constants.momentum) * velocity - step
        return velocity, (square, velocity)

    def _adam(self, name: str, gradient: np.ndarray) -> VariableUpdate:
        """Return the change of a variable by Adam, and renew its two slots."""
        constants = self._constants
        beta_1 = constants.beta_1
        beta_2 = constants.beta_2
        zeros = np.zeros_like(gradient)
        mean, square = self._slots.get(name, (zeros, zeros))
        mean = np.float32(beta_1) * mean + np.float32(1 - beta_1) * gradient
        renewed = np.float32(1 - beta_2) * gradient * gradient
        square = np.float32(beta_2) * square + renewed
        num_counted = constants.first_count + self._num_updates * constants.count_step
        count = max(1, num_counted + constants.offset)
        corrects_mean, corrects_square = constants.corrects
        rate = self._learning_rate()
        if corrects_square:
            rate *= np.sqrt(1 - beta_2**count)
        if corrects_mean:
            rate /= 1 - beta_1**count
        divisor = np.sqrt(square) + np.float32(constants.epsilon)
        return -np.float32(rate) * mean / divisor, (mean, square)

    def _learning_rate(self) -> float:
        """Return the learning rate of this update.

        Sources: Goyal et al., arXiv:1706.02677, section 2.2 (linear ramp of
        --lr_warmup_batches updates); Vaswani et al., arXiv:1706.03762, equation 3
        (inverse_sqrt).
        """
        training = self._training
        constants = self._constants
        number = self._num_updates + constants.offset
        ramp = training.lr_warmup_batches + constants.ramp
        schedule = training.lr_schedule if constants.is_scheduled else "constant"
        rate = constants.rate * training.learning_rate
        if schedule == "inverse_sqrt":
            ramp = max(1, ramp)
            step = max(1, number + 1)
            decay = min(step**-0.5, step * ramp**-1.5)
            return rate * self._rate_factor * ramp**0.5 * decay
        if schedule == "piecewise":
            for start, step_rate in learning_rate.parse_steps(training):
                if number >= start:
                    rate = constants.rate * step_rate
        progress = min(1.0, number / ramp) if ramp > 0 else 1.0
        return rate * (1 + (self._rate_factor - 1) * progress)


def clip_gradient(gradient: Arrays, bound: float) -> dict[str, np.ndarray]:
    """Return the gradient, shortened to the Euclidean norm `bound` if it is longer."""
    factor = np.float32(clipping_factor(gradient, bound))
    return {name: array * factor for name, array in gradient.items()}


def clipping_factor(gradient: Arrays, bound: float) -> float:
    """Return the factor that shortens a gradient to the Euclidean norm `bound`."""
    return bound / max(total_norm(gradient), bound)


def total_norm(gradient: Arrays) -> float:
    """Return the Euclidean norm of all variables together."""
    squares = [np.square(array, dtype=np.float64).sum() for array in gradient.values()]
    return float(np.sqrt(sum(squares)))


def norm(values: np.ndarray) -> float:
    """Return the Euclidean norm of one array."""
    return float(np.sqrt(np.square(values, dtype=np.float64).sum()))


def _is_finite(gradient: Arrays) -> bool:
    return all(np.isfinite(array).all() for array in gradient.values())
