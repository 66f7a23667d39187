"""Beam search over a network that returns the next word's logits; greedy with one beam.

Each step extends every hypothesis of a sentence by every word and keeps the best K. A
finished hypothesis, which has its end-of-sentence word, does not grow but still
competes. A score is the sum of the words' log probabilities. With a length penalty, a
hypothesis of n words is ranked by score / ((5 + n) / 6)^penalty: Wu et al.,
arXiv:1609.08144, equation 14.

B: sentences, K: beams, N = B K: hypotheses (grouped by sentence, the best one first),
V: vocabulary, T: most words of a translation, E: embedding.

A workload that translates implements `Decoder`; `training.inference_step` calls
`translate`. This module does not know how a network computes its logits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.batch import Batch
from rnn_scaling.models.workload import Tensors

KERNEL = "one step a word in tf.while_loop"
"""Name of the decoder in records."""

_NUM_STACKED_ROWS = 16  # rows into which `_find_largest` folds one row

LookUp = Callable[[str, Tensor], Tensor]
"""(name of an embedding, ids) -> its rows, `ids.shape + [E]`"""
State = Any
"""The state of a network between two words: nested tensors, each [N, ...]."""
Step = Callable[[Tensor, State, Tensor], tuple[Tensor, State]]
"""(words [N] int64, state, their position int32) -> (logits [N, V], next state)"""


class Start(NamedTuple):
    """A network that has read the source sentences."""

    state: State  # state before the first word, [B, ...] per tensor
    step: Step


class Search(NamedTuple):
    num_beams: int
    length_penalty: float
    max_words: int  # most words of a translation, end-of-sentence word included


class Decoder(Protocol):
    """A workload that translates."""

    def start(
        self, weights: Tensors, look_up: LookUp, batch: Batch, search: Search
    ) -> Start:
        """Read the sources of a batch; see `Workload.forward` for the arguments."""


class Translation(NamedTuple):
    """The best hypothesis of each sentence."""

    words: Tensor  # [B, T] int64; end-of-sentence words after the end
    lengths: Tensor  # [B] float32, end-of-sentence word included
    scores: Tensor  # [B] float32
    num_steps: Tensor  # steps of the loop, an int32 scalar


class _Beams(NamedTuple):
    words: Tensor  # [N] int64, last word of each hypothesis
    scores: Tensor  # [B, K] float32
    lengths: Tensor  # [B, K] float32
    ended: Tensor  # [B, K] bool
    sentences: Tensor  # [N, T] int64


class _Extensions(NamedTuple):
    """The best hypotheses after one more word, [B, K] each."""

    words: Tensor  # int64, the new word
    scores: Tensor  # float32
    parents: Tensor  # int64, number of the extended hypothesis in its sentence


def translate(
    start: Start,
    num_sentences: int | Tensor,
    bos: Tensor,
    eos: Tensor,
    search: Search,
) -> Translation:
    """Search the translation of each sentence.

    Args:
      bos: Begin-of-sentence word, an int64 scalar.
      eos: End-of-sentence word, an int64 scalar.
    """
    num_beams = search.num_beams
    first_rows = tf.range(num_sentences, dtype=tf.int64)[:, None] * num_beams
    # GPUs compare int32 on the host.
    positions = tf.range(search.max_words, dtype=tf.int64)

    def is_unfinished(position: Tensor, beams: _Beams, state: State) -> Tensor:
        # Without a penalty, a word only lowers a score, so no hypothesis overtakes a
        # better one that has ended.
        ended = beams.ended if search.length_penalty else beams.ended[:, 0]
        return (position < search.max_words) & ~tf.reduce_all(ended)

    def extend(
        position: Tensor, beams: _Beams, state: State
    ) -> tuple[Tensor, _Beams, State]:
        logits, state = start.step(beams.words, state, position)
        lengths = beams.lengths + tf.cast(~beams.ended, tf.float32)
        best = _extend_beams(beams, lengths, logits, eos, search)
        words = tf.reshape(best.words, [-1])
        ended = beams.ended
        sentences = beams.sentences
        if num_beams > 1:
            rows = tf.reshape(first_rows + best.parents, [-1])
            lengths = _gather_hypotheses(lengths, rows)
            ended = _gather_hypotheses(ended, rows)
            sentences, state = tf.nest.map_structure(
                lambda x: tf.gather(x, rows), (sentences, state)
            )
        is_next = positions == tf.cast(position, tf.int64)
        sentences = tf.where(is_next, words[:, None], sentences)
        ended |= best.words == eos
        beams = _Beams(words, best.scores, lengths, ended, sentences)
        return position + 1, beams, state

    beams = _start_beams(num_sentences, bos, eos, search)
    state = tf.nest.map_structure(
        lambda x: tf.repeat(x, num_beams, axis=0), start.state
    )
    num_steps, beams, _ = tf.while_loop(
        is_unfinished, extend, (tf.constant(0), beams, state), parallel_iterations=1
    )
    return Translation(
        beams.sentences[::num_beams], beams.lengths[:, 0], beams.scores[:, 0], num_steps
    )


def _mark_first_beam(num_beams: int) -> np.ndarray:
    """Return log probabilities [K] that leave only the first of K choices."""
    return np.where(np.arange(num_beams) > 0, -np.inf, 0.0).astype(np.float32)


def _start_beams(
    num_sentences: int | Tensor, bos: Tensor, eos: Tensor, search: Search
) -> _Beams:
    """Return the empty hypotheses, of which only one per sentence is possible."""
    num_beams = search.num_beams
    size = num_sentences * num_beams
    return _Beams(
        words=tf.fill([size], bos),
        scores=tf.tile(_mark_first_beam(num_beams)[None], [num_sentences, 1]),
        lengths=tf.zeros([num_sentences, num_beams]),
        ended=tf.fill([num_sentences, num_beams], False),
        sentences=tf.fill([size, search.max_words], eos),
    )


def _extend_beams(
    beams: _Beams, lengths: Tensor, logits: Tensor, eos: Tensor, search: Search
) -> _Extensions:
    """Return the best hypotheses with one more word; ended ones only keep their score.

    Args:
      beams: The hypotheses.
      lengths: [B, K], their lengths with one more word.
      logits: [N, V], of the next word of each hypothesis.
      eos: End-of-sentence word, an int64 scalar.
      search: The limits of the search.
    """
    num_beams = search.num_beams
    penalty = search.length_penalty
    log_probs, choices = _find_best_words(tf.cast(logits, tf.float32), num_beams)
    ended = tf.reshape(beams.ended, [-1, 1])
    log_probs = tf.where(ended, _mark_first_beam(num_beams), log_probs)
    choices = tf.where(ended, eos, choices)
    added = tf.reshape(log_probs, [-1, num_beams, num_beams])
    scores = beams.scores[:, :, None] + added
    ranks = scores
    if penalty:
        ranks = scores / ((5.0 + lengths[:, :, None]) / 6.0) ** penalty

    def flatten(x: Tensor) -> Tensor:
        return tf.reshape(x, [-1, num_beams**2])

    best = tf.cast(tf.math.top_k(flatten(ranks), num_beams).indices, tf.int64)
    return _Extensions(
        words=tf.gather(flatten(choices), best, batch_dims=1),
        scores=tf.gather(flatten(scores), best, batch_dims=1),
        parents=best // num_beams,
    )


def _find_best_words(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return log probabilities and ids of the likeliest words of each row [V].

    Returns:
      [N, count] each, the likeliest word first.
    """
    best, ids = _find_largest(logits, count)
    # The likeliest word's probability is at least 1/V, so the logarithm is finite.
    likeliest = tf.math.log(tf.reduce_max(tf.nn.softmax(logits), axis=1, keepdims=True))
    return best - best[:, :1] + likeliest, ids


def _find_largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest values of each row and their indices, like `tf.math.top_k`.

    The row is folded into columns of 16 values. The columns with the largest maxima
    contain the largest values. On CPUs a maximum is many times faster than `top_k`'s
    heap.
    """
    num_columns = -(-x.shape[1] // _NUM_STACKED_ROWS)
    if count == 1 or num_columns < count:
        values, indices = tf.math.top_k(x, count)
        return values, tf.cast(indices, tf.int64)
    missing = num_columns * _NUM_STACKED_ROWS - x.shape[1]
    padded = tf.pad(x, [[0, 0], [0, missing]], constant_values=-np.inf)
    stacked = tf.reshape(padded, [-1, _NUM_STACKED_ROWS, num_columns])
    maxima = tf.reduce_max(stacked, axis=1)
    columns = tf.cast(tf.math.top_k(maxima, count).indices, tf.int64)
    candidates = tf.gather(stacked, columns, axis=2, batch_dims=1)
    candidates = tf.reshape(candidates, [-1, _NUM_STACKED_ROWS * count])
    values, indices = tf.math.top_k(candidates, count)
    indices = tf.cast(indices, tf.int64)
    column = tf.gather(columns, indices % count, batch_dims=1)
    return values, indices // count * num_columns + column


def _gather_hypotheses(x: Tensor, rows: Tensor) -> Tensor:
    """Return x [B, K] for the hypotheses with these numbers."""
    return tf.reshape(tf.gather(tf.reshape(x, [-1]), rows), tf.shape(x))
