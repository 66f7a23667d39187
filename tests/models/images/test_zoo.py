"""Parameters and multiply-adds of every image network: published numbers, closed forms, and docs/workloads.md."""

from __future__ import annotations

import functools
import math
import re

import pytest

from rnn_scaling.config import run_config as configs
from rnn_scaling.models import workloads
from rnn_scaling.models.workloads import WORKLOADS
from tests.support.paths import ROOT

CASES = [
    (name, dataset) for name, entry in WORKLOADS.items() for dataset in entry.datasets
]
every_case = pytest.mark.parametrize("name, dataset", CASES)
CLASSES = {"imagenet": 1000, "cifar10": 10}

# name -> (parameters with moving averages, billions of multiply-adds of an image of ImageNet)
PUBLISHED = {
    # count_params() of keras.applications; He and others, arXiv:1512.03385, table 1.
    "resnet50": (25_636_712, 3.8),
    "resnet101": (44_707_176, 7.6),
    "resnet152": (60_419_944, 11.3),
    # count_params() of keras.applications; none publishes multiply-adds of these strides.
    "resnet50_v2": (25_613_800, None),
    "resnet101_v2": (44_675_560, None),
    "resnet152_v2": (60_380_648, None),
    # count_params() of keras.applications; the model card of timm.
    "inception3": (23_851_784, 5.7),
    # Simonyan and Zisserman, arXiv:1409.1556, table 2; the model cards of timm.
    "vgg16": (138_357_544, 15.5),
    "vgg19": (143_667_240, 19.6),
}
# Parameters that users of tf_cnn_benchmarks report: variables and moving averages, of eleven classes (the eleventh is
# "background"), and the number of the step.
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
    config = configs.resolve(
        {"model": name, "dataset": dataset}, num_gpus=0, num_cores=1
    ).model
    return workloads.load(name).build(config, "CPU")


def products_of(network):
    """Multiply-adds of an image in each convolution and matrix product of a network, the first of which reads it."""
    import tensorflow

    if keras_model := getattr(network, "model", None):
        layers = [layer for layer in keras_model.layers if hasattr(layer, "kernel")]
        return [
            math.prod(layer.output.shape[1:-1]) * math.prod(layer.kernel.shape)
            for layer in layers
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
    """(trained numbers, moving numbers, multiply-adds of an image)."""
    trained, moving = (
        sum(math.prod(spec.shape) for spec in specs)
        for specs in (network.variables, network.moving)
    )
    return trained, moving, sum(products_of(network))


def of_layers(convolutions, matrices):
    """Counts of biased layers. convolutions: (inputs of a window, channels, positions). matrices: (inputs, outputs)."""
    layers = [*convolutions, *((inputs, outputs, 1) for inputs, outputs in matrices)]
    trained = sum((inputs + 1) * outputs for inputs, outputs, _ in layers)
    return (
        trained,
        0,
        sum(inputs * outputs * positions for inputs, outputs, positions in layers),
    )


def alexnet(size, classes):
    if size == 32:
        return of_layers(
            [(75, 64, 32**2), (25 * 64, 64, 16**2)],
            [(64 * 64, 384), (384, 192), (192, classes)],
        )
    convolutions = [(363, 64, 55**2), (25 * 64, 192, 27**2)]
    convolutions += [
        (9 * inputs, outputs, 13**2)
        for inputs, outputs in ((192, 384), (384, 384), (384, 256))
    ]
    return of_layers(convolutions, [(36 * 256, 4096), (4096, 4096), (4096, classes)])


def cifar_resnet(num_layers, size, classes):
    n = (num_layers - 2) // 6
    kernels = [(27 * 16, 32), *[(9 * 16 * 16, 32)] * (2 * n)]
    for channels, side in ((32, 16), (64, 8)):
        kernels += [
            (9 * channels * channels // 2, side),
            *[(9 * channels * channels, side)] * (2 * n - 1),
        ]
    normalized = 16 + 2 * n * (16 + 32 + 64)
    trained = (
        sum(weights for weights, _ in kernels) + 2 * normalized + (64 + 1) * classes
    )
    return (
        trained,
        2 * normalized,
        sum(weights * side**2 for weights, side in kernels) + 64 * classes,
    )


def densenet(depth, growth, size, classes):
    n, last = (depth - 4) // 3, 16
    trained, normalized, multiply_adds = (27 + 1) * 16, 0, 27 * 16 * size**2
    for block in range(3):
        if block:
            trained += (last + 1) * 2 * growth
            multiply_adds += last * 2 * growth * size**2
            size, last = size // 2, 2 * growth
        inputs = n * last + growth * n * (n - 1) // 2  # of all layers of the block
        last += n * growth
        trained += 9 * inputs * growth + n * growth
        multiply_adds += 9 * inputs * growth * size**2
        normalized += inputs + last
    return (
        trained + 2 * normalized + (last + 1) * classes,
        2 * normalized,
        multiply_adds + last * classes,
    )


P = functools.partial
CLOSED_FORMS = {
    "alexnet": alexnet,
    **{f"resnet{depth}": P(cifar_resnet, depth) for depth in (20, 32, 44, 56, 110)},
    **{
        f"densenet{depth}_k{k}": P(densenet, depth, k)
        for depth, k in ((40, 12), (100, 12), (100, 24))
    },
}


@every_case
def test_a_network_is_what_the_table_says(tf, name, dataset):
    network, entry = network_of(name, dataset), WORKLOADS[name]
    assert (network.image_size, network.num_classes) == (
        entry.image_sizes[dataset],
        CLASSES[dataset],
    )
    first, *others = products_of(network)
    assert entry.flops_a_sample({"dataset": dataset}) == 4 * first + 6 * sum(others)
    assert entry.has_moving == bool(network.moving)


@pytest.mark.parametrize("name", PUBLISHED)
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
    want = CLOSED_FORMS[name](size, CLASSES[dataset])
    assert counts_of(network_of(name, dataset)) == want


@pytest.mark.parametrize("name", REPORTED)
def test_eleven_classes_have_the_numbers_that_were_reported(name):
    trained, moving, _ = CLOSED_FORMS[name](32, 11)
    assert trained + moving + 1 == REPORTED[name]


def test_the_document_has_these_numbers(tf):
    text = (ROOT / "docs" / "workloads.md").read_text()
    rows = re.findall(
        r"^\| `([\w.]+)` \| (\d+) \| ([\d,]+) \| ([\d,]+) \| ([\d,.]+) \|",
        text,
        flags=re.MULTILINE,
    )
    assert len(rows) == len(CASES)
    for name, size, *numbers in rows:
        [dataset] = [
            dataset
            for dataset, pixels in WORKLOADS[name].image_sizes.items()
            if pixels == int(size)
        ]
        trained, moving, multiply_adds = counts_of(network_of(name, dataset))
        digits = 3 if multiply_adds < 1e6 else 1 if multiply_adds < 1e8 else 0
        assert numbers == [
            f"{trained:,}",
            f"{moving:,}",
            f"{multiply_adds / 1e6:,.{digits}f}",
        ], (name, dataset)
