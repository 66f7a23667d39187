"""Update rules on TensorFlow's fused kernels, one variable and one gradient at a time.

The semantics are those of the dense optimizer: an embedding's IndexedSlices give the same values as the dense
gradient would. All rules but SGD therefore densify them (rows without a gradient move too); SGD scatters.

Weight decay c reaches variables of two axes and more (matrices, kernels, embeddings): no biases, and no gains or shifts
of a normalisation. For sgd, momentum and rmsprop c w is added to the clipped gradient, as of a loss with c/2 |w|^2. For
adam it is decoupled: w -= lr c w before the update (AdamW; Loshchilov and Hutter, arXiv:1711.05101).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from rnn_scaling.config.learning_rate import LearningRate
from rnn_scaling.training.gradients import Gradient, densify

MOMENTUM = 0.9
# Keras's defaults (tf.keras.optimizers.Adam; the v1 AdamOptimizer has epsilon 1e-8).
ADAM_BETA_1 = 0.9
ADAM_BETA_2 = 0.999
ADAM_EPSILON = 1e-7
# tf_cnn_benchmarks' defaults for tf.train.RMSPropOptimizer, which starts the mean square at 1.
RMSPROP_DECAY = 0.9
RMSPROP_MOMENTUM = 0.9
RMSPROP_EPSILON = 1.0

Slots = tuple[tf.Variable, ...]
Rate = Any  # a number, or a float64 scalar


class _Update(NamedTuple):
    """What a rule is given: the arguments of `Optimizer.apply`, and the learning rate of this step."""

    rate: Rate
    variable: tf.Variable
    slots: Slots
    gradient: Gradient
    scale: tf.Tensor | None
    step: tf.Tensor

    @property
    def scaled_rate(self) -> tf.Tensor:
        """The learning rate with the gradient's scale, which saves a pass over the gradient."""
        rate = tf.cast(self.rate, self.variable.dtype)
        return (
            rate
            if self.scale is None
            else rate * tf.cast(self.scale, self.variable.dtype)
        )

    @property
    def dense(self) -> tf.Tensor:
        gradient = densify(self.gradient)
        return (
            gradient
            if self.scale is None
            else gradient * tf.cast(self.scale, self.variable.dtype)
        )


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An update rule. It holds no state: the caller keeps the slots of each copy of each variable."""

    name: str
    learning_rate: LearningRate
    first_slots: tuple[float, ...]
    _rule: Callable[[_Update], Any]
    weight_decay: float = 0.0

    def slots(self, variable: tf.Variable, device: str) -> Slots:
        """The state that one variable needs, of its shape on `device`. Not for use in a tf.function."""
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
        """Updates the variable and its slots in place, on the variable's device; returns the operation that does it.

        `scale` multiplies the gradient, as `gradients.clip_scale`'s (None: 1); `step`: updates done so far, int64.
        """
        with tf.device(variable.device):
            rate = self.learning_rate.last
            if not self.learning_rate.is_constant:
                rate = self.learning_rate.at(tf.cast(step, tf.float64), tf)
            update = _Update(rate, variable, slots, gradient, scale, step)
            if self.weight_decay and len(variable.shape) > 1:
                update = self._decayed(update)
            return self._rule(update)

    def _decayed(self, update: _Update) -> _Update:
        """The update with weight decay in its gradient; of a decoupled rule, after the weights have decayed."""
        variable = update.variable
        lost = tf.constant(self.weight_decay, variable.dtype) * variable.read_value()
        if self.name not in DECOUPLED:
            return update._replace(gradient=update.dense + lost, scale=None)
        lost *= tf.cast(update.rate, variable.dtype)
        tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=lost)
        return update


def build(
    name: str, learning_rate: float | LearningRate, weight_decay: float = 0.0
) -> Optimizer:
    """An optimizer: sgd, momentum (0.9, Keras's formula), rmsprop (0.9, 0.9, 1.0) or adam (0.9, 0.999, 1e-7)."""
    first_slots, rule = _RULES[name]
    rate = (
        learning_rate
        if isinstance(learning_rate, LearningRate)
        else LearningRate(learning_rate)
    )
    return Optimizer(name, rate, first_slots, rule, weight_decay)


def _sgd(update: _Update) -> Any:
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


def _momentum(update: _Update) -> Any:
    """a = 0.9 a - lr g; w += a."""
    return tf.raw_ops.ResourceApplyKerasMomentum(
        var=update.variable.handle,
        accum=update.slots[0].handle,
        lr=update.scaled_rate,
        grad=densify(update.gradient),
        momentum=tf.constant(MOMENTUM, update.variable.dtype),
    )


def _adam(update: _Update) -> Any:
    """m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps).

    Source: Kingma and Ba, 2015, the variant that ends section 2; t = step + 1.
    """
    dtype, (m, v) = update.variable.dtype, update.slots
    # In float64, since 1 - b2^t loses three of float32's seven digits at the first steps. The kernel would compute it
    # so from its beta powers: it gets powers of zero and a rate that is corrected already.
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


def _rmsprop(update: _Update) -> Any:
    """s = d s + (1 - d) g^2; a = 0.9 a + lr g / sqrt(s + eps); w -= a. s starts at 1."""
    dtype, (square, accumulated) = update.variable.dtype, update.slots
    return tf.raw_ops.ResourceApplyRMSProp(
        var=update.variable.handle,
        ms=square.handle,
        mom=accumulated.handle,
        lr=tf.cast(update.rate, dtype),
        rho=tf.constant(RMSPROP_DECAY, dtype),
        momentum=tf.constant(RMSPROP_MOMENTUM, dtype),
        epsilon=tf.constant(RMSPROP_EPSILON, dtype),
        grad=update.dense,
    )


_RULES: dict[
    str, tuple[tuple[float, ...], Callable[[_Update], Any]]
] = {  # name -> first values of its slots, the rule
    "sgd": ((), _sgd),
    "momentum": ((0.0,), _momentum),
    "rmsprop": ((1.0, 0.0), _rmsprop),
    "adam": ((0.0, 0.0), _adam),
}
DECOUPLED = ("adam",)
