"""Workloads of images: keras.applications under our step, against Keras' own model and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rnn_scaling.models.batch import ImageBatch
from rnn_scaling.models.config import ModelConfig

SIZE, NUM_CLASSES, BATCH_SIZE = 32, 7, 3


@pytest.fixture(scope="module")
def applications(tf):
    import rnn_scaling.models.images.keras_applications as module

    return module


def small(applications, model="resnet50", **options):
    config = ModelConfig(model=model, **options)
    return applications.KerasClassifier(config, SIZE, NUM_CLASSES)


def batch_of(data_format="NHWC"):
    random = np.random.default_rng(0)
    images = random.uniform(-1, 1, (BATCH_SIZE, SIZE, SIZE, 3)).astype(np.float32)
    labels = random.integers(0, NUM_CLASSES, BATCH_SIZE)
    axes = [0, 3, 1, 2] if data_format == "NCHW" else range(4)
    return ImageBatch(images.transpose(axes), labels)


def values_of(workload):
    from rnn_scaling.models.workload import first_values

    return first_values([*workload.variables, *workload.moving], seed=1)


def traced(tf, workload, data_format="NHWC"):
    """Our step of one batch, its arguments and its graph: (values, batch) -> loss, gradients, next averages."""
    batch = batch_of(data_format)
    names = [spec.name for spec in workload.variables]

    @tf.function(autograph=False)
    def step(values, batch):
        outcome = workload.forward(values, {}, batch, tf.constant([0, 0]))
        gradients = tf.gradients(outcome.loss_sum, [values[name] for name in names])
        return outcome.loss_sum, dict(zip(names, gradients)), outcome.moving

    arguments = (
        {n: tf.constant(v) for n, v in values_of(workload).items()},
        ImageBatch(*map(tf.constant, batch)),
    )
    return step, arguments, step.get_concrete_function(*arguments).graph


def test_a_step_is_that_of_keras_own_model_in_either_order_of_the_axes(
    tf, applications
):
    """VGG-16, since batch normalisations of three images that say nothing yet make a number of any rounding."""
    import keras

    for data_format in ("NHWC", "NCHW"):
        workload = small(applications, "vgg16", data_format=data_format)
        step, arguments, graph = traced(tf, workload, data_format)
        assert traced_flops(graph) == training_flops(workload) * BATCH_SIZE
        loss, gradients, _ = step(*arguments)
        if data_format == "NHWC":
            model = keras.applications.VGG16(
                weights=None,
                input_shape=(SIZE, SIZE, 3),
                classes=NUM_CLASSES,
                classifier_activation=None,
            )
            for variable, (name, value) in zip(
                model.trainable_variables, values_of(workload).items()
            ):
                assert name == variable.path
                variable.assign(value)
            batch = batch_of()
            with tf.GradientTape() as tape:
                logits = model(batch.images, training=True)
                want = tf.reduce_sum(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(batch.labels, logits)
                )
            want_gradients = tape.gradient(want, model.trainable_variables)
        np.testing.assert_allclose(loss, want, rtol=1e-5)
        compared = zip(gradients.items(), want_gradients)
        if data_format == "NCHW":  # the wide layer takes its inputs in another order
            compared = [each for each in compared if each[0][0] != "fc1/kernel"][-4:]
        for (name, got), gradient in compared:
            np.testing.assert_allclose(
                got, gradient, rtol=0, atol=1e-4 * np.abs(gradient).max(), err_msg=name
            )


def test_a_traced_step_has_the_products_that_are_counted_in_half_precision_and_statistics_in_float32(
    tf, applications
):
    """The gradient of the images, which nobody reads, is not computed. No variable of the model has a value."""
    workload = small(applications, compute_dtype="bfloat16")
    assert all(variable._value is None for variable in workload.model.variables)
    step, arguments, graph = traced(tf, workload)
    loss, gradients, moving = step.get_concrete_function(*arguments).structured_outputs
    assert {value.dtype for value in [loss, *moving.values(), *gradients.values()]} == {
        tf.float32
    }
    assert {
        op.inputs[0].dtype for op in graph.get_operations() if op.type == "Conv2D"
    } == {tf.bfloat16}
    assert traced_flops(graph) == training_flops(workload) * BATCH_SIZE


def training_flops(workload):
    """Of an image: 6 a multiply-add, but 4 in the first convolution, since nobody reads the gradient of the image."""
    flops = []
    for layer in workload.model.layers:
        if hasattr(layer, "kernel"):
            shape = layer.output.shape[1:]
            is_first = getattr(layer, "data_format", "") == "channels_first"
            positions = shape[1:] if is_first else shape[:-1]
            flops.append(
                (6 if flops else 4)
                * math.prod(positions)
                * math.prod(layer.kernel.shape)
            )
    return sum(flops)


def traced_flops(graph):
    """2 FLOPs for each multiply-add of a convolution, of its two gradients, and of a matrix product.

    What nobody reads, as the gradient of the images, is in the graph and is not computed.
    """
    flops = 0
    for op in [
        op
        for op in graph.get_operations()
        if any(output.consumers() for output in op.outputs)
    ]:
        if op.type == "MatMul":
            rows, columns = op.inputs[0].shape
            flops += (
                2
                * (rows if op.get_attr("transpose_a") else columns)
                * op.outputs[0].shape.num_elements()
            )
        elif op.type == "Conv2D":
            flops += (
                2
                * op.outputs[0].shape.num_elements()
                * math.prod(op.inputs[1].shape[:3])
            )
        elif op.type in ("Conv2DBackpropInput", "Conv2DBackpropFilter"):
            is_input = op.type.endswith("Input")
            kernel = op.inputs[1].shape if is_input else op.outputs[0].shape
            flops += 2 * op.inputs[2].shape.num_elements() * math.prod(kernel[:3])
    return flops
