"""Layers against numpy and keras.layers, and the layouts against each other."""

import numpy as np
import pytest

from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.images import layers as layering
from rnn_scaling.models.images import own_networks
from rnn_scaling.models.images.layers import DECAY, LayeredClassifier, Layers
from rnn_scaling.models.workload import make_initial_value

pytestmark = pytest.mark.usefixtures("as_built")

BATCH, SIZE = 4, 8
both_formats = pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])


def random_values(network, seed=3):
    """Return random values of a network's variables and moving averages."""
    values = {}
    random = np.random.default_rng(seed)
    for spec in (*network.variables, *network.moving):
        if spec.name.startswith("logits/"):
            continue
        noise = 0.2 * random.standard_normal(spec.shape).astype(np.float32)
        values[spec.name] = make_initial_value(spec, seed) + noise * (
            len(spec.shape) == 1
        )
        if spec.name.endswith("variance"):
            values[spec.name] = np.abs(values[spec.name])
    return values


def make_images(channels=3, size=SIZE, seed=5):
    """[B, H, W, C]."""
    random = np.random.default_rng(seed)
    return random.standard_normal((BATCH, size, size, channels)).astype(np.float32)


def order_axes(images, data_format):
    return images if data_format == "NHWC" else images.transpose(0, 3, 1, 2)


def run(tf, body, values, images, data_format, dtype="float32"):
    """Return outputs [B, ...], next moving averages, and gradients by name."""

    @tf.function(autograph=False)
    def compute(values, images):
        layers = Layers(data_format, lambda spec: values[spec.name], None)
        outputs = tf.cast(body(layers, tf.cast(images, dtype)), tf.float32)
        if data_format == "NCHW" and outputs.shape.rank == 4:
            outputs = tf.transpose(outputs, [0, 2, 3, 1])
        loss = tf.reduce_sum(outputs * pattern(outputs.shape))
        inputs = {name: value for name, value in values.items() if "moving" not in name}
        inputs["images"] = images
        gradients = dict(zip(inputs, tf.gradients(loss, list(inputs.values()))))
        return outputs, layers.moving, gradients

    tensors = tf.nest.map_structure(tf.constant, values)
    images = tf.constant(order_axes(images, data_format))
    outputs, moving, gradients = tf.nest.map_structure(
        lambda tensor: tensor.numpy(), compute(tensors, images)
    )
    if data_format == "NCHW":
        gradients["images"] = gradients["images"].transpose(0, 2, 3, 1)
    return outputs, moving, gradients


def pattern(shape):
    """Return weights of a loss, so that no gradient is a sum of ones."""
    return np.cos(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)


def assert_close(got, want, tolerance=2e-5):
    """Compare arrays, relative to the largest value of each one.

    A bias that is normalized away is nearly zero; it is compared relative to the others.
    """
    assert got.keys() == want.keys()
    largest_of_all = max((np.abs(value).max() for value in want.values()), default=0)
    for name, value in want.items():
        largest = max(np.abs(value).max(), 5e-2 * largest_of_all)
        np.testing.assert_allclose(
            got[name], value, rtol=0, atol=tolerance * largest, err_msg=name
        )


@both_formats
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_statistics_are_float32_for_every_dtype(tf, dtype, data_format):
    # In 16 bits, the variance of numbers with equal leading digits is lost.
    images = 100 + make_images(2)
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    values = {name: np.ones(2, np.float32) for name in names}

    def body(layers, x):
        return layers.batch_normalization(x)

    _, moving, _ = run(tf, body, values, images, data_format, dtype)
    rounded = tf.cast(images, dtype).numpy().astype(np.float64)
    np.testing.assert_allclose(
        moving["moving_mean"], DECAY + (1 - DECAY) * rounded.mean((0, 1, 2)), rtol=1e-6
    )
    variance = rounded.var((0, 1, 2), ddof=1)
    np.testing.assert_allclose(
        moving["moving_variance"], DECAY + (1 - DECAY) * variance, rtol=1e-4
    )


def convolve(x, kernel, stride):
    """Return x convolved; with a stride, TensorFlow pads below and on the right."""
    before = 1 if stride == 1 else 0
    padded = np.pad(x, [(0, 0), (before, 1), (before, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    return np.einsum("bijchw,hwco->bijo", windows[:, ::stride, ::stride], kernel)


@both_formats
@pytest.mark.parametrize("channels", [6, 12])
def test_a_residual_block_agrees_with_its_paper(tf, data_format, channels):
    def body(layers, x):
        return own_networks.apply_residual_block(layers, x, channels)

    images = make_images(6)
    random = np.random.default_rng(1)
    values = {}
    for number, inputs in enumerate((6, channels)):
        shapes = dict.fromkeys(("gamma", "beta", "moving_mean"), (channels,))
        shapes |= {"moving_variance": (channels,), "kernel": (3, 3, inputs, channels)}
        for name, shape in shapes.items():
            drawn = random.uniform(0.5, 1.5, shape).astype(np.float32)
            values[f"conv_{number}/{name}"] = drawn
    stride = channels // 6
    means = {}
    x = images.astype(np.float64)
    for number in (0, 1):
        x = convolve(x, values[f"conv_{number}/kernel"], stride if number == 0 else 1)
        mean = x.mean((0, 1, 2))
        before = values[f"conv_{number}/moving_mean"]
        decay = layering.DECAY
        means[f"conv_{number}/moving_mean"] = decay * before + (1 - decay) * mean
        x = (x - mean) / np.sqrt(x.var((0, 1, 2)) + layering.EPSILON)
        x = x * values[f"conv_{number}/gamma"] + values[f"conv_{number}/beta"]
        x = np.maximum(x, 0) if number == 0 else x
    missing = (channels - 6) // 2
    shortcut = images[:, ::stride, ::stride]
    x += np.pad(shortcut, [(0, 0)] * 3 + [(missing, missing)])
    outputs, moving, _ = run(tf, body, values, images, data_format)
    assert_close({"outputs": outputs}, {"outputs": np.maximum(x, 0)})
    assert_close({name: moving[name] for name in means}, means)


@both_formats
@pytest.mark.parametrize("scale", [True, False])
def test_keras_normalization_on_the_fused_operator_trains_as_keras_own(
    tf, data_format, scale
):
    import keras

    from rnn_scaling.models.images import keras_applications

    axis = data_format.index("C")
    x = tf.constant(order_axes(2 * make_images(5) + 1, data_format))
    results = []
    for is_fused in (False, True):
        layer = keras.layers.BatchNormalization(axis, momentum=0.9, scale=scale)
        layer.build(x.shape)
        for number, variable in enumerate(layer.variables, start=1):
            variable.assign(1 + 0.1 * np.arange(5) * number)
        if is_fused:
            model = keras.Sequential([layer])
            keras_applications.fuse(model)
            assert type(model.layers[0]) is keras_applications.FusedBatchNormalization
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = tf.reduce_sum(y * pattern(y.shape))
        inputs = [x, *(variable.value for variable in layer.trainable_variables)]
        averages = [variable.value for variable in layer.non_trainable_variables]
        tensors = [y, *tape.gradient(loss, inputs), *averages]
        results.append({n: tensor.numpy() for n, tensor in enumerate(tensors)})
    want, got = results
    assert len(want) == (6 if scale else 5)
    assert_close(got, want)


@pytest.mark.parametrize("family", ["resnet", "densenet", "alexnet"])
def test_layouts_share_weights_and_have_equal_outputs_and_gradients(tf, family):
    body = {
        "resnet": own_networks.make_resnet_body(8),
        "densenet": own_networks.make_densenet_body(7, 4),
        "alexnet": own_networks.apply_alexnet_cifar10,
    }[family]
    networks = {}
    for name in ("NHWC", "NCHW"):
        config = ModelConfig(model="alexnet", dataset="cifar10", data_format=name)
        networks[name] = LayeredClassifier(body, config)
    assert networks["NHWC"].variables == networks["NCHW"].variables
    values = random_values(networks["NHWC"])
    images = make_images(size=32 if family == "alexnet" else 16)
    results = {name: run(tf, body, values, images, name) for name in networks}
    outputs, moving, gradients = results["NHWC"]
    assert_close({"outputs": results["NCHW"][0]}, {"outputs": outputs}, 1e-5)
    assert_close(results["NCHW"][1], moving, 1e-5)
    assert_close(results["NCHW"][2], gradients, 1e-4)


def test_dropout_follows_the_seed_and_differs_from_layer_to_layer(tf):
    def twice(seed):
        layers = Layers("NHWC", lambda spec: None, tf.constant(seed))
        return [layers.dropout(tf.ones([1, 200]), 0.5).numpy() for _ in range(2)]

    first, second = twice([1, 2])
    assert np.array_equal(first, twice([1, 2])[0])
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, twice([1, 3])[0])
    assert set(np.unique(first)) == {0.0, 2.0}
