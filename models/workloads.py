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


def _cell_weights(options: Mapping[str, Any], input_widths: Sequence[int]) -> int:
    """Return the weights of the matrices of cells with these widths of their inputs."""
    units = options["num_units"]
    rows = sum(width + units for width in input_widths)
    return int(UNIT_TYPES[options["unit_type"]].matrices * units * rows)


def _num_directions(options: Mapping[str, Any]) -> int:
    return 2 if options["direction"] == "bi" else 1


def _encoder_widths(options: Mapping[str, Any]) -> list[int]:
    """Return the widths that the cells of nmt's encoder read."""
    directions = _num_directions(options)
    above = options["num_encoder_layers"] - directions
    first = [options["embedding_dim"]] * directions
    return first + [directions * options["num_units"]] * above


def _decoder_weights(options: Mapping[str, Any], num_cells: int) -> int:
    """Return the weights that a target word meets in the cells and the projection."""
    units = options["num_units"]
    widths = [options["embedding_dim"]] + [units] * (num_cells - 1)
    return int(_cell_weights(options, widths) + units * options["tgt_vocab_size"])


def _nmt_flops(options: Mapping[str, Any]) -> float:
    source = _cell_weights(options, _encoder_widths(options))
    target = _decoder_weights(options, options["num_decoder_layers"])
    return 6.0 * (options["src_max_len"] * source + options["tgt_max_len"] * target)


def _lm_flops(options: Mapping[str, Any]) -> float:
    weights = _decoder_weights(options, options["num_encoder_layers"])
    return 6.0 * options["tgt_max_len"] * weights


def _attention_flops(options: Mapping[str, Any]) -> float:
    """Return the FLOPs of nmt_attention.

    Each pair of a source and a target word costs a score and a weighing of the memory.
    """
    units = options["num_units"]
    embedding = options["embedding_dim"]
    both = _num_directions(options) * units
    decoder_above = options["num_decoder_layers"] - 1
    is_luong = options["attention"] == "luong"
    encoder_widths = _encoder_widths(options)
    memory = both
    output = (memory + units) * units
    if options["attention_architecture"] == "gnmt_v2":
        layers_above = options["num_encoder_layers"] - 1
        encoder_widths = [embedding] * _num_directions(options)
        if layers_above:
            encoder_widths += [both] + [units] * (layers_above - 1)
            memory = units
        decoder_widths = [embedding] + [units + memory] * decoder_above
        output = 0
    else:
        fed = units if is_luong else memory
        decoder_widths = [embedding + fed] + [units] * decoder_above
    query = 0 if is_luong else units * units
    source = memory * units + _cell_weights(options, encoder_widths)
    target = _cell_weights(options, decoder_widths) + query + output
    target += units * options["tgt_vocab_size"]
    pair = units + memory
    source_words = options["src_max_len"]
    target_words = options["tgt_max_len"]
    return 6.0 * (
        source_words * source
        + target_words * target
        + source_words * target_words * pair
    )


def _transformer_flops(options: Mapping[str, Any]) -> float:
    """Return the FLOPs of transformer.

    The decoder's layers also have a query and an output [D, D] per target word, and
    [D, 2D] per source word.
    """
    width = options["num_units"]
    source = options["src_max_len"]
    target = options["tgt_max_len"]
    encoder_layers = options["num_encoder_layers"]
    decoder_layers = options["num_decoder_layers"]
    square = width**2
    layer = 4 * square + 2 * width * options["filter_size"]
    per_source = encoder_layers * layer + decoder_layers * 2 * square
    per_target = decoder_layers * (layer + 2 * square)
    per_target += width * options["tgt_vocab_size"]
    pairs = encoder_layers * source**2 + decoder_layers * target * (source + target)
    return 6.0 * (source * per_source + target * per_target + 2 * width * pairs)


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


_LARGE = 5e9
"""FLOPs of an image of ImageNet, above which the default batches are smaller."""


def _image_entry(
    module: str,
    help: str,
    imagenet: tuple[int, float] | None,
    cifar10: float | None,
    has_moving: bool = True,
    smallest_image: int = 0,
) -> Entry:
    """Return the row of a network that classifies images.

    Args:
      module: In models/images/.
      help: The family; names of one family are listed together.
      imagenet: Pixels of a side of these images, and the FLOPs of one.
      cifar10: FLOPs of one of these images. None if the network cannot read them.
      has_moving: See `Entry`, as `smallest_image`.
    """
    sized = {"imagenet": imagenet} if imagenet else {}
    sized |= {"cifar10": (32, cifar10)} if cifar10 else {}
    is_large = imagenet is not None and imagenet[1] > _LARGE
    return Entry(
        f"rnn_scaling.models.images.{module}",
        help,
        "images",
        "images of all batches",
        "images",
        lambda options: sized[options["dataset"] or next(iter(sized))][1],
        _IMAGES,
        image_sizes={dataset: size for dataset, (size, _) in sized.items()},
        smallest_image=smallest_image,
        batch_sizes={"small": 8, "seed": 32}
        if is_large
        else {"small": 32, "seed": 128},
        needs_keras=module == _KERAS,
        has_moving=has_moving,
    )


_KERAS = "keras_applications"
_OWN = "own_networks"
# Unit, items and samples.
_PAIRS = ("words", "source and target tokens without padding", "sentence pairs")
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
        _lm_flops,
        (*_TARGET_SIDE, *_RECURRENT),
    ),
    "resnet50": _image_entry(_KERAS, "ResNet", (224, 22_911_811_584), 467_460_096),
    "resnet101": _image_entry(_KERAS, "ResNet", (224, 45_185_138_688), 922_017_792),
    "resnet152": _image_entry(_KERAS, "ResNet", (224, 67_458_465_792), 1_376_575_488),
    "resnet50_v2": _image_entry(
        _KERAS, "ResNet v2", (224, 20_657_504_256), 421_453_824
    ),
    "resnet101_v2": _image_entry(
        _KERAS, "ResNet v2", (224, 42_930_831_360), 876_011_520
    ),
    "resnet152_v2": _image_entry(
        _KERAS, "ResNet v2", (224, 65_204_158_464), 1_330_569_216
    ),
    "inception3": _image_entry(
        _KERAS, "Inception v3", (299, 34_240_933_248), None, smallest_image=75
    ),
    "vgg16": _image_entry(
        _KERAS, "VGG", (224, 92_648_177_664), 1_989_132_288, has_moving=False
    ),
    "vgg19": _image_entry(
        _KERAS, "VGG", (224, 117_618_966_528), 2_498_740_224, has_moving=False
    ),
    "alexnet": _image_entry(
        _OWN, "AlexNet", (227, 4_892_179_200), 186_838_272, has_moving=False
    ),
    "resnet20": _image_entry(_OWN, "ResNet for CIFAR-10", None, 242_421_504),
    "resnet32": _image_entry(_OWN, "ResNet for CIFAR-10", None, 412_290_816),
    "resnet44": _image_entry(_OWN, "ResNet for CIFAR-10", None, 582_160_128),
    "resnet56": _image_entry(_OWN, "ResNet for CIFAR-10", None, 752_029_440),
    "resnet110": _image_entry(_OWN, "ResNet for CIFAR-10", None, 1_516_441_344),
    "densenet40_k12": _image_entry(_OWN, "DenseNet for CIFAR-10", None, 908_449_632),
    "densenet100_k12": _image_entry(_OWN, "DenseNet for CIFAR-10", None, 5_758_476_192),
    "densenet100_k24": _image_entry(
        _OWN, "DenseNet for CIFAR-10", None, 22_344_351_552
    ),
}
# Networks of earlier versions. Their records are still read.
FORMER_WORKLOADS = (
    "googlenet",
    "inception4",
    "lenet",
    "mobilenet",
    "overfeat",
    "resnet110_v2",
    "resnet20_v2",
    "resnet32_v2",
    "resnet44_v2",
    "resnet50_v1.5",
    "resnet56_v2",
    "trivial",
    "vgg11",
)
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
