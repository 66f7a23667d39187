"""What one tower computes on in one step, and what a data source must know of it.

Word ids are int64 and lengths int32. On GPUs many of TensorFlow's ops keep int32 tensors in host memory: int32 ids
would be copied there and back in each step. Lengths are int32 because cuDNN wants them so, and on the host.

T is the longest sentence of the batch or --pad_to, B the sentences. Ids are `[T, B]` when the model is time-major and
`[B, T]` otherwise. Positions at or after a sentence's length are padding: any id, never counted and never in the loss.
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
    """Sentences of the target side alone; the fields are those of `Batch`."""

    target_input: Any
    target_output: Any
    target_length: Any


class ImageBatch(NamedTuple):
    """Images, each with the number of its class; H = W, C is 3."""

    images: Any  # [B, H, W, C], or [B, C, H, W] with --data_format=NCHW; float32
    labels: Any  # [B] int64


@dataclasses.dataclass(frozen=True)
class Side:
    """One side of the text."""

    name: str  # "src" or "tgt", as in --src_max_len
    vocab_size: int  # ids are below it
    predicted: bool  # whether the next word is predicted at each of its words
    vocabulary: str = ""  # name of the side whose vocabulary it has, as in --tgt_vocab_file; "": its own


SeedOf = Callable[
    [int], Any
]  # number of a stream, 0 or 1 -> two int64 seed words for its random numbers
