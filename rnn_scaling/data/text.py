"""Data source `text`: plain-text files, as TensorFlow's NMT tutorials read them; parallel ones where a workload reads
both sides. With one side, a "pair" below is a line of it.

What is done to the files, in this order, all of it in tf.data's C++ ops:

1. Lines end with `\\n`; carriage returns are dropped. Line i of the two files is a pair.
2. Pairs are shuffled within a buffer of `output_buffer_size`, in a fresh order each epoch that the seed decides
   (not with `disable_shuffle`), and repeated for ever. Everything below goes on across epochs.
3. A word is what stands between blanks: ASCII space, tab, vertical tab, form feed. No-break space and U+2028 are parts
   of words.
4. A pair without a word on either side is left out.
5. Source sentences keep their first `src_max_len` words; targets `tgt_max_len - 1`, after which the end-of-sentence
   word follows and is counted.
6. A pair goes to the bucket of its longer side: with n buckets each is (max_len + n - 1) // n words wide.
7. As soon as a bucket holds `batch_size` pairs it is a batch, in the order in which they came. So every batch is full,
   and pairs that are left when the files end wait for the next epoch's: none is ever dropped. With `disable_shuffle`
   this is the only thing that reorders; one bucket keeps the files' order exactly.
8. Words become ids, unknown ones `unk_id`; a batch is padded with the end-of-sentence word, to its longest sentence or
   to `pad_to` words.
"""

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from rnn_scaling.data import corpus, pipeline
from rnn_scaling.data.source import Feed, Source
from rnn_scaling.models.batch import Side
from rnn_scaling.models.layout import TextLayout

# Lines whose words are counted in one call: an op's overhead is many times the work on one line.
_LINES_PER_CALL = 128


def build(feed: Feed) -> Source:
    """Sentences of the files that the feed's options name. Raises DataError if they break a rule of `corpus.check`."""
    layout = feed.layout
    assert isinstance(layout, TextLayout)
    checked = corpus.check(feed.options, layout.sides)
    with tf.device(pipeline.host_device(feed.devices[0])):
        tables = [_table(side.words, feed.options.unk_id) for side in checked.sides]
        dataset = _full_batches(_lines(feed), feed)

        @pipeline.without_rewriting
        def to_batch(*lines: tf.Tensor) -> Any:
            columns = zip(lines, layout.sides, feed.max_lengths, checked.sides, tables)
            parts = [_to_ids(*column, feed.options.pad_to) for column in columns]
            if layout.time_major:
                parts = [
                    [tf.transpose(part) for part in side[:-1]] + side[-1:]
                    for side in parts
                ]
            return layout.batch(parts)

        dataset = pipeline.select_own_batches(dataset, feed).map(
            to_batch, num_parallel_calls=feed.options.num_parallel_calls
        )
    return pipeline.distribute(
        dataset, feed, keep=tables, num_samples=checked.num_pairs
    )


def _table(words: Sequence[bytes], unk_id: int) -> tf.lookup.StaticHashTable:
    keys = tf.constant(words, tf.string)
    values = tf.range(len(words), dtype=tf.int64)
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, values), default_value=unk_id
    )


def _lines(feed: Feed) -> tf.data.Dataset:
    """Endless tuples of a line a side, shuffled."""
    options = feed.options
    files = [getattr(options, f"{side.name}_file_name") for side in feed.layout.sides]
    lines = tf.data.Dataset.zip(tuple(tf.data.TextLineDataset(file) for file in files))
    if not options.disable_shuffle:
        lines = lines.shuffle(
            options.output_buffer_size, seed=feed.seed, reshuffle_each_iteration=True
        )
    return lines.repeat()


def _full_batches(lines: tf.data.Dataset, feed: Feed) -> tf.data.Dataset:
    """Tuples of lines [B] a side, of one bucket each; pairs with an empty side left out."""
    options = feed.options
    batch_size = feed.pipeline_batch_sizes[0]
    width = bucket_width(feed.max_lengths, options.num_buckets)

    @pipeline.without_rewriting
    def with_bucket(*columns: tf.Tensor) -> tuple[tf.Tensor, ...]:
        num_words = [tf.strings.split(column).row_lengths() for column in columns]
        kept = functools.reduce(operator.and_, [words > 0 for words in num_words])
        lengths = [
            tf.minimum(words, longest - 1) + 1
            if side.predicted
            else tf.minimum(words, longest)
            for words, side, longest in zip(
                num_words, feed.layout.sides, feed.max_lengths
            )
        ]
        bucket = (functools.reduce(tf.maximum, lengths) - 1) // width
        return tuple(tf.boolean_mask(column, kept) for column in (*columns, bucket))

    buckets = lines.batch(_LINES_PER_CALL, drop_remainder=True).map(
        with_bucket, num_parallel_calls=options.num_parallel_calls
    )
    return (
        buckets.unbatch()
        .group_by_window(
            key_func=pipeline.without_rewriting(lambda *row: row[-1]),
            reduce_func=pipeline.without_rewriting(
                lambda bucket, window: window.batch(batch_size, drop_remainder=True)
            ),
            window_size=batch_size,
        )
        .map(pipeline.without_rewriting(lambda *row: row[:-1]))
    )


def bucket_width(max_lengths: Iterable[int], num_buckets: int) -> int:
    """How many lengths share a bucket: those of the longest sentence, spread over the buckets, rounded up."""
    return (max(max_lengths) + num_buckets - 1) // num_buckets


def _to_ids(
    lines: tf.Tensor,
    side: Side,
    longest: int,
    checked: corpus.CheckedSide,
    table: tf.lookup.StaticHashTable,
    pad_to: int,
) -> list[tf.Tensor]:
    """The parts that a side gives to a batch-major batch: its words, once or twice, and their lengths.

    Args:
      lines: [B] strings.
      longest: words of a sentence at most.
      pad_to: words of every sentence with its padding; 0: of the longest one.
    """
    batch_size = lines.shape[0]
    words = tf.strings.split(lines)[:, : longest - side.predicted]
    ids = words.with_flat_values(table.lookup(words.flat_values))
    lengths = tf.ensure_shape(tf.cast(ids.row_lengths(), tf.int32), [batch_size])
    padded = ids.to_tensor(
        checked.eos_id, shape=[batch_size, pad_to - side.predicted if pad_to else None]
    )
    if not side.predicted:
        return [padded, lengths]
    # A sentence's end and its padding are the same word: one more of it ends them all.
    bos, eos = (
        tf.fill([batch_size, 1], tf.constant(id, tf.int64))
        for id in (checked.bos_id, checked.eos_id)
    )
    return [tf.concat([bos, padded], 1), tf.concat([padded, eos], 1), lengths + 1]
