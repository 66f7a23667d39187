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


def _lm_flops(options: Mapping[str, Any]) -> float:
    return _target_flops(options, options["num_encoder_layers"])


_SOURCE_SIDE = ("src_vocab_size", "src_max_len", "src_file_name", "src_vocab_file")

WORKLOADS = {
    "nmt": Entry(
        "models.seq2seq",
        "translation, a recurrent encoder-decoder",
        "words",
        "source and target tokens without padding",
        "sentence pairs",
        _nmt_flops,
        ("decoder_type", "direction", "num_decoder_layers", *_SOURCE_SIDE),
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
