"""Parameters and multiply-adds of every image network against published numbers and docs."""

import functools
import math
import re

import pytest

from rnn_scaling.models import workloads
from rnn_scaling.models.workloads import WORKLOADS
from tests.support.configs import resolve
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
def build_network(name, dataset):
    options = {"model": name, "dataset": dataset}
    config = resolve(options).model
    return workloads.load(name).build(config, "CPU")


@functools.cache
def count_products(network):
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
        network.compute_logits(weights, images, tensorflow.constant([0, 0]))
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
    return trained, moving, sum(count_products(network))


@every_case
def test_a_network_is_what_the_table_says(tf, name, dataset):
    network = build_network(name, dataset)
    entry = WORKLOADS[name]
    assert network.image_size == entry.image_sizes[dataset]
    assert network.num_classes == CLASSES[dataset]
    first, *others = count_products(network)
    assert entry.flops_per_sample({"dataset": dataset}) == 4 * first + 6 * sum(others)
    assert entry.has_moving == bool(network.moving)


@pytest.mark.parametrize("name", [name for name in NAMES if name in PUBLISHED])
def test_a_network_has_the_published_numbers(tf, name):
    """Multiply-adds within 2 %, since they are published with two or three digits."""
    parameters, billions = PUBLISHED[name]
    trained, moving, multiply_adds = counts_of(build_network(name, "imagenet"))
    assert trained + moving == parameters
    assert billions is None or multiply_adds == pytest.approx(billions * 1e9, rel=0.02)


@pytest.mark.parametrize("name", REPORTED)
def test_a_network_for_eleven_classes_has_the_reported_numbers(tf, monkeypatch, name):
    monkeypatch.setattr(
        workloads, "find_image_size_and_classes", lambda *names: (32, 11)
    )
    network = build_network.__wrapped__(name, "cifar10")
    trained, moving, _ = counts_of(network)
    assert trained + moving + 1 == REPORTED[name]


def test_the_document_has_these_numbers(tf):
    text = (ROOT / "docs/results/networks.md").read_text()
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
        trained, moving, multiply_adds = counts_of(build_network(name, dataset))
        digits = 0
        if multiply_adds < 1e8:
            digits = 3 if multiply_adds < 1e6 else 1
        millions = f"{multiply_adds / 1e6:,.{digits}f}"
        assert numbers == [f"{trained:,}", f"{moving:,}", millions], name
