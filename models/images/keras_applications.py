"""Networks of keras.applications with this project's variables, batches and step.

Layers, shapes and names of the weights are Keras'. The models are built without values:
a step passes its tensors to the layers, so there is no second copy of the weights.

B: images, H, W: height and width, C: channels.

`workloads.py` names this module; the trainer calls `build`. A new network is a row of
`_APPLICATIONS` and of `workloads`.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from rnn_scaling.models import workloads
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.images.classifier import ImageClassifier
from rnn_scaling.models.workload import Tensors, VariableSpec, Workload

_APPLICATIONS: dict[str, Callable[..., Any]] = {
    "inception3": keras.applications.InceptionV3,
    "resnet50": keras.applications.ResNet50,
    "resnet101": keras.applications.ResNet101,
    "resnet152": keras.applications.ResNet152,
    "resnet50_v2": keras.applications.ResNet50V2,
    "resnet101_v2": keras.applications.ResNet101V2,
    "resnet152_v2": keras.applications.ResNet152V2,
    "vgg16": keras.applications.VGG16,
    "vgg19": keras.applications.VGG19,
}


class KerasClassifier(ImageClassifier):
    """A network of keras.applications."""

    def declare_variables(self) -> list[VariableSpec]:
        self.model = _build(self.config, self.image_size, self.num_classes)
        trained = [_make_spec(v, "dense") for v in self.model.trainable_variables]
        averages = self.model.non_trainable_variables
        return [*trained, *(_make_spec(average, "moving") for average in averages)]

    def compute_logits(
        self, weights: Tensors, images: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, Tensors]:
        values = [(v, weights[v.path]) for v in self.model.variables]
        # `stateless_call` would assign values to the variables at its end.
        with keras.StatelessScope(values, initialize_variables=False) as scope:
            logits = self.model(images, training=True)
            moving = {}
            for average in self.model.non_trainable_variables:
                moving[average.path] = scope.get_current_value(average)
        return logits, moving


def _build(config: ModelConfig, image_size: int, num_classes: int) -> Any:
    """Return Keras' model, whose variables have shapes and no values."""
    # Number unnamed layers from 0.
    keras.utils.clear_session(free_memory=False)
    shape = [image_size, image_size, 3]
    order = "channels_last"
    if config.data_format == "NCHW":
        shape = [3, image_size, image_size]
        order = "channels_first"
    keras.config.set_image_data_format(order)
    policy = config.compute_dtype
    if policy != "float32":
        policy = f"mixed_{policy}"
    keras.config.set_dtype_policy(policy)
    with keras.StatelessScope(initialize_variables=False):
        model = _APPLICATIONS[config.model](
            weights=None,
            input_shape=tuple(shape),
            classes=num_classes,
            classifier_activation=None,
        )
    fuse(model)
    # Remove Keras' list of variables that need values.
    keras.utils.clear_session(free_memory=False)
    return model


def _make_spec(variable: Any, kind: str) -> VariableSpec:
    names = {"GlorotUniform": "glorot_uniform", "Zeros": "zeros", "Ones": "ones"}
    initial = names[type(variable._initializer).__name__]
    return VariableSpec(variable.path, tuple(variable.shape), kind, initial)


class FusedBatchNormalization(keras.layers.BatchNormalization):
    """Keras' layer as one operator instead of seventeen; its statistics are float32."""

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Return the normalized activations.

        Args:
          inputs: [B, H, W, C], or [B, C, H, W] if `axis` is 1.
        """
        if not training:
            return super().call(inputs, training=training, mask=mask)
        scale = tf.ones(inputs.shape[self.axis])
        if self.scale:
            scale = tf.convert_to_tensor(self.gamma)
        normalized = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=scale,
            offset=tf.convert_to_tensor(self.beta),
            mean=[],
            variance=[],
            epsilon=self.epsilon,
            data_format="NCHW" if self.axis == 1 else "NHWC",
            is_training=True,
        )
        count = tf.cast(tf.size(inputs) // inputs.shape[self.axis], tf.float32)
        # The operator divides by count - 1.
        variance = normalized.batch_variance * ((count - 1.0) / count)
        averages = (self.moving_mean, self.moving_variance)
        for average, value in zip(averages, (normalized.batch_mean, variance)):
            average.assign(average * self.momentum + value * (1.0 - self.momentum))
        return normalized.y


def fuse(model: Any) -> None:
    """Let the model's batch normalizations compute as `FusedBatchNormalization`.

    The class of the layers is replaced, because cloning the model takes a second.
    """
    for layer in model.layers:
        if type(layer) is keras.layers.BatchNormalization:
            layer.__class__ = FusedBatchNormalization


def build(config: ModelConfig, device_type: str) -> Workload:
    """Return the workload of a network of keras.applications."""
    size, num_classes = workloads.find_image_size_and_classes(
        config.model, config.dataset
    )
    return KerasClassifier(config, size, num_classes)
