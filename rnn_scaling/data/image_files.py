"""List the files of images in a folder, and check CIFAR-10's binary files.

An image of CIFAR-10 has 3,073 bytes: its label and three planes (red, green, blue) of
1,024 bytes, row by row. The five files `data_batch_1.bin` to `data_batch_5.bin` contain
10,000 images each.

Both sources of images and the number of batches per epoch (`training.ending`) read the
same list of files.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from rnn_scaling.config.run_options import DataOptions
from rnn_scaling.data.corpus import DataError
from rnn_scaling.system.files import input_files

NUM_CLASSES = 10
IMAGE_BYTES = 3 * 32 * 32
RECORD_BYTES = 1 + IMAGE_BYTES
_RECORDS_PER_READ = 1024


def list_files(options: DataOptions) -> list[str]:
    """Return the files to train on, in the order of their names.

    Raises:
      DataError: If the folder cannot be read or has no such file.
    """
    folder = options.data_dir
    pattern = options.file_pattern
    try:
        paths = sorted(
            str(path) for path in Path(folder).iterdir() if path.match(pattern)
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"--data_dir={folder}: {reason}; name the folder with {pattern}"
        ) from None
    if not paths:
        raise DataError(
            f"--data_dir={folder} contains no {pattern}; name the folder with the "
            f"files of --data_source={options.data_source}"
        )
    return paths


def count_images(paths: list[str]) -> int:
    """Return the number of CIFAR-10 images, by the sizes of the files.

    Before a run loads its data, this is enough; `check_and_count` reads the files.
    """
    return sum(os.path.getsize(path) for path in paths) // RECORD_BYTES


def check_and_count(paths: list[str]) -> int:
    """Read every file once and return the number of images.

    Raises:
      DataError: If a file cannot be read, is empty, ends within an image, or has an
        invalid label.
    """
    num_images = 0
    for path in paths:
        labels = b"".join(_read_labels(path))
        if not labels:
            raise DataError(
                f"{path} is empty, but must contain images of {RECORD_BYTES:,} bytes "
                "each"
            )
        for number, label in enumerate(labels):
            if label >= NUM_CLASSES:
                raise DataError(
                    f"{path}: the label of image {number} must be from 0 to "
                    f"{NUM_CLASSES - 1}, got {label}"
                )
        num_images += len(labels)
    return num_images


def _read_labels(path: str) -> Iterator[bytes]:
    """Yield the labels of a file in pieces, one byte per image.

    Raises:
      DataError: If the file cannot be read, or ends within an image.
    """
    size = 0
    try:
        with input_files.open_regular(path, input_files.UNLIMITED) as file:
            while chunk := file.read(_RECORDS_PER_READ * RECORD_BYTES):
                size += len(chunk)
                yield chunk[: len(chunk) // RECORD_BYTES * RECORD_BYTES : RECORD_BYTES]
    except OSError as error:
        raise DataError(
            f"{path} must be a readable file: {error.strerror or error}"
        ) from None
    if size % RECORD_BYTES:
        raise DataError(
            f"{path} must have a multiple of {RECORD_BYTES:,} bytes, the size of an "
            f"image, got {size:,}"
        )
