"""What can be trained: name of a workload -> its module and what is to be known of it before that loads.

A new workload is one file, whose `build(config, device_type)` returns a `models.workload.Workload`, and one line here.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from rnn_scaling.models.unit_types import UNIT_TYPES


@dataclasses.dataclass(frozen=True)
class Entry:
    """One workload on paper.

    Attributes:
      module: where `build` is.
      help: what it is, in a few words.
      unit: what is counted, as in words/s.
      items: which these are.
      samples: what a batch holds, as in "32 sentence pairs a step".
      flops_a_sample: flat options -> FLOPs of forward and backward of the longest sample; as `Workload.flops_per_item`
        says of its items, but without TensorFlow.
      reads: options that not every workload reads.
      datasets: of images, the default one first; empty: its data are text.
      batch_sizes: of images, by the presets that there are of them.
      needs_keras: whether its module imports Keras, which other runs do without.
      has_moving: whether each tower keeps averages, as a batch normalisation does.
    """

    module: str
    help: str
    unit: str
    items: str
    samples: str
    flops_a_sample: Callable[[Mapping[str, Any]], float]
    reads: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    batch_sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    needs_keras: bool = False
    has_moving: bool = False


def _stack_flops(options: Mapping[str, Any], cells: int, directions: int = 1) -> float:
    """FLOPs of a word's way through so many cells, forward and backward: 6 for each weight of a matrix."""
    units, embedding = options["num_units"], options["embedding_dim"]
    first, others = directions * (embedding + units), (cells - directions) * (directions + 1) * units
    return 6.0 * UNIT_TYPES[options["unit_type"]].matrices * units * (first + others)


def _target_flops(options: Mapping[str, Any], cells: int) -> float:
    return options["tgt_max_len"] * (
        _stack_flops(options, cells) + 6.0 * options["num_units"] * options["tgt_vocab_size"]
    )


def _nmt_flops(options: Mapping[str, Any]) -> float:
    directions = 2 if options["direction"] == "bi" else 1
    encoder = options["src_max_len"] * _stack_flops(options, options["num_encoder_layers"], directions)
    return encoder + _target_flops(options, options["num_decoder_layers"])


def _attention_flops(options: Mapping[str, Any]) -> float:
    """As nmt's; besides, each pair of a source and a target word costs a score and a weighing of the memory."""
    units, embedding = options["num_units"], options["embedding_dim"]
    directions = 2 if options["direction"] == "bi" else 1
    source_words, target_words = options["src_max_len"], options["tgt_max_len"]
    is_gnmt, is_luong = options["attention_architecture"] == "gnmt_v2", options["attention"] == "luong"
    encoder_layers, decoder_layers = options["num_encoder_layers"], options["num_decoder_layers"]
    if is_gnmt:
        inputs = [embedding] * directions + [directions * units] * (encoder_layers > 1) + [units] * (encoder_layers - 2)
        memory = units if encoder_layers > 1 else directions * units
        decoder_inputs = [embedding] + [units + memory] * (decoder_layers - 1)
    else:
        inputs = [embedding] * directions + [directions * units] * (encoder_layers - directions)
        memory = directions * units
        decoder_inputs = [embedding + (units if is_luong else memory)] + [units] * (decoder_layers - 1)
    columns = UNIT_TYPES[options["unit_type"]].matrices * units
    source = memory * units + sum(columns * (width + units) for width in inputs)
    target = units * options["tgt_vocab_size"] + sum(columns * (width + units) for width in decoder_inputs)
    target += units * units * (not is_luong) + (memory + units) * units * (not is_gnmt)
    return 6.0 * (source_words * source + target_words * target + source_words * target_words * (units + memory))


def _lm_flops(options: Mapping[str, Any]) -> float:
    return _target_flops(options, options["num_encoder_layers"])


_SOURCE_SIDE = ("src_vocab_size", "src_max_len", "src_file_name", "src_vocab_file")
_TRANSLATION = ("decoder_type", "direction", "num_decoder_layers", "share_embedding", *_SOURCE_SIDE)
_TARGET_SIDE = ("pad_to", "tgt_vocab_size", "tgt_max_len", "tgt_file_name", "tgt_vocab_file")
_RECURRENT = (
    *("unit_type", "encoder_type", "num_encoder_layers", "num_units", "embedding_dim"),
    *("dropout", "forget_bias", "time_major"),
)
_IMAGES = ("data_format", "dataset")


def _image_entry(
    module: str,
    help: str,
    flops_an_image: Mapping[str, float],
    batch_sizes: Mapping[str, int],
    needs_keras: bool = False,
    has_moving: bool = True,
) -> Entry:
    """The row of a network that classifies images.

    Args:
      flops_an_image: dataset -> FLOPs of forward and backward, as `models.images.network.flops` counts them.
    """
    datasets = tuple(flops_an_image)
    return Entry(
        f"rnn_scaling.models.images.{module}",
        help,
        "images",
        "images of all batches",
        "images",
        lambda options: flops_an_image[options["dataset"] or datasets[0]],
        _IMAGES,
        datasets,
        batch_sizes,
        needs_keras,
        has_moving,
    )


def _keras_entry(help: str, flops_an_image: float, has_moving: bool = True) -> Entry:
    batch_sizes = {"small": 8, "seed": 32}
    return _image_entry("keras_applications", help, {"imagenet": flops_an_image}, batch_sizes, True, has_moving)


def _cifar10_entry(module: str, help: str, flops_an_image: float) -> Entry:
    return _image_entry(module, help, {"cifar10": flops_an_image}, {"small": 32, "seed": 128})


_PAIRS = ("words", "source and target tokens without padding", "sentence pairs")  # unit, items and samples
WORKLOADS = {
    "nmt": Entry(
        "rnn_scaling.models.seq2seq",
        "translation, a recurrent encoder-decoder",
        *_PAIRS,
        _nmt_flops,
        (*_TRANSLATION, *_TARGET_SIDE, *_RECURRENT),
    ),
    "nmt_attention": Entry(
        "rnn_scaling.models.nmt_attention",
        "translation with attention, GNMT v2 among its shapes",
        *_PAIRS,
        _attention_flops,
        (
            *("attention", "attention_architecture", "normalize_attention", "biases_per_gate"),
            *(*_TRANSLATION, *_TARGET_SIDE, *_RECURRENT),
        ),
    ),
    "lm": Entry(
        "rnn_scaling.models.language_model",
        "a recurrent language model of the target side",
        "tokens",
        "words and the end of each sentence without padding",
        "sentences",
        _lm_flops,
        (*_TARGET_SIDE, *_RECURRENT),
    ),
    "inception3": _keras_entry("Inception v3", 34_240_933_248),
    "resnet50": _keras_entry("ResNet-50", 22_911_811_584),
    "resnet101_v2": _keras_entry("ResNet-101 v2", 42_930_831_360),
    "vgg16": _keras_entry("VGG-16", 92_648_177_664, has_moving=False),
    "vgg19": _keras_entry("VGG-19", 117_618_966_528, has_moving=False),
    "alexnet": _image_entry(
        "alexnet",
        "AlexNet",
        {"imagenet": 4_892_179_200, "cifar10": 186_838_272},
        {"small": 32, "seed": 128},
        has_moving=False,
    ),
    "resnet20": _cifar10_entry("resnet_cifar", "ResNet-20", 242_421_504),
    "resnet32": _cifar10_entry("resnet_cifar", "ResNet-32", 412_290_816),
    "resnet44": _cifar10_entry("resnet_cifar", "ResNet-44", 582_160_128),
    "resnet56": _cifar10_entry("resnet_cifar", "ResNet-56", 752_029_440),
    "resnet110": _cifar10_entry("resnet_cifar", "ResNet-110", 1_516_441_344),
    "densenet40_k12": _cifar10_entry("densenet", "DenseNet-40, growth 12", 908_449_632),
    "densenet100_k12": _cifar10_entry("densenet", "DenseNet-100, growth 12", 5_758_476_192),
}
DATASETS = ("imagenet", "cifar10")


def readers_of(option: str) -> str:
    """Which workloads read an option, as the beginning of its help: "nmt, lm", or "images" where all of these do."""
    readers = [name for name, entry in WORKLOADS.items() if option in entry.reads]
    return "images" if option in _IMAGES else ", ".join(readers)


def dataset_of(workload: str, dataset: str | None) -> str | None:
    """The images of a workload: `dataset`, or its own where none is named; None where its data are text."""
    entry = WORKLOADS.get(workload)
    return (dataset or entry.datasets[0]) if entry and entry.datasets else None


def load(name: str) -> ModuleType:
    """Imports and returns the module of the workload `name`; ValueError if there is none."""
    if name not in WORKLOADS:
        raise ValueError(f"expected one of {', '.join(WORKLOADS)}, got {name!r}")
    return importlib.import_module(WORKLOADS[name].module)
