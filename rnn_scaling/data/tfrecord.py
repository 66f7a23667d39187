"""Data source `tfrecord`: the JPEGs of ImageNet's TFRecords.

The files are those that TensorFlow's scripts write and tf_cnn_benchmarks reads. A
record is a tf.train.Example with the features image/encoded, a JPEG, and
image/class/label, 1 to the number of classes; other features, such as bounding boxes,
are ignored. Files are named train-00000-of-01024 and so on.

1. Several files are read at a time, in an order that changes with each epoch, and
   records are shuffled within a buffer of `output_buffer_size`. With `disable_shuffle`
   files are read one by one. The seed decides the order, and the data repeats without
   end.
2. Batches continue across epochs: all are full, each record is in one batch per epoch,
   and no record is dropped.
3. An image is cropped at random (5 to 100 % of its area, 3:4 to 4:3), resized to the
   network's size, and flipped left to right in half of the cases. The random numbers
   depend only on the seed and the number of earlier images, so a resumed run draws the
   same ones.
4. Pixels become float32 in [-1, 1], and classes count from 0.

`config.registry` names this module; the trainer calls `build`. If the pipeline fails
during the run, it calls `find_fault`.

Faults are searched by functions `_describe_...`, which return the end of a sentence, or
"" if they find none:

    _describe_first_record    before the run: the first record of each file
    _describe_lengths         before the run, or when a large file is opened
    _describe_file            after an error: all records of a file
    _describe_record          one record, for the two others
"""

import dataclasses
import os
from collections.abc import Callable, Sequence

import tensorflow as tf

from rnn_scaling.config.run_options import DataOptions
from rnn_scaling.data import device, image_files, pipeline, tfrecord_frames
from rnn_scaling.data.corpus import DataError
from rnn_scaling.data.source import Feed, Source
from rnn_scaling.models.batch import ImageBatch
from rnn_scaling.models.layout import CHANNELS, ImageLayout

ENCODED = "image/encoded"
LABEL = "image/class/label"
NUM_CLASSES = 1000
_MAX_OPEN_FILES = 16
_BUFFER_BYTES = 1 << 20
# Ranges of a random crop: its share of the image's area, and its width / height.
_AREA_RANGE = (0.05, 1.0)
_ASPECT_RANGE = (3 / 4, 4 / 3)
# Follows the number of a record.
_DAMAGED = "is truncated or corrupt; expected a TFRecord file: copy it again"
_FEATURES = {ENCODED: tf.string, LABEL: tf.int64}
# An error of TensorFlow that quotes a record is a UnicodeDecodeError in Python, unless
# the record happens to be UTF-8.
PARSE_ERRORS = (tf.errors.OpError, UnicodeDecodeError)
_PIPELINE_OPERATOR = "IteratorGetNext"
_PARSE_FAULT = "Could not parse example input"
# The bytes of all files together up to which the lengths of all records are checked
# before the run. In larger sets the lengths of a file are checked when it is opened.
_MAX_CHECKED_BYTES = 1 << 30
# A broken length of at most so many bytes is harmless: TensorFlow can reserve as much
# memory on every machine, and then reports the damage.
_MAX_BROKEN_LENGTH = 1 << 30


def build(feed: Feed) -> Source:
    """Return the images of the files in the folder `feed.options.data_dir`.

    Raises:
      DataError: If there is no file, a file has no records, its first record is not an
        image, or a length in it would crash TensorFlow.
    """
    options = feed.options
    layout = feed.layout
    assert isinstance(layout, ImageLayout)
    paths = image_files.list_files(options)
    _check_before_run(paths, layout.num_classes)

    @pipeline.without_rewriting
    def decode_image(
        image_index: tf.Tensor, record: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        encoded, label = _parse(record, layout.num_classes)
        seed = device.seed_pair(feed.seed, image_index, 0)
        image = tf.image.resize(_decode_crop(encoded, seed), [layout.size, layout.size])
        flipped = tf.image.stateless_random_flip_left_right(image, seed)
        return flipped / 127.5 - 1.0, label - 1

    batch_size = feed.pipeline_batch_sizes[0]
    # One global batch that the towers share, or one batch per tower.
    batches_per_step = 1 if feed.split else len(feed.devices)
    with tf.device(pipeline.name_host_device(feed.devices[0])):
        # Records are selected in batches before they are decoded, so that the records
        # of other workers and of steps before a checkpoint cost little.
        batches = (
            _read_records(paths, feed)
            .enumerate()
            .batch(batch_size, drop_remainder=True)
        )
        records = (
            pipeline.select_own_batches(batches, feed)
            .skip(feed.first_step * batches_per_step)
            .unbatch()
        )
        images = records.map(
            decode_image, num_parallel_calls=options.num_parallel_calls
        )
        make_batch = pipeline.without_rewriting(
            lambda images, labels: ImageBatch(
                layout.transpose_images(images, "NHWC"), labels
            )
        )
        dataset = images.batch(batch_size, drop_remainder=True).map(make_batch)
    # The earlier steps are skipped already.
    return pipeline.distribute(dataset, dataclasses.replace(feed, first_step=0))


def _read_records(paths: Sequence[str], feed: Feed) -> tf.data.Dataset:
    options = feed.options
    names = tf.data.Dataset.from_tensor_slices(paths)
    open_files = 1
    if not options.disable_shuffle:
        names = names.shuffle(len(paths), seed=feed.seed)
        open_files = min(_MAX_OPEN_FILES, len(paths))
    if not _is_small_enough_to_check(paths):
        names = names.map(pipeline.without_rewriting(_check_lengths_when_opened))
    records = names.interleave(
        pipeline.without_rewriting(
            lambda name: tf.data.TFRecordDataset(name, buffer_size=_BUFFER_BYTES)
        ),
        cycle_length=open_files,
        num_parallel_calls=min(open_files, options.num_parallel_calls),
    )
    if not options.disable_shuffle:
        records = records.shuffle(options.output_buffer_size, seed=feed.seed)
    return records.repeat()


def _parse(record: tf.Tensor, num_classes: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the JPEG and the label of a record; fail if the label is not a class."""
    features = tf.io.parse_single_example(
        record,
        {name: tf.io.FixedLenFeature([], dtype) for name, dtype in _FEATURES.items()},
    )
    label = features[LABEL]
    with tf.control_dependencies(
        [tf.debugging.Assert((label >= 1) & (label <= num_classes), [label])]
    ):
        return features[ENCODED], tf.identity(label)


def _decode_crop(encoded: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Decode only a random part of a JPEG, as uint8."""
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(encoded),
        tf.zeros([1, 0, 4]),
        seed,
        aspect_ratio_range=_ASPECT_RANGE,
        area_range=_AREA_RANGE,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.io.decode_and_crop_jpeg(
        encoded, tf.concat([begin[:2], size[:2]], 0), channels=CHANNELS
    )


def _decode_image(encoded: tf.Tensor | bytes) -> tf.Tensor:
    """Decode a JPEG and reject a PNG.

    `decode_jpeg` would also accept a PNG, but `_decode_crop` would not.
    """
    height_and_width = tf.io.extract_jpeg_shape(encoded)[:2]
    return tf.io.decode_and_crop_jpeg(
        encoded, tf.concat([[0, 0], height_and_width], 0), channels=CHANNELS
    )


def _check_before_run(paths: Sequence[str], num_classes: int) -> None:
    """Check the first record of each file, and the lengths in small sets of files.

    The other records are checked as they are read.

    Raises:
      DataError: If a file has no record, or its first record is not an image, or if a
        length in the files would end the process.
    """
    _raise_first_fault(paths, lambda path: _describe_first_record(path, num_classes))
    if _is_small_enough_to_check(paths):
        _raise_first_fault(paths, _describe_lengths)


def _raise_first_fault(paths: Sequence[str], describe: Callable[[str], str]) -> None:
    """Raise a DataError for the first file that cannot be read or has a fault."""
    for path in paths:
        try:
            fault = describe(path)
        except OSError as error:
            raise _read_error(path, error) from None
        if fault:
            raise DataError(f"{path}: {fault}")


def _is_small_enough_to_check(paths: Sequence[str]) -> bool:
    """Return whether the lengths in all files are checked before the run."""
    return sum(os.path.getsize(path) for path in paths) <= _MAX_CHECKED_BYTES


def _describe_lengths(path: str) -> str:
    """Describe the first record whose length would crash TensorFlow, or return ""."""
    for number, frame in enumerate(tfrecord_frames.read_frames(path)):
        if frame.is_broken and frame.length > _MAX_BROKEN_LENGTH:
            return f"record {number} {_DAMAGED}"
    return ""


def _check_lengths_when_opened(name: tf.Tensor) -> tf.Tensor:
    """Return the file's name, if no length in the file crashes TensorFlow."""

    def check(path: bytes) -> bytes:
        file = os.fsdecode(path)
        fault = _describe_lengths(file)
        if fault:
            raise DataError(f"{file}: {fault}")
        return path

    return tf.ensure_shape(tf.numpy_function(check, [name], tf.string), [])


def _describe_first_record(path: str, num_classes: int) -> str:
    """Describe the fault of the first record of a file, or return ""."""
    frame = next(tfrecord_frames.read_frames(path), None)
    if frame is None:
        return "the file contains no record; expected a TFRecord file of images"
    if frame.is_broken:
        return f"record 0 {_DAMAGED}"
    try:
        [record] = tf.data.TFRecordDataset(path).take(1)
    except tf.errors.DataLossError:
        return f"record 0 {_DAMAGED}"
    fault = _describe_record(record, num_classes)
    return f"record 0 {fault}" if fault else ""


def _describe_record(record: tf.Tensor | bytes, num_classes: int) -> str:
    """Describe the fault of a record, or return ""."""
    try:
        features = tf.io.parse_single_example(
            record,
            {name: tf.io.VarLenFeature(dtype) for name, dtype in _FEATURES.items()},
        )
    except PARSE_ERRORS:
        return "is not a tf.train.Example of an image; leave it out"
    encoded = features[ENCODED].values.numpy().tolist()
    labels = features[LABEL].values.numpy().tolist()
    if len(encoded) != 1:
        return f"has {len(encoded)} values of {ENCODED}; expected one JPEG"
    if len(labels) != 1 or not 1 <= labels[0] <= num_classes:
        label_text = ", ".join(map(str, labels[:3])) or "none"
        return f"has the {LABEL} {label_text}; expected one from 1 to {num_classes}"
    try:
        _decode_image(encoded[0])
    except PARSE_ERRORS:
        return (
            f"has an {ENCODED} that cannot be decoded as a JPEG "
            f"({len(encoded[0]):,} bytes); leave it out"
        )
    return ""


def is_pipeline_error(error: Exception) -> bool:
    """Return whether an error comes from the input pipeline.

    TensorFlow names the operator that failed, but it quotes a record that is not an
    Example: the message then ends at the first zero byte of the record, or Python
    cannot read it because it is not UTF-8.
    """
    if isinstance(error, UnicodeDecodeError):
        return True
    message = str(error)
    return _PIPELINE_OPERATOR in message or _PARSE_FAULT in message


def find_fault(options: DataOptions, error: Exception) -> str:
    """Return the first file and record that an error of the pipeline may come from.

    If TensorFlow reported a damaged record, all records up to the first damaged one are
    read. After other errors, they are decoded, too.

    Returns:
      One line, or "" if all records are good.
    """
    is_data_loss = isinstance(error, tf.errors.DataLossError)
    for path in image_files.list_files(options):
        try:
            fault = _describe_file(path, decodes=not is_data_loss)
        except OSError as reason:
            return str(_read_error(path, reason))
        if fault:
            return f"{path}: {fault}"
    return ""


def _describe_file(path: str, decodes: bool) -> str:
    """Describe the first damaged record of a file, or return "".

    Args:
      path: The file.
      decodes: Whether the images are decoded, or only read.

    Raises:
      OSError: If the file cannot be read.
    """

    @pipeline.without_rewriting
    def decode(record: tf.Tensor) -> tf.Tensor:
        encoded, _ = _parse(record, NUM_CLASSES)
        return tf.shape(_decode_image(encoded))

    frames = list(tfrecord_frames.read_frames(path))
    complete = [frame for frame in frames if not frame.is_broken]
    # Only the records before the first broken length: it might crash TensorFlow.
    records = tf.data.TFRecordDataset(path).take(len(complete))
    if decodes:
        records = records.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    number = 0
    try:
        for _ in records:
            number += 1
    except tf.errors.DataLossError:
        return f"record {number} {_DAMAGED}"
    except PARSE_ERRORS:
        record = tfrecord_frames.read_data(path, complete[number])
        return f"record {number} {_describe_record(record, NUM_CLASSES)}"
    if len(complete) < len(frames):
        return f"record {number} {_DAMAGED}"
    return ""


def _read_error(path: str, error: OSError) -> DataError:
    """Return the error for a file that cannot be read."""
    reason = error.strerror or error
    return DataError(f"{path}: cannot be read ({reason}); expected a TFRecord file")
