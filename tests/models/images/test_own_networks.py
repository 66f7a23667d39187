"""AlexNet, the residual and the dense networks for CIFAR-10: parameters, FLOPs, and that they learn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rnn_scaling.models import workloads
from rnn_scaling.models.workloads import WORKLOADS
from rnn_scaling.settings import config as configs
from tests.models.test_images import traced_flops

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


def network_of(name, num_classes=None, **options):
    """The network of a row, or the same with another number of classes."""
    from rnn_scaling.models.images.layers import LayeredNetwork

    config = configs.resolve({"model": name, **options}, num_gpus=0, num_cores=1).model
    network = workloads.load(name).build(config, "CPU")._network
    if num_classes is None:
        return network
    return LayeredNetwork(network._body, network.image_size, num_classes, "NHWC", "float32")


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
def test_parameters_are_the_closed_form_and_those_that_were_reported(tf, name):
    network = network_of(name, dataset="cifar10")
    assert counts_of(network) == expected_counts(name, 10)
    assert WORKLOADS[name].has_moving == bool(network.moving)
    assert sum(expected_counts(name, 11)) + 1 == REPORTED[name]
    assert WORKLOADS[name].flops_a_sample({"dataset": "cifar10"}) == network.flops_an_image


def test_a_network_with_another_number_of_classes_has_the_numbers_that_were_reported(tf):
    assert sum(counts_of(network_of("resnet20", 11))) + 1 == REPORTED["resnet20"]


def test_alexnet_for_imagenet_has_the_parameters_and_flops_of_its_layers(tf):
    network = network_of("alexnet", data_format="NCHW")
    kernels = ((363, 64, 55), (25 * 64, 192, 27), (9 * 192, 384, 13), (9 * 384, 384, 13), (9 * 384, 256, 13))
    matrices = ((36 * 256, 4096), (4096, 4096), (4096, 1000))
    of_convolutions = sum((inputs + 1) * outputs for inputs, outputs, _ in kernels)
    assert counts_of(network) == (of_convolutions + sum((rows + 1) * columns for rows, columns in matrices), 0)
    products = [size**2 * inputs * outputs for inputs, outputs, size in kernels] + [r * c for r, c in matrices]
    assert network.flops_an_image == 6 * sum(products) - 2 * products[0]
    assert WORKLOADS["alexnet"].flops_a_sample({"dataset": "imagenet"}) == network.flops_an_image


def test_depths_that_do_not_exist_are_errors(tf):
    from rnn_scaling.models.images import densenet, resnet_cifar

    for depth in (2, 21):
        with pytest.raises(ValueError, match=f"expected 6n . 2 layers, got {depth}"):
            resnet_cifar.body(depth)
    with pytest.raises(ValueError, match="expected 3n . 4 layers, got 41"):
        densenet.body(41, 12)


@pytest.mark.usefixtures("as_built")
@pytest.mark.parametrize(("name", "learning_rate"), [("resnet20", 0.1), ("densenet40_k12", 0.1), ("alexnet", 0.02)])
def test_the_loss_of_a_batch_falls_and_the_graph_has_the_flops_that_are_told(tf, name, learning_rate):
    from rnn_scaling.models.workload import first_values

    batch_size = 4
    network = network_of(name, dataset="cifar10")
    random = np.random.default_rng(1)
    images = tf.constant(random.uniform(-1, 1, (batch_size, 32, 32, 3)).astype(np.float32))
    labels = tf.constant(random.integers(0, 10, batch_size))
    weights = {key: tf.Variable(value) for key, value in first_values(network.variables, 1).items()}
    averages = {key: tf.Variable(value) for key, value in first_values(network.moving, 1).items()}

    @tf.function(autograph=False)
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
    assert traced_flops(graph) == network.flops_an_image * batch_size
    losses = [float(step()) for _ in range(6)]
    assert losses[-1] < 0.8 * losses[0], losses
