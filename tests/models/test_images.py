"""Networks of keras.applications in our step, against Keras' own model."""

import gc
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


def build_small(applications, model="resnet50", **options):
    config = ModelConfig(model=model, **options)
    return applications.KerasClassifier(config, SIZE, NUM_CLASSES)


def batch_of(data_format="NHWC"):
    random = np.random.default_rng(0)
    images = random.uniform(-1, 1, (BATCH_SIZE, SIZE, SIZE, 3)).astype(np.float32)
    labels = random.integers(0, NUM_CLASSES, BATCH_SIZE)
    axes = [0, 3, 1, 2] if data_format == "NCHW" else range(4)
    return ImageBatch(images.transpose(axes), labels)


def make_values(workload):
    from rnn_scaling.models.workload import make_first_values

    return make_first_values([*workload.variables, *workload.moving], seed=1)


def trace_step(tf, workload, data_format="NHWC"):
    """Return our step of one batch, its arguments and its graph."""
    batch = batch_of(data_format)
    names = [spec.name for spec in workload.variables]

    @tf.function(autograph=False)
    def step(values, batch):
        outcome = workload.forward(values, {}, batch, tf.constant([0, 0]))
        gradients = tf.gradients(outcome.loss_sum, [values[name] for name in names])
        return outcome.loss_sum, dict(zip(names, gradients)), outcome.moving

    arguments = (
        {n: tf.constant(v) for n, v in make_values(workload).items()},
        ImageBatch(*map(tf.constant, batch)),
    )
    return step, arguments, step.get_concrete_function(*arguments).graph


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_a_step_agrees_with_keras_own_model(tf, applications, by_keras, data_format):
    """VGG-16 has no batch normalization, which amplifies the rounding of three images."""
    want, want_gradients = by_keras
    workload = build_small(applications, "vgg16", data_format=data_format)
    loss, gradients = compute_by_our_step(tf, workload, data_format)
    np.testing.assert_allclose(loss, want, rtol=1e-5)
    compared = zip(gradients.items(), want_gradients)
    if data_format == "NCHW":
        # The inputs of the wide layer are ordered differently.
        compared = [each for each in compared if each[0][0] != "fc1/kernel"][-4:]
    for (name, got), gradient in compared:
        atol = 1e-4 * np.abs(gradient).max()
        np.testing.assert_allclose(got, gradient, rtol=0, atol=atol, err_msg=name)


def compute_by_our_step(tf, workload, data_format):
    """Return the loss and the gradients {name: tensor} of one batch."""
    step, arguments, graph = trace_step(tf, workload, data_format)
    assert count_flops(graph) == training_flops(workload) * BATCH_SIZE
    loss, gradients, _ = step(*arguments)
    return loss.numpy(), gradients


@pytest.fixture(scope="module")
def by_keras(tf, applications):
    """Return the loss and the gradients of Keras' own VGG-16 for the same batch."""
    results = compute_by_keras(tf, build_small(applications, "vgg16"))
    gc.collect()  # the model's hundreds of MB
    return results


def compute_by_keras(tf, workload):
    import keras

    model = keras.applications.VGG16(
        weights=None,
        input_shape=(SIZE, SIZE, 3),
        classes=NUM_CLASSES,
        classifier_activation=None,
    )
    variables = model.trainable_variables
    for variable, (name, value) in zip(variables, make_values(workload).items()):
        assert name == variable.path
        variable.assign(value)
    batch = batch_of()
    with tf.GradientTape() as tape:
        logits = model(batch.images, training=True)
        loss = tf.reduce_sum(
            tf.nn.sparse_softmax_cross_entropy_with_logits(batch.labels, logits)
        )
    return loss.numpy(), tape.gradient(loss, variables)


def test_a_traced_step_has_bfloat16_products_and_float32_statistics(tf, applications):
    """No variable of the model has a value."""
    workload = build_small(applications, compute_dtype="bfloat16")
    assert all(variable._value is None for variable in workload.model.variables)
    step, arguments, graph = trace_step(tf, workload)
    loss, gradients, moving = step.get_concrete_function(*arguments).structured_outputs
    assert {value.dtype for value in [loss, *moving.values(), *gradients.values()]} == {
        tf.float32
    }
    assert {
        op.inputs[0].dtype for op in graph.get_operations() if op.type == "Conv2D"
    } == {tf.bfloat16}
    assert count_flops(graph) == training_flops(workload) * BATCH_SIZE


def training_flops(workload):
    """Return 6 FLOPs per multiply-add; 4 in the first layer: images have no gradient."""
    flops = []
    for layer in workload.model.layers:
        if hasattr(layer, "kernel"):
            shape = layer.output.shape[1:]
            is_first = getattr(layer, "data_format", "") == "channels_first"
            positions = shape[1:] if is_first else shape[:-1]
            factor = 6 if flops else 4
            flops.append(factor * math.prod(positions) * math.prod(layer.kernel.shape))
    return sum(flops)


def count_flops(graph):
    """Return 2 FLOPs per multiply-add of convolutions, their gradients and products.

    Operators whose results are not read, such as the gradient of the images, do not count.
    """
    flops = 0
    for op in graph.get_operations():
        if not any(output.consumers() for output in op.outputs):
            continue
        size = op.outputs[0].shape.num_elements()
        if op.type == "MatMul":
            rows, columns = op.inputs[0].shape
            flops += 2 * size * (rows if op.get_attr("transpose_a") else columns)
        elif op.type == "Conv2D":
            flops += 2 * size * math.prod(op.inputs[1].shape[:3])
        elif op.type in ("Conv2DBackpropInput", "Conv2DBackpropFilter"):
            is_input = op.type.endswith("Input")
            kernel = op.inputs[1].shape if is_input else op.outputs[0].shape
            flops += 2 * op.inputs[2].shape.num_elements() * math.prod(kernel[:3])
    return flops
