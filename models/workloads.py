"""The table of workloads: the module of each one and the facts needed before it loads.

A new workload is one file, whose `build(config, device_type)` returns a
`models.workload.Workload`, and one row here.

Records contain the names of workloads; one that is removed needs an entry in
FORMER_WORKLOADS.
"""

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from rnn_scaling.models.encoder_table import UNIT_TYPES


@dataclasses.dataclass(frozen=True)
class Entry:
    """A workload.

    Attributes:
      module: The module with `build`.
      help: The kind of network; names of one kind are listed together.
      unit: The unit of its items, in the plural, such as "words".
      items: Definition of its items.
      samples: The samples of a batch, in the plural, such as "sentence pairs".
      flops_per_sample: From flat options: FLOPs of the longest sample's matrix
        products, forward and backward. A weight counts 6 per position, or 4 if it
        multiplies the image, whose gradient is not computed. No other operations count.
      reads: Options that only some workloads read.
      image_sizes: Height and width in pixels per dataset, the default first; empty for
        text.
      smallest_image: Height and width that the layers need if a dataset's images are
        smaller, else 0.
      batch_sizes: Batch sizes for images, by the name of the preset.
      needs_keras: Whether its module imports Keras, which other runs do not load.
      has_moving: Whether towers keep averages, like a batch normalization.
    """

    module: str
    help: str
    unit: str
    items: str
    samples: str
    flops_per_sample: Callable[[Mapping[str, Any]], float]
    reads: tuple[str, ...] = ()
    image_sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    smallest_image: int = 0
    batch_sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    needs_keras: bool = False
    has_moving: bool = False

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets whose images the network reads, the default first."""
        return tuple(self.image_sizes)


def _count_cell_weights(options: Mapping[str, Any], input_widths: Sequence[int]) -> int:
    """Return the number of weights in the matrices of cells with these input widths."""
    units = options["num_units"]
    rows = sum(width + units for width in input_widths)
    return int(UNIT_TYPES[options["unit_type"]].matrices * units * rows)


def _count_directions(options: Mapping[str, Any]) -> int:
    return 2 if options["direction"] == "bi" else 1


def _list_encoder_widths(options: Mapping[str, Any]) -> list[int]:
    """Return the widths that the cells of nmt's encoder read."""
    directions = _count_directions(options)
    num_others = options["num_encoder_layers"] - directions
    first = [options["embedding_dim"]] * directions
    return first + [directions * options["num_units"]] * num_others


def _count_decoder_weights(options: Mapping[str, Any], num_cells: int) -> int:
    """Return the number of weights in the decoder's cells and the projection."""
    units = options["num_units"]
    widths = [options["embedding_dim"]] + [units] * (num_cells - 1)
    return int(_count_cell_weights(options, widths) + units * options["tgt_vocab_size"])


def _count_nmt_flops(options: Mapping[str, Any]) -> float:
    source = _count_cell_weights(options, _list_encoder_widths(options))
    target = _count_decoder_weights(options, options["num_decoder_layers"])
    return 6.0 * (options["src_max_len"] * source + options["tgt_max_len"] * target)


def _count_lm_flops(options: Mapping[str, Any]) -> float:
    weights = _count_decoder_weights(options, options["num_encoder_layers"])
    return 6.0 * options["tgt_max_len"] * weights


def _count_attention_flops(options: Mapping[str, Any]) -> float:
    """Return the FLOPs of nmt_attention.

    Each pair of a source and a target word costs a score and a weighted vector.
    """
    units = options["num_units"]
    embedding = options["embedding_dim"]
    encoder_width = _count_directions(options) * units
    upper_decoder_layers = options["num_decoder_layers"] - 1
    is_luong = options["attention"] == "luong"
    encoder_widths = _list_encoder_widths(options)
    memory = encoder_width
    output = (memory + units) * units
    if options["attention_architecture"] == "gnmt_v2":
        upper_encoder_layers = options["num_encoder_layers"] - 1
        encoder_widths = [embedding] * _count_directions(options)
        if upper_encoder_layers:
            encoder_widths += [encoder_width] + [units] * (upper_encoder_layers - 1)
            memory = units
        decoder_widths = [embedding] + [units + memory] * upper_decoder_layers
        output = 0
    else:
        fed = units if is_luong else memory
        decoder_widths = [embedding + fed] + [units] * upper_decoder_layers
    query = 0 if is_luong else units * units
    source = memory * units + _count_cell_weights(options, encoder_widths)
    target = _count_cell_weights(options, decoder_widths) + query + output
    target += units * options["tgt_vocab_size"]
    pair = units + memory
    source_words = options["src_max_len"]
    target_words = options["tgt_max_len"]
    return 6.0 * (
        source_words * source
        + target_words * target
        + source_words * target_words * pair
    )


def _count_transformer_flops(options: Mapping[str, Any]) -> float:
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
    "decoder_type",
    "direction",
    "num_decoder_layers",
    "share_embedding",
    "src_vocab_size",
    "src_vocab_file",
    *_SOURCE_TEXT,
)
_TARGET_SIDE = (
    "pad_to",
    "tgt_vocab_size",
    "tgt_max_len",
    "tgt_file_name",
    "tgt_vocab_file",
)
_RECURRENT = (
    "unit_type",
    "encoder_type",
    "num_encoder_layers",
    "num_units",
    "embedding_dim",
    "dropout",
    "forget_bias",
    "time_major",
)
_IMAGES = ("data_format", "dataset")
# Networks with more FLOPs per ImageNet image have smaller default batches.
_MIN_FLOPS_OF_LARGE_NETWORK = 5e9


def _make_image_entry(
    module: str,
    help: str,
    imagenet: tuple[int, float] | None,
    cifar10: float | None,
    has_moving: bool = True,
    smallest_image: int = 0,
) -> Entry:
    """Return the row of a network that classifies images.

    Args:
      module: Module in models/images/.
      help: The family; names of one family are listed together.
      imagenet: Height and width in pixels, and FLOPs per image. None if the network
        cannot read ImageNet.
      cifar10: FLOPs per image. None if the network cannot read CIFAR-10.
      has_moving: See `Entry`.
      smallest_image: See `Entry`.
    """
    datasets = {"imagenet": imagenet} if imagenet else {}
    if cifar10:
        datasets["cifar10"] = (32, cifar10)
    is_large = imagenet is not None and imagenet[1] > _MIN_FLOPS_OF_LARGE_NETWORK
    batch_sizes = {"small": 8, "large": 32} if is_large else {"small": 32, "large": 128}
    return Entry(
        f"rnn_scaling.models.images.{module}",
        help,
        "images",
        "images of all batches",
        "images",
        lambda options: datasets[options["dataset"] or next(iter(datasets))][1],
        _IMAGES,
        image_sizes={dataset: size for dataset, (size, _) in datasets.items()},
        smallest_image=smallest_image,
        batch_sizes=batch_sizes,
        needs_keras=module == _KERAS_MODULE,
        has_moving=has_moving,
    )


_KERAS_MODULE = "keras_applications"
_OUR_MODULE = "own_networks"
# Unit, items and samples.
_PAIRS = ("words", "source and target tokens without padding", "sentence pairs")
WORKLOADS = {
    "nmt": Entry(
        "rnn_scaling.models.seq2seq",
        "translation, a recurrent encoder-decoder",
        *_PAIRS,
        _count_nmt_flops,
        (*_TRANSLATION, *_TARGET_SIDE, "decode", *_RECURRENT),
    ),
    "nmt_attention": Entry(
        "rnn_scaling.models.nmt_attention",
        "translation with attention, for example GNMT v2",
        *_PAIRS,
        _count_attention_flops,
        (
            "attention",
            "attention_architecture",
            "normalize_attention",
            "biases_per_gate",
            *(*_TRANSLATION, *_TARGET_SIDE, "decode", *_RECURRENT),
        ),
    ),
    "transformer": Entry(
        "rnn_scaling.models.transformer",
        "translation with only attention",
        *_PAIRS,
        _count_transformer_flops,
        (
            "num_heads",
            "filter_size",
            "num_encoder_layers",
            "num_decoder_layers",
            "num_units",
            "dropout",
            *(*_SOURCE_TEXT, "decode", *_TARGET_SIDE),
        ),
    ),
    "lm": Entry(
        "rnn_scaling.models.language_model",
        "a recurrent language model of the target side",
        "tokens",
        "words and the end of each sentence without padding",
        "sentences",
        _count_lm_flops,
        (*_TARGET_SIDE, *_RECURRENT),
    ),
    "resnet50": _make_image_entry(
        _KERAS_MODULE, "ResNet", (224, 22_911_811_584), 467_460_096
    ),
    "resnet101": _make_image_entry(
        _KERAS_MODULE, "ResNet", (224, 45_185_138_688), 922_017_792
    ),
    "resnet152": _make_image_entry(
        _KERAS_MODULE, "ResNet", (224, 67_458_465_792), 1_376_575_488
    ),
    "resnet50_v2": _make_image_entry(
        _KERAS_MODULE, "ResNet v2", (224, 20_657_504_256), 421_453_824
    ),
    "resnet101_v2": _make_image_entry(
        _KERAS_MODULE, "ResNet v2", (224, 42_930_831_360), 876_011_520
    ),
    "resnet152_v2": _make_image_entry(
        _KERAS_MODULE, "ResNet v2", (224, 65_204_158_464), 1_330_569_216
    ),
    "inception3": _make_image_entry(
        _KERAS_MODULE, "Inception v3", (299, 34_240_933_248), None, smallest_image=75
    ),
    "vgg16": _make_image_entry(
        _KERAS_MODULE, "VGG", (224, 92_648_177_664), 1_989_132_288, has_moving=False
    ),
    "vgg19": _make_image_entry(
        _KERAS_MODULE, "VGG", (224, 117_618_966_528), 2_498_740_224, has_moving=False
    ),
    "alexnet": _make_image_entry(
        _OUR_MODULE, "AlexNet", (227, 4_892_179_200), 186_838_272, has_moving=False
    ),
    "resnet20": _make_image_entry(
        _OUR_MODULE, "ResNet for CIFAR-10", None, 242_421_504
    ),
    "resnet32": _make_image_entry(
        _OUR_MODULE, "ResNet for CIFAR-10", None, 412_290_816
    ),
    "resnet44": _make_image_entry(
        _OUR_MODULE, "ResNet for CIFAR-10", None, 582_160_128
    ),
    "resnet56": _make_image_entry(
        _OUR_MODULE, "ResNet for CIFAR-10", None, 752_029_440
    ),
    "resnet110": _make_image_entry(
        _OUR_MODULE, "ResNet for CIFAR-10", None, 1_516_441_344
    ),
    "densenet40_k12": _make_image_entry(
        _OUR_MODULE, "DenseNet for CIFAR-10", None, 908_449_632
    ),
    "densenet100_k12": _make_image_entry(
        _OUR_MODULE, "DenseNet for CIFAR-10", None, 5_758_476_192
    ),
    "densenet100_k24": _make_image_entry(
        _OUR_MODULE, "DenseNet for CIFAR-10", None, 22_344_351_552
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
# Number of classes per dataset of images.
DATASETS = {"imagenet": 1000, "cifar10": 10}


def name_readers(option: str) -> str:
    """Return the workloads that read an option, for its help text.

    Returns:
      Flags such as "--model=nmt or lm"; "networks of text" or "networks of images" if
      all of them read it.
    """
    if option in _IMAGES:
        return "networks of images"
    readers = [name for name, entry in WORKLOADS.items() if option in entry.reads]
    if all(name in readers for name, entry in WORKLOADS.items() if not entry.datasets):
        return "networks of text"
    *others, last = readers
    return f"--model={', '.join(others)} or {last}" if others else f"--model={last}"


def resolve_dataset(workload: str, dataset: str | None) -> str | None:
    """Return the dataset of images; None for text.

    Args:
      dataset: The value of --dataset. None for the workload's default.
    """
    entry = WORKLOADS.get(workload)
    return (dataset or entry.datasets[0]) if entry and entry.datasets else None


def find_image_size_and_classes(workload: str, dataset: str | None) -> tuple[int, int]:
    """Return the height and width of a workload's images, and the number of classes.

    Args:
      dataset: The value of --dataset. None for the workload's default.
    """
    name = dataset or WORKLOADS[workload].datasets[0]
    return WORKLOADS[workload].image_sizes[name], DATASETS[name]


DECODED_ITEMS = "words of the best translations, including each end-of-sentence word"
"""Definition of the items of a run with --decode."""


def name_item_unit(options: Mapping[str, Any]) -> str:
    """Return the unit of the items of a run with these flat options."""
    return "tokens" if options.get("decode") else WORKLOADS[options["model"]].unit


def count_flops_per_item(options: Mapping[str, Any], lengths: Sequence[int]) -> float:
    """Return the FLOPs of forward and backward per item.

    Args:
      options: Flat options.
      lengths: Words of a sample per side; empty for images.
    """
    return WORKLOADS[options["model"]].flops_per_sample(options) / (sum(lengths) or 1)


def load(name: str) -> ModuleType:
    """Import the module of a workload."""
    return importlib.import_module(WORKLOADS[name].module)
