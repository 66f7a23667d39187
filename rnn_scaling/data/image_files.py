"""The files of images in a folder, and CIFAR-10's binary ones, checked before anything is trained on them.

An image of CIFAR-10 has 3,073 bytes: its label, then 1,024 of red, of green and of blue, row by row. The five files
`data_batch_1.bin` to `data_batch_5.bin` hold 10,000 images each.
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
_RECORDS_A_READ = 1024


def files(options: DataOptions) -> list[str]:
    """The files to train on, in the order of their names. Raises DataError if there is none."""
    folder = options.data_dir
    pattern = options.file_pattern
    try:
        paths = sorted(
            str(path) for path in Path(folder).iterdir() if path.match(pattern)
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{folder or '(no name)'}: {reason}; expected --data_dir to name a folder"
        ) from None
    if not paths:
        raise DataError(
            f"{folder}: no {pattern}; expected the files of --data_source={options.data_source}"
        )
    return paths


def count(paths: list[str]) -> int:
    """Images of files that `check` accepts."""
    return sum(os.path.getsize(path) for path in paths) // RECORD_BYTES


def check(paths: list[str]) -> int:
    """Reads every file once and returns how many images they hold.

    Raises DataError if a file cannot be read, is empty, ends within an image, or has a label that is none.
    """
    num_images = 0
    for path in paths:
        labels = b"".join(_labels(path))
        if not labels:
            raise DataError(
                f"{path}: an empty file; expected images of {RECORD_BYTES:,} bytes"
            )
        for number, label in enumerate(labels):
            if label >= NUM_CLASSES:
                raise DataError(
                    f"{path}: image {number} has the label {label}; expected 0 to {NUM_CLASSES - 1}"
                )
        num_images += len(labels)
    return num_images


def _labels(path: str) -> Iterator[bytes]:
    size = 0
    try:
        with input_files.open_regular(path, input_files.UNLIMITED) as file:
            while chunk := file.read(_RECORDS_A_READ * RECORD_BYTES):
                size += len(chunk)
                yield chunk[: len(chunk) // RECORD_BYTES * RECORD_BYTES : RECORD_BYTES]
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); expected a file"
        ) from None
    if size % RECORD_BYTES:
        raise DataError(
            f"{path}: {size:,} bytes; expected a multiple of {RECORD_BYTES:,}, the bytes of an image"
        )
