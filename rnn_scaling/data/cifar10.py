"""Data source `cifar10`: the images of CIFAR-10's binary files.

Batches are made in three steps:
1. Images are shuffled in a buffer of `output_buffer_size`, unless `disable_shuffle` is
   set. The order depends on the seed and the epoch. The images repeat without end.
2. Batches continue across epochs: all batches are full, each image is in one batch per
   epoch, and no image is dropped.
3. Pixels become float32 in [-1, 1].

`config.registry` names this module; the trainer calls `build`.
"""

import tensorflow as tf

from rnn_scaling.data import image_files, pipeline
from rnn_scaling.data.source import Feed, Source
from rnn_scaling.models.batch import ImageBatch
from rnn_scaling.models.layout import ImageLayout

_BUFFER_BYTES = 1 << 20


def build(feed: Feed) -> Source:
    """Return the images of the files in the folder `feed.options.data_dir`.

    Raises:
      DataError: If a file breaks a rule of `image_files.check_and_count`.
    """
    options = feed.options
    layout = feed.layout
    assert isinstance(layout, ImageLayout)
    paths = image_files.list_files(options)
    num_images = image_files.check_and_count(paths)

    @pipeline.without_rewriting
    def to_batch(records: tf.Tensor) -> ImageBatch:
        record_bytes = tf.io.decode_raw(
            records, tf.uint8, fixed_length=image_files.RECORD_BYTES
        )
        # The first byte is the class, and three planes of 32 x 32 pixels follow.
        planes = tf.reshape(record_bytes[:, 1:], [-1, 3, 32, 32])
        images = (
            tf.cast(layout.transpose_images(planes, "NCHW"), tf.float32) / 127.5 - 1.0
        )
        return ImageBatch(images, tf.cast(record_bytes[:, 0], tf.int64))

    with tf.device(pipeline.name_host_device(feed.devices[0])):
        records = tf.data.FixedLengthRecordDataset(
            paths, image_files.RECORD_BYTES, buffer_size=_BUFFER_BYTES
        )
        if not options.disable_shuffle:
            records = records.shuffle(
                options.output_buffer_size,
                seed=feed.seed,
                reshuffle_each_iteration=True,
            )
        dataset = records.repeat().batch(
            feed.pipeline_batch_sizes[0], drop_remainder=True
        )
        dataset = pipeline.select_own_batches(dataset, feed).map(
            to_batch, num_parallel_calls=options.num_parallel_calls
        )
    return pipeline.distribute(dataset, feed, num_samples=num_images)
