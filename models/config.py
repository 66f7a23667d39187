"""What the network is: one frozen dataclass whose fields become flags, help text and record entries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from rnn_scaling.models.kernels import KERNELS
from rnn_scaling.models.unit_types import UNIT_TYPES
from rnn_scaling.models.workloads import DATASETS, WORKLOADS, readers_of


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
    """Declares one field of an options dataclass.

    Args:
      default: value when the flag is not given; None means "resolved from other options".
      help: one sentence for `--help`, with the unit where there is one.
      parse: text -> value, where the type alone does not say it; a ValueError says what the text "must be".
      bare: it may stand without a value and then is "true".
    """
    metadata: dict[str, Any] = {"help": help, "choices": choices, "minimum": minimum, "maximum": maximum}
    metadata |= {"parse": parse, "shown": shown, "bare": bare, "whole": whole}
    return dataclasses.field(default=default, metadata=metadata)


def _workloads_in_words() -> str:
    """The workloads by what they count, those of one family together."""
    families: dict[tuple[str, str], list[str]] = {}
    for name, entry in WORKLOADS.items():
        families.setdefault((entry.unit, entry.help), []).append(name)
    by_unit: dict[str, list[str]] = {}
    for (unit, family), names in families.items():
        by_unit.setdefault(unit, []).append(f"{', '.join(names)} ({family})")
    return "; ".join(f"counting {unit}: {'; '.join(members)}" for unit, members in by_unit.items())


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Model: network, kernels, sizes and precision."""

    model: str = option("nmt", _workloads_in_words(), choices=tuple(WORKLOADS))
    unit_type: str = option(
        "lstm",
        f"{readers_of('unit_type')}: cell of every layer: "
        f"{' or '.join(f'{name} ({cell.help})' for name, cell in UNIT_TYPES.items())}",
        choices=tuple(UNIT_TYPES),
    )
    encoder_type: str | None = option(
        None,
        f"{readers_of('encoder_type')}: kernel of the encoder, or of the layers of lm: "
        f"{' or '.join(f'{name} ({kernel.help})' for name, kernel in KERNELS.items())}; bi and uni mean "
        "dynamic_rnn with that direction; the first of these that computes the cell when not given",
        choices=(*KERNELS, "bi", "uni"),
    )
    decoder_type: str | None = option(
        None, "nmt, nmt_attention: kernel of the decoder; as the encoder when not given", choices=tuple(KERNELS)
    )
    direction: str = option(
        "bi", "nmt, nmt_attention: direction of the encoder's layers, with gnmt_v2 of the first", choices=("uni", "bi")
    )
    num_encoder_layers: int = option(
        2,
        f"{readers_of('num_encoder_layers')}: cells of the encoder, with bi 4 are 2 bidirectional layers; layers of "
        "lm, gnmt_v2 and transformer",
        minimum=1,
        maximum=128,
    )
    num_decoder_layers: int = option(
        2,
        f"{readers_of('num_decoder_layers')}: cells of the decoder, equal to those of the encoder; gnmt_v2 and "
        "transformer: layers, any number",
        minimum=1,
        maximum=128,
    )
    attention: str = option(
        "luong",
        "nmt_attention: luong (multiplicative, with input feeding) or bahdanau (additive)",
        choices=("luong", "bahdanau"),
    )
    attention_architecture: str = option(
        "standard",
        "nmt_attention: standard (each step of the decoder reads what the one before attended to) or gnmt_v2 (the "
        "decoder's first layer attends, the others read it; residual connections, projection with bias)",
        choices=("standard", "gnmt_v2"),
    )
    normalize_attention: bool = option(
        False, "nmt_attention: with --attention=bahdanau, a normalised score vector with a scale and a bias"
    )
    biases_per_gate: int = option(
        1, "nmt_attention: biases of an LSTM's gate; 2, whose sum acts, as cuDNN and PyTorch have", minimum=1, maximum=2
    )
    share_embedding: bool = option(False, "nmt, nmt_attention: both sides look up one embedding")
    num_heads: int = option(
        4, f"{readers_of('num_heads')}: heads of every attention; they divide num_units", minimum=1, maximum=1_024
    )
    filter_size: int = option(
        1024, f"{readers_of('filter_size')}: inner width of a feed-forward network", minimum=1, maximum=1_048_576
    )
    num_units: int = option(
        256,
        f"{readers_of('num_units')}: hidden size of each cell; of transformer the width of all layers and embeddings",
        minimum=1,
        maximum=1_048_576,
    )
    embedding_dim: int = option(
        256, f"{readers_of('embedding_dim')}: size of a word's embedding", minimum=1, maximum=1_048_576
    )
    src_vocab_size: int = option(
        8000, "nmt, nmt_attention: words in the source vocabulary", minimum=4, maximum=2_147_483_647
    )
    tgt_vocab_size: int = option(
        8000,
        f"{readers_of('tgt_vocab_size')}: words in the target vocabulary; of transformer in that of both sides",
        minimum=4,
        maximum=2_147_483_647,
    )
    dropout: float = option(
        0.0,
        f"{readers_of('dropout')}: share of each recurrent layer's inputs set to zero while training; of transformer "
        "of its embedded words and of what each sublayer adds",
        minimum=0.0,
        maximum=0.99,
    )
    forget_bias: float = option(
        1.0, f"{readers_of('forget_bias')}: of lstm and layer_norm_lstm, added to the forget gate before its sigmoid"
    )
    time_major: bool = option(
        True, f"{readers_of('time_major')}: keep activations [time, batch, units]; false: [batch, time, units]"
    )
    data_format: str = option(
        "NHWC",
        f"{readers_of('data_format')}: order of the axes of images and of what is made of them",
        choices=("NHWC", "NCHW"),
    )
    dataset: str | None = option(
        None,
        f"{readers_of('dataset')}: what they are like, imagenet (1000 classes, as large as the network wants) or "
        "cifar10 (10 classes, 32 x 32); the network's own when not given",
        choices=tuple(DATASETS),
    )
    compute_dtype: str = option(
        "float32",
        "arithmetic of the towers; variables stay float32. float16 runs with --loss_scale",
        choices=("float32", "bfloat16", "float16"),
    )
    accuracy: bool = option(
        False, "count right predictions, of words or images of the training batches: accuracy in records and tables"
    )
    label_smoothing: float = option(
        0.0, "share of each target that the loss spreads over all words or classes", minimum=0.0, maximum=0.99
    )
    xla: bool = option(False, "let XLA cluster and compile what it can of the step")
    forward_only: bool = option(
        False,
        "evaluate: each tower computes the forward pass and the loss alone, without dropout, and nothing is updated",
    )
    decode: bool = option(
        False,
        f"{readers_of('decode')}: each tower translates its source sentences, and tokens of the best translations are "
        "counted; --tgt_max_len is the longest translation",
    )
    beam_size: int = option(
        1,
        "decode: hypotheses that are kept of each sentence; 1: greedy search",
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

_LAYERS = {"model": "transformer", "num_encoder_layers": 6, "num_decoder_layers": 6, "tgt_vocab_size": 32_000}
_BASE = {"num_units": 512, "num_heads": 8, "filter_size": 2048, "dropout": 0.1, "label_smoothing": 0.1}
_BIG = {"num_units": 1024, "num_heads": 16, "filter_size": 4096, "dropout": 0.3, "label_smoothing": 0.1}
TRANSFORMER_BASE: dict[str, Any] = {**_LAYERS, **_BASE}
TRANSFORMER_BIG: dict[str, Any] = {**_LAYERS, **_BIG}
"""The models of Vaswani et al., arXiv:1706.03762, table 3: 60,485,632 and 209,051,648 parameters."""
