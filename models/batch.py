"""The batches that a tower computes on, and the sides of a text.

T: longest sentence of the batch or --pad_to, B: sentences. Ids are `[T, B]` in a
time-major model and `[B, T]` otherwise. Positions at or after a sentence's length are
padding: they contain any id and count neither as items nor in the loss.

Word ids are int64 and lengths int32. On GPUs many of TensorFlow's ops store int32
tensors in host memory, so int32 ids would be copied there and back in each step.
Lengths are int32 because cuDNN needs them as int32 in host memory.

Data sources make these batches, and workloads read them; `layout` describes their
fields.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple


class Batch(NamedTuple):
    """Sentence pairs."""

    source: Any  # [Ts, B] source words
    source_length: Any  # [B], each >= 1
    target_input: Any  # [Tt, B] begin-of-sentence word, then the target words
    target_output: Any  # [Tt, B] the target words, then the end-of-sentence word
    target_length: Any  # [B], each >= 1; the end-of-sentence word is counted


class TargetBatch(NamedTuple):
    """Sentences of the target side; `Batch` describes the fields."""

    target_input: Any
    target_output: Any
    target_length: Any


class ImageBatch(NamedTuple):
    """Images with the numbers of their classes; H = W, C is 3."""

    images: Any  # [B, H, W, C], or [B, C, H, W] with --data_format=NCHW; float32
    labels: Any  # [B] int64


@dataclasses.dataclass(frozen=True)
class Side:
    """One side of the text."""

    name: str  # "src" or "tgt", the prefix of options such as --src_max_len
    vocab_size: int  # ids are smaller
    predicted: bool  # whether the next word is predicted at each position
    vocabulary: str = ""  # name of the side whose vocabulary it shares, if any


SeedOf = Callable[[int], Any]
"""Number of a stream -> two int64 seed words for its random numbers."""
