"""What one tower computes on in one step, and how a data source makes it for any workload.

Word ids are int64 and lengths int32. On GPUs many of TensorFlow's ops keep int32 tensors in host memory: int32 ids
would be copied there and back in each step. Lengths are int32 because cuDNN wants them so, and on the host.

T is the longest sentence of the batch, B the sentences. Ids are `[T, B]` when the model is time-major and `[B, T]`
otherwise. Positions at or after a sentence's length are padding: any id, never counted and never in the loss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Batch(NamedTuple):
    """Sentence pairs."""

    source: Any  # [Ts, B] source words
    source_length: Any  # [B], each >= 1
    target_input: Any  # [Tt, B] begin-of-sentence word, then the target words
    target_output: Any  # [Tt, B] the target words, then the end-of-sentence word
    target_length: Any  # [B], each >= 1; the end-of-sentence word is counted


class TargetBatch(NamedTuple):
    """Sentences of the target side alone; the fields are those of `Batch`."""

    target_input: Any
    target_output: Any
    target_length: Any


@dataclasses.dataclass(frozen=True)
class Side:
    """One side of the text.

    Attributes:
      name: "src" or "tgt", as in --src_max_len.
      vocab_size: ids are below it.
      predicted: whether the next word is predicted at each of its words.
    """

    name: str
    vocab_size: int
    predicted: bool


@dataclasses.dataclass(frozen=True)
class Layout:
    """How batches are made of the sides of the text.

    Attributes:
      sides: in the order of the batch's fields. A side gives its words and their lengths; one that is predicted gives
        its words twice, after the begin-of-sentence word and before the end-of-sentence word.
      type: of the batches, a NamedTuple; the names of lengths end with "_length".
    """

    sides: tuple[Side, ...]
    type: Callable[..., Any]
    labels = ("target_output",)  # what the loss alone reads

    def batch(self, parts: Iterable[Iterable[Any]]) -> Any:
        """A batch of what each side gives."""
        return self.type(*(part for side in parts for part in side))

    def replace_lengths(self, batch: Any, lengths: Iterable[Any]) -> Any:
        """The batch with other lengths, one for each side."""
        names = [name for name in batch._fields if name.endswith("_length")]
        return batch._replace(**dict(zip(names, lengths, strict=True)))


def sample_axis(part: Any, time_major: bool) -> int:
    """The axis of one of a batch's parts, or of logits, along which the samples lie."""
    return 1 if time_major and part.shape.rank >= 2 else 0
