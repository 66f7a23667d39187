"""Data source `text`: parallel plain-text files, as TensorFlow's NMT tutorials read them.

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
8. Words become ids, unknown ones `unk_id`; a batch is padded to its longest sentence with the end-of-sentence word.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from models.batch import Batch
from rnn_scaling.data import corpus, feed
from rnn_scaling.data.source import Source
from rnn_scaling.settings.config import DataOptions

# Lines whose words are counted in one call: an op's overhead is many times the work on one line.
_LINES_PER_CALL = 128


def build(
    data: DataOptions,
    *,
    batch_sizes: Sequence[int],
    split: bool,
    src_vocab_size: int,
    tgt_vocab_size: int,
    time_major: bool,
    seed: int,
    devices: Sequence[str],
) -> Source:
    """Sentences of the files that `data` names.

    Raises:
      corpus.DataError: if the files break a rule of `corpus.check`.
    """
    checked = corpus.check(data, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size)
    with tf.device(feed.host_of(devices[0])):
        src_table = _table(checked.src_vocab, data.unk_id)
        tgt_table = _table(checked.tgt_vocab, data.unk_id)
        dataset = _pairs(data, seed)
        dataset = _full_batches(dataset, data, feed.pipeline_batch_sizes(batch_sizes, split)[0])

        def to_batch(source: tf.Tensor, target: tf.Tensor) -> Batch:
            batch = _to_ids(source, target, src_table, tgt_table, checked, data)
            return _transposed(batch) if time_major else batch

        dataset = dataset.map(to_batch, num_parallel_calls=data.num_parallel_calls)
        if split:
            dataset = feed.split(dataset, batch_sizes, time_major)
        dataset = feed.synchronous(dataset, num_threads=data.num_parallel_calls)
    return feed.to_towers(
        dataset,
        devices=devices,
        prefetch=bool(data.prefetch_data_to_device),
        buffer_size=data.prefetch_buffer_size,
        keep=(src_table, tgt_table),
    )


def _table(vocab: corpus.Vocabulary, unk_id: int) -> tf.lookup.StaticHashTable:
    keys = tf.constant(vocab.words, tf.string)
    values = tf.range(len(vocab.words), dtype=tf.int64)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), default_value=unk_id)


def _pairs(data: DataOptions, seed: int) -> tf.data.Dataset:
    """Endless (source line, target line), shuffled."""
    lines = tf.data.Dataset.zip(
        (tf.data.TextLineDataset(data.src_file_name), tf.data.TextLineDataset(data.tgt_file_name))
    )
    if not data.disable_shuffle:
        lines = lines.shuffle(data.output_buffer_size, seed=seed, reshuffle_each_iteration=True)
    return lines.repeat()


def _full_batches(lines: tf.data.Dataset, data: DataOptions, batch_size: int) -> tf.data.Dataset:
    """(source lines [B], target lines [B]) of one bucket each, pairs with an empty side left out."""
    width = bucket_width(data.src_max_len, data.tgt_max_len, data.num_buckets)

    def with_bucket(source: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        src_words, tgt_words = (tf.strings.split(side).row_lengths() for side in (source, target))
        kept = (src_words > 0) & (tgt_words > 0)
        longer = tf.maximum(tf.minimum(src_words, data.src_max_len), tf.minimum(tgt_words, data.tgt_max_len - 1) + 1)
        return tuple(tf.boolean_mask(column, kept) for column in (source, target, (longer - 1) // width))

    buckets = lines.batch(_LINES_PER_CALL, drop_remainder=True).map(
        with_bucket, num_parallel_calls=data.num_parallel_calls
    )
    return (
        buckets.unbatch()
        .group_by_window(
            key_func=lambda source, target, bucket: bucket,
            reduce_func=lambda bucket, window: window.batch(batch_size, drop_remainder=True),
            window_size=batch_size,
        )
        .map(lambda source, target, bucket: (source, target))
    )


def bucket_width(src_max_len: int, tgt_max_len: int, num_buckets: int) -> int:
    """How many lengths share a bucket: those of the longest sentence, spread over the buckets, rounded up."""
    return (max(src_max_len, tgt_max_len) + num_buckets - 1) // num_buckets


def _to_ids(
    source: tf.Tensor,
    target: tf.Tensor,
    src_table: tf.lookup.StaticHashTable,
    tgt_table: tf.lookup.StaticHashTable,
    checked: corpus.Corpus,
    data: DataOptions,
) -> Batch:
    """Lines [B] to a batch-major batch."""
    batch_size = source.shape[0]
    src_words = tf.strings.split(source)[:, : data.src_max_len]
    tgt_words = tf.strings.split(target)[:, : data.tgt_max_len - 1]
    src_ids = _lookup(src_table, src_words)
    tgt_ids = _lookup(tgt_table, tgt_words)
    bos, eos = (tf.fill([batch_size, 1], tf.constant(word, tf.int64)) for word in (checked.bos_id, checked.tgt_eos_id))
    rows = [batch_size, None]
    return Batch(
        source=src_ids.to_tensor(checked.src_eos_id, shape=rows),
        source_length=_lengths(src_ids, batch_size),
        target_input=tf.concat([bos, tgt_ids], 1).to_tensor(checked.tgt_eos_id, shape=rows),
        target_output=tf.concat([tgt_ids, eos], 1).to_tensor(checked.tgt_eos_id, shape=rows),
        target_length=_lengths(tgt_ids, batch_size) + 1,
    )


def _lookup(table: tf.lookup.StaticHashTable, words: tf.RaggedTensor) -> tf.RaggedTensor:
    return words.with_flat_values(table.lookup(words.flat_values))


def _lengths(ids: tf.RaggedTensor, batch_size: int) -> tf.Tensor:
    return tf.ensure_shape(tf.cast(ids.row_lengths(), tf.int32), [batch_size])


def _transposed(batch: Batch) -> Batch:
    return batch._replace(
        source=tf.transpose(batch.source),
        target_input=tf.transpose(batch.target_input),
        target_output=tf.transpose(batch.target_output),
    )
