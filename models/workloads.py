"""What can be trained: name of a workload -> its module and what is to be known of it before that loads.

A new workload is one file, whose `build(config, device_type)` returns a `models.workload.Workload`, and one line here.
"""

from __future__ import annotations

import dataclasses
import importlib
from types import ModuleType


@dataclasses.dataclass(frozen=True)
class Entry:
    """One workload on paper.

    Attributes:
      module: where `build` is.
      help: what it is, in a few words.
      unit: what is counted, as in words/s.
      items: which these are.
      samples: what a batch holds, as in "32 sentence pairs a step".
      reads: options that not every workload reads.
    """

    module: str
    help: str
    unit: str
    items: str
    samples: str
    reads: tuple[str, ...] = ()


_SOURCE_SIDE = ("src_vocab_size", "src_max_len", "src_file_name", "src_vocab_file")

WORKLOADS = {
    "nmt": Entry(
        "models.seq2seq",
        "translation, an LSTM encoder-decoder",
        "words",
        "source and target tokens without padding",
        "sentence pairs",
        ("decoder_type", "direction", "num_decoder_layers", *_SOURCE_SIDE),
    ),
    "lm": Entry(
        "models.language_model",
        "an LSTM language model of the target side",
        "tokens",
        "words and the end of each sentence without padding",
        "sentences",
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
