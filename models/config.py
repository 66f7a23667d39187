"""The options of the network; each field is a flag with a help text and a record entry.

Records and command lines of users contain the names of the fields: never rename one.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

from rnn_scaling.models.kernels import KERNELS, UNIT_TYPES
from rnn_scaling.models.workloads import DATASETS, WORKLOADS, option_readers


def option(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    parse: Callable[[str], Any] | None = None,
    shown: str = "",
    bare: bool = False,
    whole: bool = False,
) -> Any:
    """Declare one field of an options dataclass.

    Args:
      default: The value without the flag. None if it is resolved from other options.
      help: One sentence for `--help`, with the unit of a quantity.
      parse: Text -> value, if the type is not enough. The message of its ValueError
        continues "must be".
      shown: The value's placeholder in the help.
      bare: Whether the flag may be used without a value, which means "true".
      whole: Whether the text is one value although the field is a list.
    """
    metadata = {
        "help": help,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "parse": parse,
        "shown": shown,
        "bare": bare,
        "whole": whole,
    }
    return dataclasses.field(default=default, metadata=metadata)


_WIDTHS: dict[str, Any] = {"minimum": 1, "maximum": 1_048_576}
_DEPTHS: dict[str, Any] = {"minimum": 1, "maximum": 128}
_VOCABULARIES: dict[str, Any] = {"minimum": 4, "maximum": 2_147_483_647}


def _describe_workloads() -> str:
    """Return the workloads in words, grouped by unit and family."""
    units = []
    by_unit = itertools.groupby(WORKLOADS.items(), lambda item: item[1].unit)
    for unit, workloads in by_unit:
        families = []
        for family, members in itertools.groupby(workloads, lambda item: item[1].help):
            names = ", ".join(name for name, _ in members)
            families.append(f"{names} ({family})")
        units.append(f"counting {unit}: {'; '.join(families)}")
    return "; ".join(units)


_CELLS = ", ".join(f"{name} ({cell.help})" for name, cell in UNIT_TYPES.items())
_KERNELS = ", ".join(f"{name} ({kernel.help})" for name, kernel in KERNELS.items())


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Model: network, kernels, sizes and precision."""

    model: str = option("nmt", _describe_workloads(), choices=tuple(WORKLOADS))
    unit_type: str = option(
        "lstm",
        f"{option_readers('unit_type')}: cell of every layer: {_CELLS}",
        choices=tuple(UNIT_TYPES),
    )
    encoder_type: str | None = option(
        None,
        f"{option_readers('encoder_type')}: implementation of the encoder's layers (lm: "
        f"of all layers): {_KERNELS}; default: the first one that computes the cell. "
        "Older names: bi and uni mean dynamic_rnn with that direction",
        choices=(*KERNELS, "bi", "uni"),
    )
    decoder_type: str | None = option(
        None,
        "nmt, nmt_attention: implementation of the decoder; default: like the encoder",
        choices=tuple(KERNELS),
    )
    direction: str = option(
        "bi",
        "nmt, nmt_attention: direction of the encoder's layers; with gnmt_v2, of the first layer only",
        choices=("uni", "bi"),
    )
    num_encoder_layers: int = option(
        2,
        f"{option_readers('num_encoder_layers')}: number of cells in the "
        "encoder (with bi, two per layer); for lm, gnmt_v2 and transformer, number of layers",
        **_DEPTHS,
    )
    num_decoder_layers: int = option(
        2,
        f"{option_readers('num_decoder_layers')}: number of cells in the decoder, "
        "which must equal the number in the encoder; for gnmt_v2 and transformer, any "
        "number of layers",
        **_DEPTHS,
    )
    attention: str = option(
        "luong",
        "nmt_attention: luong (multiplicative, with input feeding) or bahdanau (additive)",
        choices=("luong", "bahdanau"),
    )
    attention_architecture: str = option(
        "standard",
        "nmt_attention: standard (the decoder's top layer attends) or gnmt_v2 (the "
        "decoder's first layer attends, the other layers read its context; residual connections, projection with bias)",
        choices=("standard", "gnmt_v2"),
    )
    normalize_attention: bool = option(
        False,
        "nmt_attention: with --attention=bahdanau, normalise the score vector and add a scale and a bias",
    )
    biases_per_gate: int = option(
        1,
        "nmt_attention: number of biases per LSTM gate; with 2, as in cuDNN and PyTorch, their sum is used",
        minimum=1,
        maximum=2,
    )
    share_embedding: bool = option(
        False, "nmt, nmt_attention: use one embedding for both sides"
    )
    num_heads: int = option(
        4,
        f"{option_readers('num_heads')}: heads of every attention layer; must divide num_units",
        minimum=1,
        maximum=1_024,
    )
    filter_size: int = option(
        1024,
        f"{option_readers('filter_size')}: inner width of a feed-forward network",
        **_WIDTHS,
    )
    num_units: int = option(
        256,
        f"{option_readers('num_units')}: hidden size of each cell; for transformer, width of all layers and embeddings",
        **_WIDTHS,
    )
    embedding_dim: int = option(
        256, f"{option_readers('embedding_dim')}: size of a word's embedding", **_WIDTHS
    )
    src_vocab_size: int = option(
        8000, "nmt, nmt_attention: words in the source vocabulary", **_VOCABULARIES
    )
    tgt_vocab_size: int = option(
        8000,
        f"{option_readers('tgt_vocab_size')}: words in the target vocabulary; for "
        "transformer, in the shared vocabulary",
        **_VOCABULARIES,
    )
    dropout: float = option(
        0.0,
        f"{option_readers('dropout')}: share of each recurrent layer's inputs that "
        "dropout sets to zero; for transformer, "
        "of the embedded words and of each sublayer's output",
        minimum=0.0,
        maximum=0.99,
    )
    forget_bias: float = option(
        1.0,
        f"{option_readers('forget_bias')}, with lstm and layer_norm_lstm: added to the forget gate before its sigmoid",
    )
    time_major: bool = option(
        True,
        f"{option_readers('time_major')}: store activations as [time, batch, units]; "
        "false: as [batch, time, units]",
    )
    data_format: str = option(
        "NHWC",
        f"{option_readers('data_format')}: order of the axes of images and activations",
        choices=("NHWC", "NCHW"),
    )
    dataset: str | None = option(
        None,
        f"{option_readers('dataset')}: imagenet (1000 classes, the network's usual size) or cifar10 (10 classes, "
        "32 x 32); default: the first one that the network supports",
        choices=tuple(DATASETS),
    )
    compute_dtype: str = option(
        "float32",
        "data type of the towers' arithmetic; variables stay float32; float16 uses "
        "loss scaling (--loss_scale)",
        choices=("float32", "bfloat16", "float16"),
    )
    accuracy: bool = option(
        False,
        "report accuracy: the share of words or images of the training batches that are predicted correctly",
    )
    label_smoothing: float = option(
        0.0,
        "label smoothing: share of each target that is spread evenly over all words or classes",
        minimum=0.0,
        maximum=0.99,
    )
    xla: bool = option(False, "let XLA compile the parts of the step that it supports")
    forward_only: bool = option(
        False,
        "evaluate: each tower computes only the forward pass and the loss, without dropout; nothing is updated",
    )
    decode: bool = option(
        False,
        f"{option_readers('decode')}: each tower translates its source sentences, and "
        "tokens of the best translations are "
        "counted; --tgt_max_len is the longest translation",
    )
    beam_size: int = option(
        1,
        "decode: hypotheses kept per sentence; 1: greedy search",
        minimum=1,
        maximum=1_024,
    )
    length_penalty: float = option(
        0.0,
        "decode: a hypothesis of n words is ranked by its log probability / ((5 + n) / 6)^penalty (Wu et al. 2016)",
        minimum=0.0,
        maximum=10.0,
    )

    @property
    def trains(self) -> bool:
        """Whether the run updates the network."""
        return not (self.forward_only or self.decode)


GNMT_V2: dict[str, Any] = {
    "model": "nmt_attention",
    "num_encoder_layers": 4,
    "num_decoder_layers": 4,
    "attention": "bahdanau",
    "attention_architecture": "gnmt_v2",
    "normalize_attention": True,
    "biases_per_gate": 2,
    "share_embedding": True,
    "num_units": 1024,
    "embedding_dim": 1024,
    "src_vocab_size": 32_320,
    "tgt_vocab_size": 32_320,
    "dropout": 0.2,
    "forget_bias": 0.0,
}
"""The network of NVIDIA's and MLPerf's GNMT: 160,671,297 parameters."""

_LAYERS = {
    "model": "transformer",
    "num_encoder_layers": 6,
    "num_decoder_layers": 6,
    "tgt_vocab_size": 32_000,
}
_BASE = {
    "num_units": 512,
    "num_heads": 8,
    "filter_size": 2048,
    "dropout": 0.1,
    "label_smoothing": 0.1,
}
_BIG = {
    "num_units": 1024,
    "num_heads": 16,
    "filter_size": 4096,
    "dropout": 0.3,
    "label_smoothing": 0.1,
}
TRANSFORMER_BASE: dict[str, Any] = {**_LAYERS, **_BASE}
TRANSFORMER_BIG: dict[str, Any] = {**_LAYERS, **_BIG}
"""The models of Vaswani et al., arXiv:1706.03762, table 3: 60,485,632 and 209,051,648 parameters."""
