"""AlexNet, the residual and the dense networks for CIFAR-10: parameters, FLOPs, and that they learn."""

from __future__ import annotations

import math

import numpy as np
import pytest

# Parameters that seeds of this project report from tf_cnn_benchmarks: variables and moving averages, of eleven classes
# (the eleventh is "background"), and the number of the step.
REPORTED = {
    "alexnet": 1_756_620,
    "resnet20": 271_164,
    "resnet32": 466_492,
    "resnet44": 661_820,
    "resnet56": 857_148,
    "resnet110": 1_736_124,
    "densenet40_k12": 364_772,
    "densenet100_k12": 2_259_652,
}


def body_of(name):
    from models.images import alexnet, densenet, resnet_cifar

    if name == "alexnet":
        return alexnet.cifar10_body
    if name.startswith("resnet"):
        return resnet_cifar.body(int(name.removeprefix("resnet")))
    return densenet.body(*map(int, name.removeprefix("densenet").split("_k")))


def network_of(name, num_classes=10, dtype="float32"):
    from models.images.layers import LayeredNetwork

    return LayeredNetwork(body_of(name), 32, num_classes, "NHWC", dtype)


def counts_of(network):
    """(trainable, moving) numbers."""
    return tuple(sum(math.prod(spec.shape) for spec in specs) for specs in (network.variables, network.moving))


def expected_counts(name, classes):
    """(trainable, moving) in closed form."""
    if name == "alexnet":
        convolutions = (25 * 3 + 1) * 64 + (25 * 64 + 1) * 64
        return convolutions + (8 * 8 * 64 + 1) * 384 + (384 + 1) * 192 + (192 + 1) * classes, 0
    if name.startswith("resnet"):
        n = (int(name.removeprefix("resnet")) - 2) // 6
        kernels = 9 * (3 * 16 + 2 * n * 16**2 + 16 * 32 + (2 * n - 1) * 32**2 + 32 * 64 + (2 * n - 1) * 64**2)
        normalized = 16 + 2 * n * (16 + 32 + 64)
        return kernels + 2 * normalized + (64 + 1) * classes, 2 * normalized
    depth, growth = map(int, name.removeprefix("densenet").split("_k"))
    n = (depth - 4) // 3
    trainable, normalized = (9 * 3 + 1) * 16, 0
    for block, first in enumerate((16, 2 * growth, 2 * growth)):
        inputs = n * first + growth * n * (n - 1) // 2  # of all layers of the block
        last = first + n * growth
        trainable += 9 * inputs * growth + n * growth + (0 if block == 2 else (last + 1) * 2 * growth)
        normalized += inputs + last
    return trainable + 2 * normalized + (last + 1) * classes, 2 * normalized


@pytest.mark.parametrize("name", REPORTED)
def test_parameters_are_the_closed_form_and_those_that_were_reported(name):
    network = network_of(name)
    assert counts_of(network) == expected_counts(name, 10)
    assert sum(expected_counts(name, 11)) + 1 == REPORTED[name]
    assert counts_of(network)[1] == 0 or {spec.kind for spec in network.moving} == {"moving"}


def test_alexnet_for_imagenet_has_the_parameters_of_its_layers():
    from models.images import alexnet
    from models.images.layers import LayeredNetwork

    network = LayeredNetwork(alexnet.imagenet_body, 227, 1000, "NCHW", "float32")
    convolutions = (
        (363 + 1) * 64 + (25 * 64 + 1) * 192 + (9 * 192 + 1) * 384 + (9 * 384 + 1) * 384 + (9 * 384 + 1) * 256
    )
    assert counts_of(network) == (convolutions + (36 * 256 + 1) * 4096 + 4097 * 4096 + 4097 * 1000, 0)
    # Multiply-adds of the convolutions at 55, 27 and three times 13 x 13 positions, and of the dense layers.
    first, others = 55**2 * 363 * 64, 27**2 * 25 * 64 * 192 + 169 * 9 * (192 * 384 + 384 * 384 + 384 * 256)
    assert network.flops_an_image == 4 * first + 6 * (others + 36 * 256 * 4096 + 4096 * 4096 + 4096 * 1000)


def graph_flops(graph):
    """FLOPs of every product of a traced graph that something reads: the gradient of the images is in none that runs."""
    flops = 0
    for op in graph.get_operations():
        if not any(output.consumers() for output in op.outputs):
            continue
        if op.type == "MatMul":
            rows, columns = op.inputs[0].shape
            flops += 2 * (rows if op.get_attr("transpose_a") else columns) * op.outputs[0].shape.num_elements()
        elif op.type.startswith("Conv2D"):
            kernel = op.outputs[0] if op.type == "Conv2DBackpropFilter" else op.inputs[1]
            outputs = op.outputs[0] if op.type == "Conv2D" else op.inputs[2]
            flops += 2 * outputs.shape.num_elements() * math.prod(kernel.shape[:-1])
    return flops


@pytest.mark.parametrize(("name", "learning_rate"), [("resnet20", 0.1), ("densenet40_k12", 0.1), ("alexnet", 0.02)])
def test_the_loss_of_a_batch_falls_and_the_graph_has_the_flops_that_are_told(tf, name, learning_rate):
    from models.workload import first_values

    batch_size = 4
    network = network_of(name)
    random = np.random.default_rng(1)
    images = tf.constant(random.uniform(-1, 1, (batch_size, 32, 32, 3)).astype(np.float32))
    labels = tf.constant(random.integers(0, 10, batch_size))
    weights = {key: tf.Variable(value) for key, value in first_values(network.variables, 1).items()}
    averages = {key: tf.Variable(value) for key, value in first_values(network.moving, 1).items()}

    @tf.function
    def step():
        values = {key: variable.read_value() for key, variable in {**weights, **averages}.items()}
        logits, moving = network.logits(values, images, tf.constant([0, 0]))
        assert moving.keys() == averages.keys()
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        for key, gradient in zip(weights, tf.gradients(loss, [values[key] for key in weights])):
            weights[key].assign_sub(learning_rate * gradient)
        for key, value in moving.items():
            averages[key].assign(value)
        return loss

    graph = step.get_concrete_function().graph
    assert graph_flops(graph) == network.flops_an_image * batch_size
    losses = [float(step()) for _ in range(6)]
    assert losses[-1] < 0.8 * losses[0], losses
