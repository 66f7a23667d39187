"""Data source `text`: plain-text files, as in TensorFlow's NMT tutorials.

The files are parallel if the network reads both sides. If it reads one side, a pair
below is one line.

tf.data's C++ operators do all of this, in this order:

1. Lines end with `\\n`; carriage returns are dropped. Line i of both files is a pair.
2. Pairs are shuffled within a buffer of `output_buffer_size`, in an order that the seed
   decides and that changes with each epoch (not with `disable_shuffle`), and repeated
   without end. The following items continue across epochs.
3. Words are separated by blanks: ASCII space, tab, vertical tab, form feed. No-break
   space and U+2028 belong to words.
4. A pair is left out if one side has no word.
5. Source sentences keep their first `src_max_len` words; targets keep
   `tgt_max_len - 1`, to which the end-of-sentence word is added and counted.
6. A pair goes to the bucket of its longer side: each of n buckets covers
   (max_len + n - 1) // n lengths.
7. As soon as a bucket contains `batch_size` pairs they become a batch, in the order of
   their arrival. So every batch is full, and pairs that are left when the files end
   wait for the next epoch: no pair is dropped. With `disable_shuffle` only this changes
   the order; one bucket keeps the order of the files.
8. Words become ids, unknown words become `unk_id`, and a batch is padded with the
   end-of-sentence word to its longest sentence or to `pad_to` words.

`config.registry` names this module; the trainer calls `build`.
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

# Lines whose words are counted in one call. The overhead of an operator is many times
# the work on one line.
_LINES_PER_CALL = 128


def build(feed: Feed) -> Source:
    """Return sentences of the files that the feed's options name.

    Raises:
      DataError: If the files break a rule of `corpus.check`.
    """
    layout = feed.layout
    assert isinstance(layout, TextLayout)
    checked = corpus.check(feed.options, layout.sides)
    with tf.device(pipeline.name_host_device(feed.devices[0])):
        tables = [
            _make_table(side.words, feed.options.unk_id) for side in checked.sides
        ]
        dataset = _make_full_batches(_read_lines(feed), feed)

        @pipeline.without_rewriting
        def to_batch(*lines: tf.Tensor) -> Any:
            columns = zip(lines, layout.sides, feed.max_lengths, checked.sides, tables)
            side_tensors = []
            for column in columns:
                *ids, lengths = _convert_to_ids(*column, feed.options.pad_to)
                if layout.time_major:
                    ids = [tf.transpose(tensor) for tensor in ids]
                side_tensors.append([*ids, lengths])
            return layout.make_batch(side_tensors)

        dataset = pipeline.select_own_batches(dataset, feed).map(
            to_batch, num_parallel_calls=feed.options.num_parallel_calls
        )
    return pipeline.distribute(
        dataset, feed, keep=tables, num_samples=checked.num_pairs
    )


def _make_table(words: Sequence[bytes], unk_id: int) -> tf.lookup.StaticHashTable:
    keys = tf.constant(words, tf.string)
    values = tf.range(len(words), dtype=tf.int64)
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, values), default_value=unk_id
    )


def _read_lines(feed: Feed) -> tf.data.Dataset:
    """Return an endless dataset of tuples with one line per side, shuffled."""
    options = feed.options
    files = [getattr(options, f"{side.name}_file_name") for side in feed.layout.sides]
    lines = tf.data.Dataset.zip(tuple(tf.data.TextLineDataset(file) for file in files))
    if not options.disable_shuffle:
        lines = lines.shuffle(
            options.output_buffer_size, seed=feed.seed, reshuffle_each_iteration=True
        )
    return lines.repeat()


def _make_full_batches(lines: tf.data.Dataset, feed: Feed) -> tf.data.Dataset:
    """Return tuples with lines [B] per side, from one bucket, without empty sides."""
    options = feed.options
    batch_size = feed.pipeline_batch_sizes[0]
    width = _choose_bucket_width(feed.max_lengths, options.num_buckets)

    @pipeline.without_rewriting
    def add_bucket(*columns: tf.Tensor) -> tuple[tf.Tensor, ...]:
        num_words = [tf.strings.split(column).row_lengths() for column in columns]
        is_complete = functools.reduce(
            operator.and_, [count > 0 for count in num_words]
        )
        lengths = [
            tf.minimum(count, max_length - 1) + 1
            if side.predicted
            else tf.minimum(count, max_length)
            for count, side, max_length in zip(
                num_words, feed.layout.sides, feed.max_lengths
            )
        ]
        bucket = (functools.reduce(tf.maximum, lengths) - 1) // width
        return tuple(
            tf.boolean_mask(column, is_complete) for column in (*columns, bucket)
        )

    buckets = lines.batch(_LINES_PER_CALL, drop_remainder=True).map(
        add_bucket, num_parallel_calls=options.num_parallel_calls
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


def _choose_bucket_width(max_lengths: Iterable[int], num_buckets: int) -> int:
    """Return how many lengths share a bucket: longest length / buckets, rounded up."""
    return (max(max_lengths) + num_buckets - 1) // num_buckets


def _convert_to_ids(
    lines: tf.Tensor,
    side: Side,
    max_length: int,
    checked: corpus.CheckedSide,
    table: tf.lookup.StaticHashTable,
    pad_to: int,
) -> list[tf.Tensor]:
    """Return the tensors of one side of a batch-major batch.

    Args:
      lines: Strings [B].
      side: The side.
      max_length: Maximum number of words of a sentence.
      checked: The vocabulary and special words of the side.
      table: Ids by word.
      pad_to: Words of every sentence with padding; 0 for the longest sentence's words.

    Returns:
      Ids [B, T] and lengths [B]; a predicted side has the ids of the decoder's input
      and of its output.
    """
    batch_size = lines.shape[0]
    words = tf.strings.split(lines)[:, : max_length - side.predicted]
    ids = words.with_flat_values(table.lookup(words.flat_values))
    lengths = tf.ensure_shape(tf.cast(ids.row_lengths(), tf.int32), [batch_size])
    padded = ids.to_tensor(
        checked.eos_id, shape=[batch_size, pad_to - side.predicted if pad_to else None]
    )
    if not side.predicted:
        return [padded, lengths]
    # Padding is the end-of-sentence word. So one more column of it ends every sentence.
    bos = tf.fill([batch_size, 1], tf.constant(checked.bos_id, tf.int64))
    eos = tf.fill([batch_size, 1], tf.constant(checked.eos_id, tf.int64))

    return [tf.concat([bos, padded], 1), tf.concat([padded, eos], 1), lengths + 1]
