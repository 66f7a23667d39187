"""Update rules on TensorFlow's fused kernels, one variable and one gradient at a time.

The semantics are those of the dense optimizer: an embedding's IndexedSlices give the same values as the dense
gradient would. Momentum and Adam therefore densify them (rows without a gradient move too); SGD scatters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rnn_scaling.settings.learning_rate import LearningRate, constant
from rnn_scaling.training.gradients import Gradient, densify

MOMENTUM = 0.9
# Keras's defaults (tf.keras.optimizers.Adam; the v1 AdamOptimizer has epsilon 1e-8).
ADAM_BETA_1 = 0.9
ADAM_BETA_2 = 0.999
ADAM_EPSILON = 1e-7

Slots = tuple[tf.Variable, ...]
Rate = Any  # a number, or a float64 scalar


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An update rule. It holds no state: the caller keeps the slots of each copy of each variable.

    `variable` below is a tf.Variable, or a component of a mirrored one, on one device.
    """

    name: str
    learning_rate: LearningRate
    num_slots: int
    _update: Callable[..., Any]

    def slots(self, variable: tf.Variable, device: str) -> Slots:
        """The state that one variable needs, zeros of its shape on `device`. Not for use in a tf.function."""
        with tf.device(device):
            return tuple(
                tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False, name=f"{self.name}_slot_{i}")
                for i in range(self.num_slots)
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

        Args:
          variable: what the gradient belongs to.
          slots: what `slots` gave for it.
          gradient: dense or IndexedSlices, in the variable's dtype.
          scale: scalar that multiplies the gradient, such as `gradients.clip_scale`'s; None: 1.
          step: int64 scalar, the updates done so far: 0 for the first.
        """
        with tf.device(variable.device):
            rate = self.learning_rate.last
            if not self.learning_rate.is_constant:
                rate = self.learning_rate.at(tf.cast(step, tf.float64), tf.minimum)
            return self._update(rate, variable, slots, gradient, scale, step)


def build(name: str, learning_rate: float | LearningRate) -> Optimizer:
    """An optimizer.

    Args:
      name: sgd, momentum (0.9, Keras's formula) or adam (0.9, 0.999, 1e-7).
      learning_rate: of each update, or of all.

    Raises:
      ValueError: if there is none of that name.
    """
    if name not in _RULES:
        raise ValueError(f"expected one of {', '.join(_RULES)}, got {name!r}")
    num_slots, update = _RULES[name]
    rate = learning_rate if isinstance(learning_rate, LearningRate) else constant(learning_rate)
    return Optimizer(name, rate, num_slots, update)


def _scaled(learning_rate: Rate, scale: tf.Tensor | None, dtype: tf.DType) -> tf.Tensor:
    rate = tf.cast(learning_rate, dtype)
    return rate if scale is None else rate * tf.cast(scale, dtype)


def _sgd(
    learning_rate: Rate,
    variable: tf.Variable,
    slots: Slots,
    gradient: Gradient,
    scale: tf.Tensor | None,
    step: tf.Tensor,
) -> Any:
    """w -= lr g."""
    rate = _scaled(learning_rate, scale, variable.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.raw_ops.ResourceScatterSub(
            resource=variable.handle, indices=gradient.indices, updates=rate * gradient.values
        )
    return tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)


def _momentum(
    learning_rate: Rate,
    variable: tf.Variable,
    slots: Slots,
    gradient: Gradient,
    scale: tf.Tensor | None,
    step: tf.Tensor,
) -> Any:
    """a = 0.9 a - lr g; w += a. The scale goes into lr, which saves a pass over the gradient."""
    return tf.raw_ops.ResourceApplyKerasMomentum(
        var=variable.handle,
        accum=slots[0].handle,
        lr=_scaled(learning_rate, scale, variable.dtype),
        grad=densify(gradient),
        momentum=tf.constant(MOMENTUM, variable.dtype),
    )


def _adam(
    learning_rate: Rate,
    variable: tf.Variable,
    slots: Slots,
    gradient: Gradient,
    scale: tf.Tensor | None,
    step: tf.Tensor,
) -> Any:
    """m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps).

    Source: Kingma and Ba, 2015, the variant that ends section 2; t = step + 1.
    """
    dtype = variable.dtype
    dense = densify(gradient)
    # In float64, since 1 - b2^t loses three of float32's seven digits at the first steps. The kernel would compute it
    # so from its beta powers: it gets powers of zero and a rate that is corrected already.
    count = tf.cast(step + 1, tf.float64)
    rate = learning_rate * tf.sqrt(1.0 - tf.pow(tf.constant(ADAM_BETA_2, tf.float64), count))
    rate /= 1.0 - tf.pow(tf.constant(ADAM_BETA_1, tf.float64), count)
    zero = tf.zeros([], dtype)
    return tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=slots[0].handle,
        v=slots[1].handle,
        beta1_power=zero,
        beta2_power=zero,
        lr=tf.cast(rate, dtype),
        beta1=tf.constant(ADAM_BETA_1, dtype),
        beta2=tf.constant(ADAM_BETA_2, dtype),
        epsilon=tf.constant(ADAM_EPSILON, dtype),
        grad=dense if scale is None else dense * tf.cast(scale, dtype),
    )


_RULES: dict[str, tuple[int, Callable[..., Any]]] = {"sgd": (0, _sgd), "momentum": (1, _momentum), "adam": (2, _adam)}
