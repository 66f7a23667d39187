"""Networks of keras.applications: Keras' layers, weights' names and shapes; our variables, batches and step.

The models are built without a value for any weight: a step gives the layers its tensors, and no second copy exists.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from rnn_scaling.models import workloads
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.images.network import ImageClassifier
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
    "mobilenet": keras.applications.MobileNetV2,
}


class KerasNetwork:
    def __init__(self, config: ModelConfig, image_size: int, num_classes: int) -> None:
        """config: has its `model`, `data_format` and `compute_dtype`."""
        self.image_size, self.num_classes = image_size, num_classes
        self._model = _build(config, image_size, num_classes)
        self.variables = tuple(
            _spec(weight, "dense") for weight in self._model.trainable_variables
        )
        self.moving = tuple(
            _spec(weight, "moving") for weight in self._model.non_trainable_variables
        )

    def logits(
        self, weights: Tensors, images: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, Tensors]:
        values = [
            (variable, weights[variable.path]) for variable in self._model.variables
        ]
        # Not stateless_call: it would give the variables values of their own when it ends.
        with keras.StatelessScope(values, initialize_variables=False) as scope:
            logits = self._model(images, training=True)
            moving = {
                spec.name: scope.get_current_value(v)
                for spec, v in zip(self.moving, self._model.non_trainable_variables)
            }
        return logits, moving


def _build(config: ModelConfig, image_size: int, num_classes: int) -> Any:
    """Keras' model, whose variables have shapes and no values."""
    keras.utils.clear_session(
        free_memory=False
    )  # layers without a name of their own are numbered from 0
    keras.config.set_image_data_format(
        "channels_first" if config.data_format == "NCHW" else "channels_last"
    )
    policy = (
        config.compute_dtype
        if config.compute_dtype == "float32"
        else f"mixed_{config.compute_dtype}"
    )
    keras.config.set_dtype_policy(policy)
    shape = (
        (3, image_size, image_size)
        if config.data_format == "NCHW"
        else (image_size, image_size, 3)
    )
    with keras.StatelessScope(initialize_variables=False):
        make = _APPLICATIONS[config.model]
        model = make(
            weights=None,
            input_shape=shape,
            classes=num_classes,
            classifier_activation=None,
        )
    fuse(model)
    keras.utils.clear_session(
        free_memory=False
    )  # forgets that the variables want values
    return model


def _spec(variable: Any, kind: str) -> VariableSpec:
    initial = {"GlorotUniform": "glorot_uniform", "Zeros": "zeros", "Ones": "ones"}
    return VariableSpec(
        variable.path,
        tuple(variable.shape),
        kind,
        initial[type(variable._initializer).__name__],
    )


class FusedBatchNormalization(keras.layers.BatchNormalization):
    """Keras' layer as one operator instead of seventeen; statistics are float32 under any policy."""

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """The normalized activations; `inputs`: [B, H, W, C], or [B, C, H, W] where `axis` is 1."""
        if not training:
            return super().call(inputs, training=training, mask=mask)
        ones = tf.ones(inputs.shape[self.axis])
        normalized = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=tf.convert_to_tensor(self.gamma) if self.scale else ones,
            offset=tf.convert_to_tensor(self.beta)
            if self.center
            else tf.zeros_like(ones),
            mean=[],
            variance=[],
            epsilon=self.epsilon,
            data_format="NCHW" if self.axis == 1 else "NHWC",
            is_training=True,
        )
        count = tf.cast(tf.size(inputs) // inputs.shape[self.axis], tf.float32)
        variance = normalized.batch_variance * (
            (count - 1.0) / count
        )  # the operator's is over one value less
        for average, value in (
            (self.moving_mean, normalized.batch_mean),
            (self.moving_variance, variance),
        ):
            average.assign(average * self.momentum + value * (1.0 - self.momentum))
        return normalized.y


def fuse(model: Any) -> None:
    """Lets the model's batch normalisations compute so. They stay the layers they are: a clone takes a second."""
    for layer in model.layers:
        if type(layer) is keras.layers.BatchNormalization:
            layer.__class__ = FusedBatchNormalization


def build(config: ModelConfig, device_type: str) -> Workload:
    """The network that `config.model` names, for the images of --dataset."""
    return ImageClassifier(
        KerasNetwork(config, *workloads.images_of(config.model, config.dataset)), config
    )
