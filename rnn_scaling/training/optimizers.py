"""Update rules on TensorFlow's fused operators, one variable at a time.

An embedding's IndexedSlices give the same values as the dense gradient. Therefore all
rules except SGD densify them: rows without a gradient also change. SGD scatters.

Weight decay c applies to variables with at least two axes (matrices, kernels,
embeddings), not to biases, or to gains and shifts of a normalisation. For sgd, momentum
and rmsprop, c w is added to the clipped gradient, like the gradient of c/2 |w|^2. For
adam it is decoupled: w -= lr c w before the update (AdamW; Loshchilov and Hutter,
arXiv:1711.05101).

A rule keeps its state in slots, which checkpoints contain by their names.
`verification.rule` has every rule in NumPy as well.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from rnn_scaling.config.learning_rate import LearningRate
from rnn_scaling.training.gradients import Gradient, densify

# `frameworks.handoff` has the same numbers: change both together.
MOMENTUM = 0.9
# Keras's defaults (tf.keras.optimizers.Adam; the v1 AdamOptimizer has epsilon 1e-8).
ADAM_BETA_1 = 0.9
ADAM_BETA_2 = 0.999
ADAM_EPSILON = 1e-7
# tf_cnn_benchmarks' defaults for tf.train.RMSPropOptimizer, whose mean square starts
# at 1.
_RMSPROP_DECAY = 0.9
_RMSPROP_MOMENTUM = 0.9
RMSPROP_EPSILON = 1.0

Slots = tuple[tf.Variable, ...]
Rate = Any  # a number, or a float64 scalar


class _Update(NamedTuple):
    """The arguments of a rule: the learning rate and `Optimizer.apply`'s arguments."""

    rate: Rate
    variable: tf.Variable
    slots: Slots
    gradient: Gradient
    scale: tf.Tensor | None
    step: tf.Tensor

    @property
    def scaled_rate(self) -> tf.Tensor:
        """The learning rate times the gradient's scale, which saves a pass over it."""
        return self._scaled(tf.cast(self.rate, self.variable.dtype))

    @property
    def dense(self) -> tf.Tensor:
        """The dense gradient times its scale."""
        return self._scaled(densify(self.gradient))

    def _scaled(self, tensor: tf.Tensor) -> tf.Tensor:
        if self.scale is None:
            return tensor
        return tensor * tf.cast(self.scale, self.variable.dtype)


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An update rule without state.

    The caller keeps the slots of each copy of each variable.
    """

    name: str
    learning_rate: LearningRate
    first_slots: tuple[float, ...]
    _rule: Callable[[_Update], Any]
    weight_decay: float = 0.0

    def create_slots(self, variable: tf.Variable, device: str) -> Slots:
        """Create the state of one variable on `device`, outside of any tf.function."""
        with tf.device(device):
            return tuple(
                tf.Variable(
                    tf.fill(variable.shape, first),
                    trainable=False,
                    name=f"{self.name}_slot_{i}",
                )
                for i, first in enumerate(self.first_slots)
            )

    def apply(
        self,
        variable: tf.Variable,
        slots: Slots,
        gradient: Gradient,
        scale: tf.Tensor | None,
        step: tf.Tensor,
    ) -> Any:
        """Update the variable and its slots in place, on the variable's device.

        Args:
          variable: The variable.
          slots: The optimizer's state of the variable.
          gradient: The gradient of the variable.
          scale: A factor of the gradient, such as `gradients.clip_scale`; None for 1.
          step: The number of earlier updates, int64.

        Returns:
          The operation that updates the variable.
        """
        with tf.device(variable.device):
            rate = self.learning_rate.last
            if not self.learning_rate.is_constant:
                rate = self.learning_rate.compute(tf.cast(step, tf.float64), tf)
            update = _Update(
                rate,
                variable=variable,
                slots=slots,
                gradient=gradient,
                scale=scale,
                step=step,
            )
            if self.weight_decay and len(variable.shape) > 1:
                update = self._apply_decay(update)
            return self._rule(update)

    def _apply_decay(self, update: _Update) -> _Update:
        """Return the update with weight decay in its gradient.

        A decoupled rule changes the variable here instead.
        """
        variable = update.variable
        decay = tf.constant(self.weight_decay, variable.dtype) * variable.read_value()
        if self.name not in DECOUPLED:
            return update._replace(gradient=update.dense + decay, scale=None)
        decay *= tf.cast(update.rate, variable.dtype)
        tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=decay)
        return update


def build(
    name: str, learning_rate: float | LearningRate, weight_decay: float = 0.0
) -> Optimizer:
    """Return an optimizer.

    Args:
      name: sgd, momentum (0.9, Keras's formula), rmsprop (0.9, 0.9, 1.0) or adam (0.9,
        0.999, 1e-7).
      learning_rate: The learning rate, possibly with a schedule.
      weight_decay: The factor c, or 0 for no decay.
    """
    first_slots, rule = _RULES[name]
    if not isinstance(learning_rate, LearningRate):
        learning_rate = LearningRate(learning_rate)
    return Optimizer(
        name,
        learning_rate=learning_rate,
        first_slots=first_slots,
        _rule=rule,
        weight_decay=weight_decay,
    )


def _apply_sgd(update: _Update) -> Any:
    """w -= lr g."""
    handle = update.variable.handle
    rate = update.scaled_rate
    gradient = update.gradient
    if isinstance(gradient, tf.IndexedSlices):
        return tf.raw_ops.ResourceScatterSub(
            resource=handle, indices=gradient.indices, updates=rate * gradient.values
        )
    return tf.raw_ops.ResourceApplyGradientDescent(
        var=handle, alpha=rate, delta=gradient
    )


def _apply_momentum(update: _Update) -> Any:
    """a = 0.9 a - lr g; w += a."""
    return tf.raw_ops.ResourceApplyKerasMomentum(
        var=update.variable.handle,
        accum=update.slots[0].handle,
        lr=update.scaled_rate,
        grad=densify(update.gradient),
        momentum=tf.constant(MOMENTUM, update.variable.dtype),
    )


def _apply_adam(update: _Update) -> Any:
    """m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2.

    w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps).

    Source: Kingma and Ba, 2015, the variant that ends section 2; t = step + 1.
    """
    dtype = update.variable.dtype
    m, v = update.slots
    # In float64, because 1 - b2^t loses three of float32's seven digits at the first
    # steps. TensorFlow's operator would compute it in float32 from its beta powers, so
    # it gets powers of zero and a rate that is already corrected.
    count = tf.cast(update.step + 1, tf.float64)
    rate = update.rate * tf.sqrt(
        1.0 - tf.pow(tf.constant(ADAM_BETA_2, tf.float64), count)
    )
    rate /= 1.0 - tf.pow(tf.constant(ADAM_BETA_1, tf.float64), count)
    zero = tf.zeros([], dtype)
    return tf.raw_ops.ResourceApplyAdam(
        var=update.variable.handle,
        m=m.handle,
        v=v.handle,
        beta1_power=zero,
        beta2_power=zero,
        lr=tf.cast(rate, dtype),
        beta1=tf.constant(ADAM_BETA_1, dtype),
        beta2=tf.constant(ADAM_BETA_2, dtype),
        epsilon=tf.constant(ADAM_EPSILON, dtype),
        grad=update.dense,
    )


def _apply_rmsprop(update: _Update) -> Any:
    """s = d s + (1 - d) g^2; a = 0.9 a + lr g / sqrt(s + eps); w -= a; s is 1 first."""
    dtype = update.variable.dtype
    square, accumulated = update.slots
    return tf.raw_ops.ResourceApplyRMSProp(
        var=update.variable.handle,
        ms=square.handle,
        mom=accumulated.handle,
        lr=tf.cast(update.rate, dtype),
        rho=tf.constant(_RMSPROP_DECAY, dtype),
        momentum=tf.constant(_RMSPROP_MOMENTUM, dtype),
        epsilon=tf.constant(RMSPROP_EPSILON, dtype),
        grad=update.dense,
    )


# The first values of each rule's slots, and the rule.
_RULES: dict[str, tuple[tuple[float, ...], Callable[[_Update], Any]]] = {
    "sgd": ((), _apply_sgd),
    "momentum": ((0.0,), _apply_momentum),
    "rmsprop": ((1.0, 0.0), _apply_rmsprop),
    "adam": ((0.0, 0.0), _apply_adam),
}
DECOUPLED = ("adam",)
