"""Data sources `copy` and `reverse`: random words whose translation is known, so that what is learned can be checked.

A source sentence is random words and the end-of-sentence word; its translation is the same words, or the same in
reverse, and the end-of-sentence word. Sentences are full, those of both sides of the same length. Which words stand in
a sentence follows from the seed, the step and the sentence's number in the global batch of all towers: however many
towers share one global batch, together they see the same sentences.

Letters: T words of a sentence, B sentences of a tower, G of all towers.
"""

from typing import Any

import tensorflow as tf

from rnn_scaling.data import device
from rnn_scaling.data.source import Feed, Source
from rnn_scaling.models.batch import Side
from rnn_scaling.models.layout import BOS_ID, EOS_ID, TextLayout

FIRST_WORD = EOS_ID + 1  # ids below it are <unk>, <s> and </s>


def build(feed: Feed) -> Source:
    """Sentences of which both sides have `feed.max_lengths` words, the end-of-sentence word included."""
    layout = feed.layout
    assert isinstance(layout, TextLayout)

    def batch_of(step: tf.Tensor, tower: int, batch_size: int) -> Any:
        """A tower's part of the global batch: every tower draws all of it, which costs little next to training."""
        shape = [sum(feed.batch_sizes), feed.max_lengths[0] - 1]  # [G, T - 1]
        vocabulary = min(side.vocab_size for side in layout.sides)
        seed = device.seed_pair(feed.seed, step, 0)
        words = tf.random.stateless_uniform(
            shape, seed, minval=FIRST_WORD, maxval=vocabulary, dtype=tf.int64
        )
        first = sum(feed.batch_sizes[:tower])
        tower_words = words[first : first + batch_size]
        return layout.batch(
            _part(feed, layout, side, tower_words) for side in layout.sides
        )

    return device.drawn(feed, batch_of)


def _part(
    feed: Feed, layout: TextLayout, side: Side, words: tf.Tensor
) -> list[tf.Tensor]:
    """What a side gives to a batch, of its words [B, T - 1]."""
    batch_size = words.shape[0]
    bos, eos = (
        tf.fill([batch_size, 1], tf.constant(word, tf.int64))
        for word in (BOS_ID, EOS_ID)
    )
    if side.predicted and feed.options.data_source == "reverse":
        words = tf.reverse(words, [1])
    ended = tf.concat([words, eos], 1)
    ids = [tf.concat([bos, words], 1), ended] if side.predicted else [ended]
    laid_out = [tf.transpose(tensor) if layout.time_major else tensor for tensor in ids]
    return [*laid_out, tf.fill([batch_size], feed.max_lengths[0])]
