"""Parameters and multiply-adds of every image network against published numbers and docs."""

from __future__ import annotations

import functools
import math
import re

import pytest

from rnn_scaling.config import run_config as configs
from rnn_scaling.models import workloads
from rnn_scaling.models.workloads import WORKLOADS
from tests.support.paths import ROOT

# Two networks of each family; deeper ones repeat their blocks.
NAMES = ["alexnet", "densenet40_k12", "densenet100_k24", "inception3", "resnet20"]
NAMES += ["resnet50", "resnet50_v2", "resnet110", "vgg16"]
CASES = [(name, dataset) for name in NAMES for dataset in WORKLOADS[name].datasets]
every_case = pytest.mark.parametrize("name, dataset", CASES)
CLASSES = {"imagenet": 1000, "cifar10": 10}

# (parameters with moving averages, billions of multiply-adds per image of ImageNet)
PUBLISHED = {
    # count_params() of keras.applications; He and others, arXiv:1512.03385, table 1.
    "resnet50": (25_636_712, 3.8),
    # count_params() of keras.applications; multiply-adds of these strides are unpublished.
    "resnet50_v2": (25_613_800, None),
    # count_params() of keras.applications; the model card of timm.
    "inception3": (23_851_784, 5.7),
    # Simonyan and Zisserman, arXiv:1409.1556, table 2; the model cards of timm.
    "vgg16": (138_357_544, 15.5),
}
# Parameters that users of tf_cnn_benchmarks report: variables and moving averages for eleven
# classes (one is "background"), and the number of the step.
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


@functools.cache
def network_of(name, dataset):
    options = {"model": name, "dataset": dataset}
    config = configs.resolve(options, num_gpus=0, num_cores=1).model
    return workloads.load(name).build(config, "CPU")


@functools.cache
def products_of(network):
    """Return multiply-adds per image of each product; the first product reads the image."""
    import tensorflow

    if keras_model := getattr(network, "model", None):
        return [
            math.prod(layer.output.shape[1:-1]) * math.prod(layer.kernel.shape)
            for layer in keras_model.layers
            if hasattr(layer, "kernel")
        ]
    with tensorflow.Graph().as_default() as graph:
        weights = {
            spec.name: tensorflow.zeros(spec.shape)
            for spec in (*network.variables, *network.moving)
        }
        images = tensorflow.zeros([1, network.image_size, network.image_size, 3])
        network.logits(weights, images, tensorflow.constant([0, 0]))
    products = [op for op in graph.get_operations() if op.type in ("Conv2D", "MatMul")]
    return [
        math.prod(op.outputs[0].shape[:-1]) * math.prod(op.inputs[1].shape)
        for op in products
    ]


def counts_of(network):
    """Return trained numbers, moving numbers and multiply-adds per image."""
    trained, moving = (
        sum(math.prod(spec.shape) for spec in specs)
        for specs in (network.variables, network.moving)
    )
    return trained, moving, sum(products_of(network))


def biased_layers(convolutions, matrices):
    """Return the counts of layers with a bias.

    Args:
      convolutions: (inputs of a window, channels, positions) per layer.
      matrices: (inputs, outputs) per layer.
    """
    layers = [*convolutions, *((inputs, outputs, 1) for inputs, outputs in matrices)]
    trained = sum((inputs + 1) * outputs for inputs, outputs, _ in layers)
    return trained, 0, sum(map(math.prod, layers))


def alexnet(size, classes):
    if size == 32:
        convolutions = [(75, 64, 32**2), (25 * 64, 64, 16**2)]
        matrices = [(64 * 64, 384), (384, 192), (192, classes)]
        return biased_layers(convolutions, matrices)
    convolutions = [(363, 64, 55**2), (25 * 64, 192, 27**2)]
    for inputs, outputs in ((192, 384), (384, 384), (384, 256)):
        convolutions.append((9 * inputs, outputs, 13**2))
    matrices = [(36 * 256, 4096), (4096, 4096), (4096, classes)]
    return biased_layers(convolutions, matrices)


def cifar_resnet(num_layers, size, classes):
    n = (num_layers - 2) // 6
    kernels = [(27 * 16, 32), *[(9 * 16 * 16, 32)] * (2 * n)]
    for channels, side in ((32, 16), (64, 8)):
        kernels.append((9 * channels * channels // 2, side))
        kernels += [(9 * channels * channels, side)] * (2 * n - 1)
    normalized = 16 + 2 * n * (16 + 32 + 64)
    trained = sum(weights for weights, _ in kernels)
    trained += 2 * normalized + (64 + 1) * classes
    multiply_adds = sum(weights * side**2 for weights, side in kernels)
    return trained, 2 * normalized, multiply_adds + 64 * classes


def densenet(depth, growth, size, classes):
    n = (depth - 4) // 3
    last = 16
    trained = (27 + 1) * 16
    normalized = 0
    multiply_adds = 27 * 16 * size**2
    for block in range(3):
        if block:
            trained += (last + 1) * 2 * growth
            multiply_adds += last * 2 * growth * size**2
            size //= 2
            last = 2 * growth
        # The sum of the input channels of all layers in the block.
        inputs = n * last + growth * n * (n - 1) // 2
        last += n * growth
        trained += 9 * inputs * growth + n * growth
        multiply_adds += 9 * inputs * growth * size**2
        normalized += inputs + last
    trained += 2 * normalized + (last + 1) * classes
    return trained, 2 * normalized, multiply_adds + last * classes


CLOSED_FORMS = {"alexnet": alexnet}
for _depth in (20, 32, 44, 56, 110):
    CLOSED_FORMS[f"resnet{_depth}"] = functools.partial(cifar_resnet, _depth)
for _depth, _k in ((40, 12), (100, 12), (100, 24)):
    CLOSED_FORMS[f"densenet{_depth}_k{_k}"] = functools.partial(densenet, _depth, _k)


@every_case
def test_a_network_is_what_the_table_says(tf, name, dataset):
    network = network_of(name, dataset)
    entry = WORKLOADS[name]
    assert network.image_size == entry.image_sizes[dataset]
    assert network.num_classes == CLASSES[dataset]
    first, *others = products_of(network)
    assert entry.flops_per_sample({"dataset": dataset}) == 4 * first + 6 * sum(others)
    assert entry.has_moving == bool(network.moving)


@pytest.mark.parametrize("name", [name for name in NAMES if name in PUBLISHED])
def test_a_network_has_the_published_numbers(tf, name):
    """Multiply-adds within 2 %, since they are published with two or three digits."""
    parameters, billions = PUBLISHED[name]
    trained, moving, multiply_adds = counts_of(network_of(name, "imagenet"))
    assert trained + moving == parameters
    assert billions is None or multiply_adds == pytest.approx(billions * 1e9, rel=0.02)


@every_case
def test_an_own_network_has_the_numbers_of_its_closed_form(tf, name, dataset):
    if name not in CLOSED_FORMS:
        assert name in PUBLISHED
        return
    size = WORKLOADS[name].image_sizes[dataset]
    expected = CLOSED_FORMS[name](size, CLASSES[dataset])
    assert counts_of(network_of(name, dataset)) == expected


@pytest.mark.parametrize("name", REPORTED)
def test_closed_forms_for_eleven_classes_have_the_reported_numbers(name):
    trained, moving, _ = CLOSED_FORMS[name](32, 11)
    assert trained + moving + 1 == REPORTED[name]


def test_the_document_has_these_numbers(tf):
    text = (ROOT / "docs" / "results" / "networks.md").read_text()
    rows = re.findall(
        r"^\| `([\w.]+)` \| (\d+) \| ([\d,]+) \| ([\d,]+) \| ([\d,.]+) \|",
        text,
        flags=re.MULTILINE,
    )
    assert len(rows) == sum(len(entry.datasets) for entry in WORKLOADS.values())
    for name, size, *numbers in rows:
        sizes = WORKLOADS[name].image_sizes
        dataset = {pixels: dataset for dataset, pixels in sizes.items()}[int(size)]
        flops = WORKLOADS[name].flops_per_sample({"dataset": dataset})
        # The first layer has four FLOPs per multiply-add, other layers six.
        written = 6e6 * float(numbers[2].replace(",", ""))
        assert flops == pytest.approx(written, rel=0.06), name
        if name not in NAMES:
            continue
        trained, moving, multiply_adds = counts_of(network_of(name, dataset))
        digits = 0
        if multiply_adds < 1e8:
            digits = 3 if multiply_adds < 1e6 else 1
        millions = f"{multiply_adds / 1e6:,.{digits}f}"
        assert numbers == [f"{trained:,}", f"{moving:,}", millions], name
