"""What can be trained: name of a workload -> its module and what is to be known of it before that loads.

A new workload is one file, whose `build(config, device_type)` returns a `models.workload.Workload`, and one line here.
"""

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from rnn_scaling.models.kernels import UNIT_TYPES


@dataclasses.dataclass(frozen=True)
class Entry:
    module: str  # where `build` is
    help: str  # what it is, in a few words
    unit: str  # what is counted, as in words/s
    items: str  # which these are
    samples: str  # what a batch holds, as in "32 sentence pairs a step"
    # Flat options -> FLOPs of the longest sample's matrix products, forward and backward: 6 for each weight at each
    # position, 4 for those that meet an image, whose gradient is not computed. Nothing else is counted.
    flops_a_sample: Callable[[Mapping[str, Any]], float]
    reads: tuple[str, ...] = ()  # options that not every workload reads
    # Height and width in pixels by the dataset of images, the default one first; empty: its data are text.
    image_sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    smallest_image: int = 0  # height and width that the layers need, where a dataset has smaller ones; otherwise 0
    batch_sizes: Mapping[str, int] = dataclasses.field(
        default_factory=dict
    )  # of images, by presets
    needs_keras: bool = (
        False  # whether its module imports Keras, which other runs do without
    )
    has_moving: bool = (
        False  # whether each tower keeps averages, as a batch normalisation does
    )

    @property
    def datasets(self) -> tuple[str, ...]:
        return tuple(self.image_sizes)


def _stack_flops(options: Mapping[str, Any], cells: int, directions: int = 1) -> float:
    """FLOPs of a word's way through so many cells, forward and backward: 6 for each weight of a matrix."""
    units, embedding = options["num_units"], options["embedding_dim"]
    first, others = (
        directions * (embedding + units),
        (cells - directions) * (directions + 1) * units,
    )
    return 6.0 * UNIT_TYPES[options["unit_type"]].matrices * units * (first + others)


def _target_flops(options: Mapping[str, Any], cells: int) -> float:
    return options["tgt_max_len"] * (
        _stack_flops(options, cells)
        + 6.0 * options["num_units"] * options["tgt_vocab_size"]
    )


def _nmt_flops(options: Mapping[str, Any]) -> float:
    directions = 2 if options["direction"] == "bi" else 1
    encoder = options["src_max_len"] * _stack_flops(
        options, options["num_encoder_layers"], directions
    )
    return encoder + _target_flops(options, options["num_decoder_layers"])


def _attention_flops(options: Mapping[str, Any]) -> float:
    """As nmt's; besides, each pair of a source and a target word costs a score and a weighing of the memory."""
    units, embedding = options["num_units"], options["embedding_dim"]
    directions = 2 if options["direction"] == "bi" else 1
    source_words, target_words = options["src_max_len"], options["tgt_max_len"]
    is_gnmt, is_luong = (
        options["attention_architecture"] == "gnmt_v2",
        options["attention"] == "luong",
    )
    encoder_layers, decoder_layers = (
        options["num_encoder_layers"],
        options["num_decoder_layers"],
    )
    if is_gnmt:
        inputs = (
            [embedding] * directions
            + [directions * units] * (encoder_layers > 1)
            + [units] * (encoder_layers - 2)
        )
        memory = units if encoder_layers > 1 else directions * units
        decoder_inputs = [embedding] + [units + memory] * (decoder_layers - 1)
    else:
        inputs = [embedding] * directions + [directions * units] * (
            encoder_layers - directions
        )
        memory = directions * units
        decoder_inputs = [embedding + (units if is_luong else memory)] + [units] * (
            decoder_layers - 1
        )
    columns = UNIT_TYPES[options["unit_type"]].matrices * units
    source = memory * units + sum(columns * (width + units) for width in inputs)
    target = units * options["tgt_vocab_size"] + sum(
        columns * (width + units) for width in decoder_inputs
    )
    target += units * units * (not is_luong) + (memory + units) * units * (not is_gnmt)
    return 6.0 * (
        source_words * source
        + target_words * target
        + source_words * target_words * (units + memory)
    )


def _transformer_flops(options: Mapping[str, Any]) -> float:
    """The decoder's layers also have a query and an output [D, D] a target word, and [D, 2D] a source word."""
    width, source, target = (
        options["num_units"],
        options["src_max_len"],
        options["tgt_max_len"],
    )
    encoder_layers, decoder_layers = (
        options["num_encoder_layers"],
        options["num_decoder_layers"],
    )
    square, layer = width**2, 4 * width**2 + 2 * width * options["filter_size"]
    of_source = encoder_layers * layer + decoder_layers * 2 * square
    of_target = (
        decoder_layers * (layer + 2 * square) + width * options["tgt_vocab_size"]
    )
    pairs = encoder_layers * source**2 + decoder_layers * target * (source + target)
    return 6.0 * (source * of_source + target * of_target + 2 * width * pairs)


_SOURCE_TEXT = ("src_max_len", "src_file_name")
_TRANSLATION = (
    *("decoder_type", "direction", "num_decoder_layers", "share_embedding"),
    *("src_vocab_size", "src_vocab_file", *_SOURCE_TEXT),
)
_TARGET_SIDE = (
    "pad_to",
    "tgt_vocab_size",
    "tgt_max_len",
    "tgt_file_name",
    "tgt_vocab_file",
)
_RECURRENT = (
    *("unit_type", "encoder_type", "num_encoder_layers", "num_units", "embedding_dim"),
    *("dropout", "forget_bias", "time_major"),
)
_IMAGES = ("data_format", "dataset")


_LARGE = (
    5e9  # FLOPs of an image of ImageNet, above which the default batches are smaller
)


def _image_entry(
    module: str,
    help: str,
    imagenet: tuple[int, float] | None,
    cifar10: float | None,
    has_moving: bool = True,
    smallest_image: int = 0,
) -> Entry:
    """The row of a network that classifies images.

    Args:
      help: the family; names of one family are listed together.
      imagenet: pixels of a side of these images, and the FLOPs of one.
      cifar10: FLOPs of one of these images. None: the network does not have such images.
    """
    sized = {"imagenet": imagenet} if imagenet else {}
    sized |= {"cifar10": (32, cifar10)} if cifar10 else {}
    return Entry(
        f"rnn_scaling.models.images.{module}",
        help,
        "images",
        "images of all batches",
        "images",
        lambda options: sized[options["dataset"] or next(iter(sized))][1],
        _IMAGES,
        {dataset: size for dataset, (size, _) in sized.items()},
        smallest_image,
        {"small": 8, "seed": 32}
        if imagenet and imagenet[1] > _LARGE
        else {"small": 32, "seed": 128},
        module == "keras_applications",
        has_moving,
    )


_PAIRS = (
    "words",
    "source and target tokens without padding",
    "sentence pairs",
)  # unit, items and samples
WORKLOADS = {
    "nmt": Entry(
        "rnn_scaling.models.seq2seq",
        "translation, a recurrent encoder-decoder",
        *_PAIRS,
        _nmt_flops,
        (*_TRANSLATION, *_TARGET_SIDE, "decode", *_RECURRENT),
    ),
    "nmt_attention": Entry(
        "rnn_scaling.models.nmt_attention",
        "translation with attention, GNMT v2 among its shapes",
        *_PAIRS,
        _attention_flops,
        (
            *(
                "attention",
                "attention_architecture",
                "normalize_attention",
                "biases_per_gate",
            ),
            *(*_TRANSLATION, *_TARGET_SIDE, "decode", *_RECURRENT),
        ),
    ),
    "transformer": Entry(
        "rnn_scaling.models.transformer",
        "translation with attention alone",
        *_PAIRS,
        _transformer_flops,
        (
            *(
                "num_heads",
                "filter_size",
                "num_encoder_layers",
                "num_decoder_layers",
                "num_units",
                "dropout",
            ),
            *(*_SOURCE_TEXT, "decode", *_TARGET_SIDE),
        ),
    ),
    "lm": Entry(
        "rnn_scaling.models.language_model",
        "a recurrent language model of the target side",
        "tokens",
        "words and the end of each sentence without padding",
        "sentences",
        lambda options: _target_flops(options, options["num_encoder_layers"]),
        (*_TARGET_SIDE, *_RECURRENT),
    ),
    "resnet50": _image_entry(
        "keras_applications", "ResNet", (224, 22_911_811_584), 467_460_096
    ),
    "resnet101": _image_entry(
        "keras_applications", "ResNet", (224, 45_185_138_688), 922_017_792
    ),
    "resnet152": _image_entry(
        "keras_applications", "ResNet", (224, 67_458_465_792), 1_376_575_488
    ),
    "resnet50_v2": _image_entry(
        "keras_applications", "ResNet v2", (224, 20_657_504_256), 421_453_824
    ),
    "resnet101_v2": _image_entry(
        "keras_applications", "ResNet v2", (224, 42_930_831_360), 876_011_520
    ),
    "resnet152_v2": _image_entry(
        "keras_applications", "ResNet v2", (224, 65_204_158_464), 1_330_569_216
    ),
    "inception3": _image_entry(
        "keras_applications",
        "Inception v3",
        (299, 34_240_933_248),
        None,
        smallest_image=75,
    ),
    "vgg11": _image_entry(
        "chains", "VGG", (224, 45_481_132_032), 1_026_539_520, has_moving=False
    ),
    "vgg16": _image_entry(
        "keras_applications",
        "VGG",
        (224, 92_648_177_664),
        1_989_132_288,
        has_moving=False,
    ),
    "vgg19": _image_entry(
        "keras_applications",
        "VGG",
        (224, 117_618_966_528),
        2_498_740_224,
        has_moving=False,
    ),
    "mobilenet": _image_entry(
        "keras_applications", "MobileNet v2", (224, 1_782_969_600), 36_307_200
    ),
    "alexnet": _image_entry(
        "alexnet", "AlexNet", (227, 4_892_179_200), 186_838_272, has_moving=False
    ),
    "overfeat": _image_entry(
        "chains",
        "OverFeat",
        (231, 16_589_856_768),
        None,
        has_moving=False,
        smallest_image=71,
    ),
    "lenet": _image_entry(
        "chains", "LeNet-5", (28, 80_443_392), 101_087_232, has_moving=False
    ),
    "trivial": _image_entry(
        "chains", "two dense layers", (227, 25_218_924), 282_624, has_moving=False
    ),
    "resnet20": _image_entry("resnet_cifar", "ResNet for CIFAR-10", None, 242_421_504),
    "resnet32": _image_entry("resnet_cifar", "ResNet for CIFAR-10", None, 412_290_816),
    "resnet44": _image_entry("resnet_cifar", "ResNet for CIFAR-10", None, 582_160_128),
    "resnet56": _image_entry("resnet_cifar", "ResNet for CIFAR-10", None, 752_029_440),
    "resnet110": _image_entry(
        "resnet_cifar", "ResNet for CIFAR-10", None, 1_516_441_344
    ),
    "resnet20_v2": _image_entry(
        "resnet_cifar", "ResNet v2 for CIFAR-10", None, 242_421_504
    ),
    "resnet32_v2": _image_entry(
        "resnet_cifar", "ResNet v2 for CIFAR-10", None, 412_290_816
    ),
    "resnet44_v2": _image_entry(
        "resnet_cifar", "ResNet v2 for CIFAR-10", None, 582_160_128
    ),
    "resnet56_v2": _image_entry(
        "resnet_cifar", "ResNet v2 for CIFAR-10", None, 752_029_440
    ),
    "resnet110_v2": _image_entry(
        "resnet_cifar", "ResNet v2 for CIFAR-10", None, 1_516_441_344
    ),
    "densenet40_k12": _image_entry(
        "densenet", "DenseNet for CIFAR-10", None, 908_449_632
    ),
    "densenet100_k12": _image_entry(
        "densenet", "DenseNet for CIFAR-10", None, 5_758_476_192
    ),
    "densenet100_k24": _image_entry(
        "densenet", "DenseNet for CIFAR-10", None, 22_344_351_552
    ),
}
# Networks of earlier versions. Their records are still read.
FORMER_WORKLOADS = ("googlenet", "inception4", "resnet50_v1.5")
DATASETS = {"imagenet": 1000, "cifar10": 10}  # of images -> classes


def readers_of(option: str) -> str:
    """Which workloads read an option, as the beginning of its help: "nmt, lm", or "images" where all of these do."""
    readers = [name for name, entry in WORKLOADS.items() if option in entry.reads]
    return "images" if option in _IMAGES else ", ".join(readers)


def dataset_of(workload: str, dataset: str | None) -> str | None:
    """The images of a workload: `dataset`, or its own where none is named; None where its data are text."""
    entry = WORKLOADS.get(workload)
    return (dataset or entry.datasets[0]) if entry and entry.datasets else None


def images_of(workload: str, dataset: str | None) -> tuple[int, int]:
    """(height and width, number of classes) of the images of a workload, of `dataset` or of its own."""
    name = dataset or WORKLOADS[workload].datasets[0]
    return WORKLOADS[workload].image_sizes[name], DATASETS[name]


TRANSLATED = "words of the best translations, including each end-of-sentence word"  # items of a decode


def unit_of(options: Mapping[str, Any]) -> str:
    """What a run of these flat options counts: what its workload does, and tokens where it decodes."""
    return "tokens" if options.get("decode") else WORKLOADS[options["model"]].unit


def flops_per_item(options: Mapping[str, Any], lengths: Sequence[int]) -> float:
    """FLOPs of forward and backward for the mean item of samples with so many words on each side; none: of an image."""
    return WORKLOADS[options["model"]].flops_a_sample(options) / (sum(lengths) or 1)


def load(name: str) -> ModuleType:
    """Imports and returns the module of the workload `name`."""
    return importlib.import_module(WORKLOADS[name].module)
