"""What can be trained: name of a workload -> its module and what is to be known of it before that loads.

A new workload is one file, whose `build(config, device_type)` returns a `models.workload.Workload`, and one line here.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from models.unit_types import UNIT_TYPES


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
    """

    module: str
    help: str
    unit: str
    items: str
    samples: str
    flops_a_sample: Callable[[Mapping[str, Any]], float]
    reads: tuple[str, ...] = ()


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
    units, embedding, directions = (
        options["num_units"],
        options["embedding_dim"],
        2 if options["direction"] == "bi" else 1,
    )
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

WORKLOADS = {
    "nmt": Entry(
        "models.seq2seq",
        "translation, a recurrent encoder-decoder",
        "words",
        "source and target tokens without padding",
        "sentence pairs",
        _nmt_flops,
        _TRANSLATION,
    ),
    "nmt_attention": Entry(
        "models.nmt_attention",
        "translation with attention, GNMT v2 among its shapes",
        "words",
        "source and target tokens without padding",
        "sentence pairs",
        _attention_flops,
        ("attention", "attention_architecture", "normalize_attention", "biases_per_gate", *_TRANSLATION),
    ),
    "lm": Entry(
        "models.language_model",
        "a recurrent language model of the target side",
        "tokens",
        "words and the end of each sentence without padding",
        "sentences",
        _lm_flops,
    ),
}


def load(name: str) -> ModuleType:
    """Imports and returns the module of the workload `name`.

    Raises:
      ValueError: if the table has no such name.
    """
    if name not in WORKLOADS:
        raise ValueError(f"expected one of {', '.join(WORKLOADS)}, got {name!r}")
    return importlib.import_module(WORKLOADS[name].module)
