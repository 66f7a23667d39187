"""Data sources `copy` and `reverse`: random words whose translation follows a rule.

So a test can check the result of the training. A source sentence is random words and
the end-of-sentence word. Its translation is the same words, in the same or the reverse
order, and the end-of-sentence word. All sentences are full, and both sides have the
same length. The words of a sentence depend on the seed, the step and the number of the
sentence in the global batch: however many towers share one global batch, together they
train on the same sentences.

Letters: T words of a sentence, B sentences of a tower, G sentences of all towers.

`config.registry` names this module; the trainer calls `build`.
"""

from typing import Any

import tensorflow as tf

from rnn_scaling.data import device
from rnn_scaling.data.source import Feed, Source
from rnn_scaling.models.batch import Side
from rnn_scaling.models.layout import BOS_ID, EOS_ID, TextLayout

_FIRST_WORD = EOS_ID + 1  # ids below it are <unk>, <s> and </s>


def build(feed: Feed) -> Source:
    """Return sentences of `feed.max_lengths` words, including the end of sentence."""
    layout = feed.layout
    assert isinstance(layout, TextLayout)

    def draw_batch(step: tf.Tensor, tower: int, batch_size: int) -> Any:
        # Every tower draws the full global batch, which costs little next to training.
        shape = [sum(feed.batch_sizes), feed.max_lengths[0] - 1]  # [G, T - 1]
        vocabulary = min(side.vocab_size for side in layout.sides)
        seed = device.seed_pair(feed.seed, step, 0)
        words = tf.random.stateless_uniform(
            shape, seed, minval=_FIRST_WORD, maxval=vocabulary, dtype=tf.int64
        )
        first = sum(feed.batch_sizes[:tower])
        tower_words = words[first : first + batch_size]
        return layout.make_batch(
            _make_side_tensors(feed, layout, side, tower_words) for side in layout.sides
        )

    return device.make_source(feed, draw_batch)


def _make_side_tensors(
    feed: Feed, layout: TextLayout, side: Side, words: tf.Tensor
) -> list[tf.Tensor]:
    """Return the tensors of one side of a batch, made from its words [B, T - 1]."""
    batch_size = words.shape[0]
    bos = tf.fill([batch_size, 1], tf.constant(BOS_ID, tf.int64))
    eos = tf.fill([batch_size, 1], tf.constant(EOS_ID, tf.int64))
    if side.predicted and feed.options.data_source == "reverse":
        words = tf.reverse(words, [1])
    tensors = [tf.concat([words, eos], 1)]
    if side.predicted:
        tensors.insert(0, tf.concat([bos, words], 1))
    if layout.time_major:
        tensors = [tf.transpose(tensor) for tensor in tensors]
    return [*tensors, tf.fill([batch_size], feed.max_lengths[0])]
