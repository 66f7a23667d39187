"""Beam search over a network that gives the next word's logits; a beam of 1 is greedy search.

In each step the best K of a sentence's hypotheses, each longer by any word, are kept. One that has its end-of-sentence
word stays as it is, and competes by its score. A score is the sum of the words' log probabilities. With a length
penalty, a hypothesis of n words is ranked by score / ((5 + n) / 6)^penalty: Wu et al., arXiv:1609.08144, equation 14.

B: sentences, K: beams, N = B K: hypotheses, those of a sentence together and the best one first, V: vocabulary, T: the
most words of a translation.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.batch import Batch
from rnn_scaling.models.workload import Tensors

KERNEL = "one step a word in tf.while_loop"  # what decodes, for the record

_STACKED = 16  # rows into which `_largest` cuts one

LookUp = Callable[[str, Tensor], Tensor]
"""(name of an embedding, ids) -> its rows, `ids.shape + [E]`"""
State = Any
"""What a network keeps from one word to the next: nested tensors, each [N, ...]."""
Step = Callable[[Tensor, State, Tensor], tuple[Tensor, State]]
"""(words [N] int64, state, their position int32) -> (logits [N, V], next state)"""


class Start(NamedTuple):
    """A network that has read the source sentences."""

    state: State  # before the first word, [B, ...] each
    step: Step


class Search(NamedTuple):
    num_beams: int
    length_penalty: float
    max_words: int  # the end-of-sentence word included


class Decoder(Protocol):
    """A workload that translates."""

    def start(
        self, weights: Tensors, look_up: LookUp, batch: Batch, search: Search
    ) -> Start:
        """Reads the sources of a batch; arguments as of `Workload.forward`."""


class Translation(NamedTuple):
    """The best hypothesis of each sentence."""

    words: Tensor  # [B, T] int64; from its end on the end-of-sentence word
    lengths: Tensor  # [B] float32; words with the end-of-sentence word
    scores: Tensor  # [B] float32
    num_steps: Tensor  # of the loop, an int32 scalar


class _Beams(NamedTuple):
    words: Tensor  # [N] int64, the last of each hypothesis
    scores: Tensor  # [B, K] float32
    lengths: Tensor  # [B, K] float32
    ended: Tensor  # [B, K] bool
    sentences: Tensor  # [N, T] int64


def translate(
    start: Start,
    num_sentences: int | Tensor,
    bos: Tensor,
    eos: Tensor,
    search: Search,
) -> Translation:
    """Searches the translation of each sentence; bos and eos: the words at its ends, int64 scalars."""
    num_beams, penalty, max_words = search
    size = num_sentences * num_beams
    no_other = np.where(np.arange(num_beams) > 0, -np.inf, 0.0).astype(
        np.float32
    )  # [K]: the first choice alone
    first_rows = tf.range(num_sentences, dtype=tf.int64)[:, None] * num_beams
    positions = tf.range(max_words, dtype=tf.int64)  # GPUs compare int32 on the host

    def goes_on(position: Tensor, beams: _Beams, state: State) -> Tensor:
        # Without a penalty no hypothesis overtakes a better one that has ended: a word adds nothing to a score.
        ended = beams.ended if penalty else beams.ended[:, 0]
        return (position < max_words) & ~tf.reduce_all(ended)

    def lengthen(
        position: Tensor, beams: _Beams, state: State
    ) -> tuple[Tensor, _Beams, State]:
        logits, state = start.step(beams.words, state, position)
        log_probs, words = _best_words(tf.cast(logits, tf.float32), num_beams)
        ended = tf.reshape(beams.ended, [-1, 1])
        log_probs = tf.where(ended, no_other, log_probs)
        words = tf.where(ended, eos, words)
        lengths = beams.lengths + tf.cast(~beams.ended, tf.float32)
        scores = beams.scores[:, :, None] + tf.reshape(
            log_probs, [-1, num_beams, num_beams]
        )
        ranks = (
            scores / ((5.0 + lengths[:, :, None]) / 6.0) ** penalty
            if penalty
            else scores
        )

        def of_sentences(x: Tensor) -> Tensor:
            return tf.reshape(x, [-1, num_beams**2])

        chosen = tf.cast(
            tf.math.top_k(of_sentences(ranks), num_beams).indices, tf.int64
        )
        scores, words = (
            tf.gather(of_sentences(x), chosen, batch_dims=1) for x in (scores, words)
        )
        flat = tf.reshape(words, [-1])
        ended = beams.ended
        sentences = beams.sentences
        if num_beams > 1:
            rows = tf.reshape(first_rows + chosen // num_beams, [-1])
            lengths, ended = (_rows_of(x, rows) for x in (lengths, ended))
            sentences, state = tf.nest.map_structure(
                lambda x: tf.gather(x, rows), (sentences, state)
            )
        sentences = tf.where(
            positions == tf.cast(position, tf.int64), flat[:, None], sentences
        )
        return (
            position + 1,
            _Beams(flat, scores, lengths, ended | (words == eos), sentences),
            state,
        )

    beams = _Beams(
        tf.fill([size], bos),
        tf.tile(no_other[None], [num_sentences, 1]),
        tf.zeros([num_sentences, num_beams]),
        tf.fill([num_sentences, num_beams], False),
        tf.fill([size, max_words], eos),
    )
    state = tf.nest.map_structure(
        lambda x: tf.repeat(x, num_beams, axis=0), start.state
    )
    num_steps, beams, _ = tf.while_loop(
        goes_on, lengthen, (tf.constant(0), beams, state), parallel_iterations=1
    )
    return Translation(
        beams.sentences[::num_beams], beams.lengths[:, 0], beams.scores[:, 0], num_steps
    )


def _best_words(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Log probabilities and numbers of the likeliest words of each row [V], the likeliest first: [N, count] each."""
    best, words = _largest(logits, count)
    # The likeliest word's probability is at least 1/V: this logarithm is never that of 0.
    likeliest = tf.math.log(tf.reduce_max(tf.nn.softmax(logits), axis=1, keepdims=True))
    return best - best[:, :1] + likeliest, words


def _largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest numbers of each row and where they are, as of `tf.math.top_k`.

    They are in those columns of the row, cut and stacked, whose largest numbers are the largest: on CPUs a maximum is
    many times as fast as a heap.
    """
    num_columns = -(-x.shape[1] // _STACKED)
    if count == 1 or num_columns < count:
        values, places = tf.math.top_k(x, count)
        return values, tf.cast(places, tf.int64)
    padded = tf.pad(
        x, [[0, 0], [0, num_columns * _STACKED - x.shape[1]]], constant_values=-np.inf
    )
    stacked = tf.reshape(padded, [-1, _STACKED, num_columns])
    columns = tf.cast(
        tf.math.top_k(tf.reduce_max(stacked, axis=1), count).indices, tf.int64
    )
    few = tf.reshape(
        tf.gather(stacked, columns, axis=2, batch_dims=1), [-1, _STACKED * count]
    )
    values, places = tf.math.top_k(few, count)
    places = tf.cast(places, tf.int64)
    return values, places // count * num_columns + tf.gather(
        columns, places % count, batch_dims=1
    )


def _rows_of(x: Tensor, rows: Tensor) -> Tensor:
    """[B, K] of the hypotheses of these numbers."""
    return tf.reshape(tf.gather(tf.reshape(x, [-1]), rows), tf.shape(x))
