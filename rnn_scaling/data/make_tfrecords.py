"""Makes a small set of TFRecords in the form of ImageNet's, for the data source `tfrecord`.

An image is a coloured pattern under noise, and a JPEG of its size is about as large as that of a photograph. Labels go
from 1 to the number of classes, and the images of a class are one pattern. The same arguments make the same images.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from rnn_scaling.config.registry import DATA_SOURCES
from rnn_scaling.data.tfrecord import ENCODED, LABEL
from rnn_scaling.system.files.output_files import replacing

# Coarse pixels of a pattern, and the deviation of the noise on a scale of 255.
_PATTERN = (6, 8, 3)
_NOISE = 12.0


def example(number: int, label: int, size: Sequence[int], seed: int) -> bytes:
    """One record; `size`: height and width."""
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
    """Writes the files, their folder too; OSError if one cannot be written, or the folder holds another set."""
    size = (width * 3 // 4, width)
    names = [f"train-{file:05}-of-{num_files:05}" for file in range(num_files)]
    os.makedirs(folder, exist_ok=True)
    others = {
        path.name for path in Path(folder).glob(DATA_SOURCES["tfrecord"].files)
    } - {*names}
    if others:
        raise OSError(f"{min(others)} is there, a file of another set")
    for file, name in enumerate(names):
        try:
            with (
                replacing(Path(folder, name)) as temporary,
                tf.io.TFRecordWriter(str(temporary)) as writer,
            ):
                for number in range(file, num_images, num_files):
                    writer.write(example(number, 1 + number % num_classes, size, seed))
        except tf.errors.OpError as error:
            raise OSError(error.message) from None
