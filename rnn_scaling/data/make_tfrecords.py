"""Make a small set of TFRecords like ImageNet's, to try the data source `tfrecord`.

An image is a coloured pattern with noise, so that its JPEG is about as large as a
photograph's. Labels go from 1 to the number of classes, and the images of a class share
one pattern. The same arguments make the same images.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from rnn_scaling.config.registry import DATA_SOURCES
from rnn_scaling.data.tfrecord import ENCODED, LABEL
from rnn_scaling.system.files.output_files import open_replacement

# Coarse pixels of a pattern, and the deviation of the noise on a scale of 255.
_PATTERN = (6, 8, 3)
_NOISE = 12.0


def _make_example(number: int, label: int, size: Sequence[int], seed: int) -> bytes:
    """Return one record.

    Args:
      number: The number of the image, which decides its noise.
      label: The class, which decides its pattern.
      size: Height and width in pixels.
      seed: The seed of patterns and noise.
    """
    pattern = np.random.default_rng([seed, 0, label]).uniform(0, 255, _PATTERN)
    noise = np.random.default_rng([seed, 1, number]).normal(0, _NOISE, (*size, 3))
    pixels = tf.image.resize(pattern, size, method="bicubic") + noise.astype(np.float32)
    encoded = tf.io.encode_jpeg(tf.saturate_cast(pixels, tf.uint8)).numpy()
    features = {
        ENCODED: tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(
        features=tf.train.Features(feature=features)
    ).SerializeToString(deterministic=True)


def write(
    folder: str,
    num_images: int,
    num_files: int,
    num_classes: int,
    width: int,
    seed: int,
) -> None:
    """Write the files and create their folder if needed.

    Args:
      folder: The folder of the files.
      num_images: The number of images in all files together.
      num_files: The number of files, which take turns with the images.
      num_classes: The number of labels.
      width: The width of an image; the height is 3/4 of it.
      seed: The seed of the pixels.

    Raises:
      OSError: If a file cannot be written, or the folder contains another set.
    """
    size = (width * 3 // 4, width)
    names = [f"train-{file:05}-of-{num_files:05}" for file in range(num_files)]
    os.makedirs(folder, exist_ok=True)
    pattern = DATA_SOURCES["tfrecord"].files
    foreign = {path.name for path in Path(folder).glob(pattern)} - {*names}
    if foreign:
        raise OSError(
            f"{min(foreign)} exists and belongs to another set; give another folder"
        )

    for file, name in enumerate(names):
        numbers = range(file, num_images, num_files)
        examples = (_make_example(k, 1 + k % num_classes, size, seed) for k in numbers)
        try:
            _write_file(Path(folder, name), examples)
        except tf.errors.OpError as error:
            raise OSError(error.message) from None


def _write_file(path: Path, examples: Iterable[bytes]) -> None:
    """Write a file that exists only when it is complete."""
    with (
        open_replacement(path) as temporary,
        tf.io.TFRecordWriter(str(temporary)) as writer,
    ):
        for record in examples:
            writer.write(record)
