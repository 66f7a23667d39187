"""Data source `tfrecord`: the JPEGs of ImageNet's TFRecords, as tf_cnn_benchmarks and TensorFlow's scripts write them.

A record is a tf.train.Example with the features image/encoded, a JPEG, and image/class/label, 1 to the number of
classes; others, such as bounding boxes, are not read. Files are named train-00000-of-01024 and so on.

1. Files are read in a fresh order each epoch, some at a time, and records are shuffled within a buffer of
   `output_buffer_size` (not with `disable_shuffle`: file by file); both follow the seed and repeat for ever.
2. Batches go on across epochs: every one is full, each record is in one batch an epoch, and none is dropped.
3. An image is cut at random (5 to 100 % of its area, 3:4 to 4:3), resized to the network's size, and flipped left to
   right in half of the cases. What is drawn depends on the seed and on the number of images before.
4. Pixels become float32 in [-1, 1], and classes count from 0.
"""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from rnn_scaling.data import device, image_files, pipeline
from rnn_scaling.data.corpus import DataError
from rnn_scaling.data.source import Feed, Source
from rnn_scaling.files import input_files
from rnn_scaling.models.batch import ImageBatch
from rnn_scaling.models.layout import CHANNELS, ImageLayout
from rnn_scaling.settings.run_options import DataOptions

ENCODED, LABEL = "image/encoded", "image/class/label"
NUM_CLASSES = 1000
_OPEN_FILES = 16
_BUFFER_BYTES = 1 << 20
_AREA, _ASPECT = (0.05, 1.0), (3 / 4, 4 / 3)
_DAMAGED = "is truncated or corrupt; expected a TFRecord file: copy it again"
_FEATURES = {ENCODED: tf.string, LABEL: tf.int64}


def build(feed: Feed) -> Source:
    """Images of the files in the folder `feed.options.data_dir`.

    Raises DataError if there is no file, or the first record of one is none of an image.
    """
    options, layout = feed.options, feed.layout
    assert isinstance(layout, ImageLayout)
    paths = image_files.files(options)
    for path in paths:
        _check_first(path, layout.num_classes)

    @pipeline.as_written
    def to_image(number: tf.Tensor, record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        encoded, label = _parse(record, layout.num_classes)
        seed = device.seed_pair(feed.seed, number, 0)
        image = tf.image.resize(_cut(encoded, seed), [layout.size, layout.size])
        return tf.image.stateless_random_flip_left_right(
            image, seed
        ) / 127.5 - 1.0, label - 1

    batch_size, batches_a_step = (
        feed.pipeline_batch_sizes[0],
        1 if feed.split else len(feed.devices),
    )
    with tf.device(pipeline.host_of(feed.devices[0])):
        # In batches, as the records of other workers and of steps before a checkpoint are not decoded.
        batches = (
            _records(paths, feed).enumerate().batch(batch_size, drop_remainder=True)
        )
        records = (
            pipeline.own_batches(batches, feed)
            .skip(feed.first_step * batches_a_step)
            .unbatch()
        )
        images = records.map(to_image, num_parallel_calls=options.num_parallel_calls)
        to_batch = pipeline.as_written(
            lambda images, labels: ImageBatch(layout.ordered(images, "NHWC"), labels)
        )
        dataset = images.batch(batch_size, drop_remainder=True).map(to_batch)
    return pipeline.to_towers(dataset, dataclasses.replace(feed, first_step=0))


def _records(paths: Sequence[str], feed: Feed) -> tf.data.Dataset:
    options = feed.options
    names, open_files = tf.data.Dataset.from_tensor_slices(paths), 1
    if not options.disable_shuffle:
        names, open_files = (
            names.shuffle(len(paths), seed=feed.seed),
            min(_OPEN_FILES, len(paths)),
        )
    records = names.interleave(
        pipeline.as_written(
            lambda name: tf.data.TFRecordDataset(name, buffer_size=_BUFFER_BYTES)
        ),
        cycle_length=open_files,
        num_parallel_calls=min(open_files, options.num_parallel_calls),
    )
    if not options.disable_shuffle:
        records = records.shuffle(options.output_buffer_size, seed=feed.seed)
    return records.repeat()


def _parse(record: tf.Tensor, num_classes: int) -> tuple[tf.Tensor, tf.Tensor]:
    """A record's JPEG and label, which is one of the classes."""
    features = tf.io.parse_single_example(
        record,
        {name: tf.io.FixedLenFeature([], dtype) for name, dtype in _FEATURES.items()},
    )
    label = features[LABEL]
    with tf.control_dependencies(
        [tf.debugging.Assert((label >= 1) & (label <= num_classes), [label])]
    ):
        return features[ENCODED], tf.identity(label)


def _cut(encoded: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """A random part of a JPEG, uint8; the rest of it is not decoded."""
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(encoded),
        tf.zeros([1, 0, 4]),
        seed,
        aspect_ratio_range=_ASPECT,
        area_range=_AREA,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.io.decode_and_crop_jpeg(
        encoded, tf.concat([begin[:2], size[:2]], 0), channels=CHANNELS
    )


def _whole(encoded: tf.Tensor | bytes) -> tf.Tensor:
    """All of a JPEG; `decode_jpeg` also takes PNGs, of which no part can be cut."""
    height_and_width = tf.io.extract_jpeg_shape(encoded)[:2]
    return tf.io.decode_and_crop_jpeg(
        encoded, tf.concat([[0, 0], height_and_width], 0), channels=CHANNELS
    )


def _check_first(path: str, num_classes: int) -> None:
    """Fails unless the first record of a file is that of an image: others are not read before the run."""
    try:
        input_files.open_regular(path, input_files.UNLIMITED).close()
        record = next(iter(tf.data.TFRecordDataset(path).take(1)), None)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); expected a TFRecord file"
        ) from None
    except tf.errors.DataLossError:
        raise DataError(f"{path}: record 0 {_DAMAGED}") from None
    if record is None:
        raise DataError(f"{path}: no record; expected a TFRecord file of images")
    if fault := _fault_of(record, num_classes):
        raise DataError(f"{path}: record 0 {fault}")


def _fault_of(record: tf.Tensor, num_classes: int) -> str:
    """What is wrong with a record; empty: nothing."""
    try:
        found = tf.io.parse_single_example(
            record,
            {name: tf.io.VarLenFeature(dtype) for name, dtype in _FEATURES.items()},
        )
    except tf.errors.OpError:
        return "is no tf.train.Example of an image; leave it out"
    encoded, labels = (found[name].values.numpy().tolist() for name in _FEATURES)
    if len(encoded) != 1:
        return f"has no {ENCODED}; expected a JPEG"
    if len(labels) != 1 or not 1 <= labels[0] <= num_classes:
        shown = ", ".join(map(str, labels[:3])) or "none"
        return f"has the {LABEL} {shown}; expected one from 1 to {num_classes}"
    try:
        _whole(encoded[0])
    except tf.errors.OpError:
        return f"has no JPEG as its {ENCODED} that can be decoded ({len(encoded[0]):,} bytes); leave it out"
    return ""


def find_fault(options: DataOptions, error: Exception) -> str:
    """The first file and record that an error of the pipeline may come of; empty if none is found.

    Reads, and but for a file that is cut short decodes, all records up to that one.
    """
    is_cut = isinstance(error, tf.errors.DataLossError)

    @pipeline.as_written
    def decode(record: tf.Tensor) -> tf.Tensor:
        return tf.shape(_whole(_parse(record, NUM_CLASSES)[0]))

    for path in image_files.files(options):
        records, number = tf.data.TFRecordDataset(path), 0
        try:
            tried = (
                records
                if is_cut
                else records.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
            )
            for _ in tried:
                number += 1
        except tf.errors.DataLossError:
            return f"{path}: record {number} {_DAMAGED}"
        except tf.errors.InvalidArgumentError:
            [record] = records.skip(number).take(1)
            return f"{path}: record {number} {_fault_of(record, NUM_CLASSES)}"
    return ""
