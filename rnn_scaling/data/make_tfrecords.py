"""Makes a small set of TFRecords in the form of ImageNet's, for the data source `tfrecord`.

    python -m rnn_scaling.data.make_tfrecords --out=DIR --images=200 --files=4 --seed=1

An image is a coloured pattern under noise, and a JPEG of its size is about as large as that of a photograph. Labels go
from 1 to --classes, so that the images of a class are one pattern. The same arguments make the same images.
"""

import argparse
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from rnn_scaling.data.tfrecord import ENCODED, LABEL, NUM_CLASSES
from rnn_scaling.files.output_files import replacing

_PATTERN, _NOISE = (6, 8, 3), 12.0  # coarse pixels of a pattern; deviation of the noise, of 255


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
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(deterministic=True)


def main(args: Sequence[str] | None = None) -> None:
    prog = "python -m rnn_scaling.data.make_tfrecords"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="folder of the files; made if it is missing")
    parser.add_argument("--images", type=int, default=200, help="images of all files")
    parser.add_argument("--files", type=int, default=4, help="files, of which each has as many images")
    parser.add_argument("--classes", type=int, default=10, help=f"classes, {NUM_CLASSES} at most")
    parser.add_argument("--width", type=int, default=500, help="pixels of a line; its height is three quarters of it")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random pixels")
    options = parser.parse_args(args)
    if not (1 <= options.files <= options.images and options.width >= 8 and options.seed >= 0):
        parser.error("--files must be 1 to --images, --width at least 8, and --seed at least 0")
    if not 1 <= options.classes <= NUM_CLASSES:
        parser.error(f"--classes must be 1 to {NUM_CLASSES}")
    size = (options.width * 3 // 4, options.width)
    for file in range(options.files):
        path = os.path.join(options.out, f"train-{file:05}-of-{options.files:05}")
        with replacing(path) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
            for number in range(file, options.images, options.files):
                writer.write(example(number, 1 + number % options.classes, size, options.seed))


if __name__ == "__main__":
    main()
