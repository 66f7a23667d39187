"""One tower's sentence pairs of one step."""

from __future__ import annotations

from typing import Any, NamedTuple


class Batch(NamedTuple):
    """Word ids, int64, and lengths, int32. T is the longest sentence of the batch, B the sentence pairs.

    On GPUs many of TensorFlow's ops keep int32 tensors in host memory: int32 ids would be copied there and back in each
    step. Lengths are int32 because cuDNN wants them so, and on the host.

    Ids are `[T, B]` when the model is time-major and `[B, T]` otherwise. Positions at or after a
    sentence's length are padding: any id, never counted and never in the loss.
    """

    source: Any  # [Ts, B] source words
    source_length: Any  # [B], each >= 1
    target_input: Any  # [Tt, B] begin-of-sentence word, then the target words
    target_output: Any  # [Tt, B] the target words, then the end-of-sentence word
    target_length: Any  # [B], each >= 1; the end-of-sentence word is counted
