"""The options of the network; each field is a flag with a help text and a record entry.

Records and command lines of users contain the names of the fields: never rename one.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

from rnn_scaling.models.encoder_table import ENCODERS, UNIT_TYPES
from rnn_scaling.models.workloads import DATASETS, WORKLOADS, name_readers


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
_ENCODERS = ", ".join(f"{name} ({kernel.help})" for name, kernel in ENCODERS.items())


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Model: network, kernels, sizes and precision."""

    model: str = option("nmt", _describe_workloads(), choices=tuple(WORKLOADS))
    unit_type: str = option(
        "lstm",
        f"cell of every recurrent layer: {_CELLS}; only for "
        f"{name_readers('unit_type')}",
        choices=tuple(UNIT_TYPES),
    )
    encoder_type: str | None = option(
        None,
        "implementation of the encoder's layers (lm: of all layers): "
        f"{_ENCODERS}; default: the first one that computes the cell. bi and "
        "uni are older names of dynamic_rnn with that --direction. Only for "
        f"{name_readers('encoder_type')}",
        choices=(*ENCODERS, "bi", "uni"),
    )
    decoder_type: str | None = option(
        None,
        "implementation of the decoder's layers; default: the same as in the "
        f"encoder; only for {name_readers('decoder_type')}",
        choices=tuple(ENCODERS),
    )
    direction: str = option(
        "bi",
        "direction of the encoder's layers (with gnmt_v2, of the first "
        "layer): uni (forward) or bi (both directions); only for "
        f"{name_readers('direction')}",
        choices=("uni", "bi"),
    )
    num_encoder_layers: int = option(
        2,
        "number of cells in the encoder (with --direction=bi, two per layer); "
        "for lm, gnmt_v2 and transformer, the number of layers; only for "
        f"{name_readers('num_encoder_layers')}",
        **_DEPTHS,
    )
    num_decoder_layers: int = option(
        2,
        "number of cells in the decoder, which must equal "
        "--num_encoder_layers; for gnmt_v2 and transformer, any number of "
        f"layers; only for {name_readers('num_decoder_layers')}",
        **_DEPTHS,
    )
    attention: str = option(
        "luong",
        "attention scores: luong (multiplicative, with input feeding) or "
        f"bahdanau (additive); only for {name_readers('attention')}",
        choices=("luong", "bahdanau"),
    )
    attention_architecture: str = option(
        "standard",
        "place of the attention: standard (the decoder's top layer attends) "
        "or gnmt_v2 (the decoder's first layer attends, and the other layers "
        "read its context; with residual connections and a projection with "
        f"bias); only for {name_readers('attention_architecture')}",
        choices=("standard", "gnmt_v2"),
    )
    normalize_attention: bool = option(
        False,
        "normalise the score vector of --attention=bahdanau, and add a scale "
        f"and a bias; only for {name_readers('normalize_attention')}",
    )
    biases_per_gate: int = option(
        1,
        "number of biases per LSTM gate: 1, or 2 as in cuDNN and PyTorch, "
        f"which are added; only for {name_readers('biases_per_gate')}",
        minimum=1,
        maximum=2,
    )
    share_embedding: bool = option(
        False,
        "use one embedding for source and target words; only for "
        f"{name_readers('share_embedding')}",
    )
    num_heads: int = option(
        4,
        "number of heads in every attention layer, a divisor of --num_units; "
        f"only for {name_readers('num_heads')}",
        minimum=1,
        maximum=1_024,
    )
    filter_size: int = option(
        1024,
        "inner width of the feed-forward layers; only for "
        f"{name_readers('filter_size')}",
        **_WIDTHS,
    )
    num_units: int = option(
        256,
        "hidden size of each cell; for transformer, the width of all layers "
        f"and embeddings; only for {name_readers('num_units')}",
        **_WIDTHS,
    )
    embedding_dim: int = option(
        256,
        f"size of a word's embedding; only for {name_readers('embedding_dim')}",
        **_WIDTHS,
    )
    src_vocab_size: int = option(
        8000,
        "number of words in the source vocabulary; only for "
        f"{name_readers('src_vocab_size')}",
        **_VOCABULARIES,
    )
    tgt_vocab_size: int = option(
        8000,
        "number of words in the target vocabulary; for transformer, in the "
        f"vocabulary of both sides; only for {name_readers('tgt_vocab_size')}",
        **_VOCABULARIES,
    )
    dropout: float = option(
        0.0,
        "share of each recurrent layer's inputs that dropout sets to zero, "
        "such as 0.2; for transformer, of the embedded words and of each "
        f"sublayer's output; only for {name_readers('dropout')}",
        minimum=0.0,
        maximum=0.99,
    )
    forget_bias: float = option(
        1.0,
        "number that is added to the forget gate before its sigmoid; only for "
        "--unit_type=lstm or layer_norm_lstm, and "
        f"{name_readers('forget_bias')}",
    )
    time_major: bool = option(
        True,
        "store activations as [time, batch, units]; false: as [batch, time, "
        f"units]; only for {name_readers('time_major')}",
    )
    data_format: str = option(
        "NHWC",
        "order of the axes of images and activations: channels last (NHWC) or "
        f"first (NCHW); only for {name_readers('data_format')}",
        choices=("NHWC", "NCHW"),
    )
    dataset: str | None = option(
        None,
        "kind of images: imagenet (1000 classes, the network's usual size) or "
        "cifar10 (10 classes, 32 x 32); default: the first one that the "
        f"network supports; only for {name_readers('dataset')}",
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
        "record and report the accuracy: the share of words or images of the "
        "training batches that are predicted correctly",
    )
    label_smoothing: float = option(
        0.0,
        "label smoothing: the share of each target that is spread evenly over "
        "all words or classes, such as 0.1",
        minimum=0.0,
        maximum=0.99,
    )
    xla: bool = option(
        False,
        "let XLA compile the parts of the step that it supports; takes longer to start",
    )
    forward_only: bool = option(
        False,
        "evaluate instead of training: each tower computes only the forward "
        "pass and the loss, without dropout, and nothing is updated",
    )
    decode: bool = option(
        False,
        "translate instead of training: each tower translates its source "
        "sentences, and the tokens of the best translations are counted; "
        "--tgt_max_len limits their length; only for "
        f"{name_readers('decode')}",
    )
    beam_size: int = option(
        1,
        "number of hypotheses that --decode keeps per sentence; 1: greedy search",
        minimum=1,
        maximum=1_024,
    )
    length_penalty: float = option(
        0.0,
        "penalty with which --decode ranks a hypothesis of n words, by its "
        "log probability / ((5 + n) / 6)^penalty (Wu et al. 2016); a larger "
        "penalty favours longer translations",
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
"""The models of Vaswani et al., arXiv:1706.03762, table 3.

They have 60,485,632 and 209,051,648 parameters.
"""
