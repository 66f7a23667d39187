"""Find where the records of a TFRecord file begin, without TensorFlow.

A record is its length L (8 bytes, little-endian), the masked CRC-32C of these bytes, L
bytes of data, and their masked CRC-32C. TensorFlow reserves memory for a length before
it checks the size of the file, so a wrong length ends the process.

Source: tensorflow/core/lib/io/record_writer.h.

`tfrecord` calls `read_frames` to find the fault after TensorFlow has failed to read a
file.
"""

import dataclasses
import os
import struct
from collections.abc import Iterator
from typing import IO

from rnn_scaling.system.files import input_files

_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4
_POLYNOMIAL = 0x82F63B78  # polynomial of CRC-32C, reversed
_MASK_DELTA = 0xA282EAD8


@dataclasses.dataclass(frozen=True)
class Frame:
    """The position of one record's data and its length according to the header."""

    start: int
    length: int
    is_broken: bool  # the header is damaged, or the file ends before the record does


def read_frames(path: str) -> Iterator[Frame]:
    """Yield the records of a file in order; a broken one is the last.

    Raises:
      OSError: If the file cannot be read.
    """
    with input_files.open_regular(path, input_files.UNLIMITED) as file:
        size = os.fstat(file.fileno()).st_size
        offset = 0
        while offset < size:
            frame = _read_frame(file, offset, size)
            yield frame
            if frame.is_broken:
                return
            offset = frame.start + frame.length + _FOOTER_BYTES


def read_data(path: str, frame: Frame) -> bytes:
    """Return the data of a record that is not broken.

    Raises:
      OSError: If the file cannot be read.
    """
    with input_files.open_regular(path, input_files.UNLIMITED) as file:
        file.seek(frame.start)
        return file.read(frame.length)


def _read_frame(file: IO[bytes], offset: int, size: int) -> Frame:
    file.seek(offset)
    header = file.read(_HEADER.size)
    start = offset + _HEADER.size

    if len(header) < _HEADER.size:
        return Frame(start, 0, is_broken=True)
    length, checksum = _HEADER.unpack(header)
    if checksum != compute_masked_crc(header[:8]):
        return Frame(start, 0, is_broken=True)
    return Frame(start, length, is_broken=start + length + _FOOTER_BYTES > size)


def compute_masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C of a few bytes, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    rotated = crc >> 15 | crc << 17
    return (rotated + _MASK_DELTA) & 0xFFFFFFFF
