"""Check text and vocabularies before the pipeline reads them, without TensorFlow.

Rules (text.py has the rules of the pipeline):

- Text and vocabularies are UTF-8 without a byte order mark. Lines end with `\\n`,
  except possibly the last line. Carriage returns before it (CRLF) do not belong to the
  line. A line has at most 64 KiB, because the pipeline holds thousands of lines.
- Words are separated by ASCII blanks. So U+2028, U+0085, the no-break space and NUL
  belong to words.
- Two text files have the same number of lines. A pair with an empty side is left out,
  and at least one pair must remain.
- The word in line n of a vocabulary has the id n - 1. Lines after the first
  `vocab_size` are ignored. A file may have fewer words; higher ids are then unused,
  unless `unk_id` is one of them.
- A vocabulary has one word per line, without blanks, each word once. Each vocabulary
  contains `eos`, and the target's contains `bos`.

`text` calls `check` for its files. A resumed run calls `describe_changes` to compare
them with the files of the checkpoint.
"""

import codecs
import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from rnn_scaling.config.run_options import DataOptions
from rnn_scaling.models.batch import Side
from rnn_scaling.system.files import input_files

_MAX_QUOTED_CHARS = 60
MAX_LINE_BYTES = 1 << 16  # some ten thousand words


class DataError(ValueError):
    """A file cannot be used. The message is `FILE:LINE: FAULT; expected RULE`."""


@dataclasses.dataclass(frozen=True)
class CheckedSide:
    """The vocabulary of one side and the ids of its special words."""

    words: tuple[bytes, ...]  # words in UTF-8, the word of id i at index i
    eos_id: int
    bos_id: int | None  # None if the side is not predicted


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The number of usable pairs and the vocabularies."""

    num_pairs: int  # lines that have a word on each side
    sides: tuple[CheckedSide, ...]


def check(data: DataOptions, sides: Sequence[Side]) -> Corpus:
    """Read every file once and check the rules of this module.

    Raises:
      DataError: For the first file that breaks a rule.
    """
    checked = [_check_side(data, side) for side in sides]
    flags = [f"{side.name}_file_name" for side in sides]
    files = {flag: getattr(data, flag) for flag in flags}
    num_lines = {path: count_lines(path, flag=flag) for flag, path in files.items()}
    if len(set(num_lines.values())) > 1:
        counts = ", and ".join(
            f"{path}: {count} lines" for path, count in num_lines.items()
        )
        raise DataError(
            f"{counts}; expected the same number, because line n of one file "
            "translates line n of the other"
        )
    num_pairs = count_pairs(files)
    if not num_pairs:
        first, *partners = files.values()
        if partners:
            names = " and in ".join(partners)
            raise DataError(
                f"{first}: no line has a word both here and in {names}; expected at "
                "least one such pair"
            )
        raise DataError(f"{first}: no line has a word; expected at least one sentence")
    return Corpus(num_pairs, tuple(checked))


def _check_side(data: DataOptions, side: Side) -> CheckedSide:
    name = f"{side.vocabulary or side.name}_vocab"
    path = getattr(data, f"{name}_file")
    words = _read_vocabulary(path, side.vocab_size, flag=name)

    def find_id(word: str, flag: str) -> int:
        try:
            # The bytes of the command line, even if they are not UTF-8.
            return words.index(word.encode(errors="surrogateescape"))
        except ValueError:
            raise DataError(
                f"{path}: {word!r} is not in the first {len(words)} lines, but "
                f"--{flag} names it; add the line, set --{flag} to the word that the "
                f"file uses, or raise --{name}_size"
            ) from None

    bos_id = find_id(data.bos, "bos") if side.predicted else None
    eos_id = find_id(data.eos, "eos")
    if not 0 <= data.unk_id < side.vocab_size:
        raise DataError(
            f"{path}: --unk_id={data.unk_id} is not an id of this vocabulary; "
            f"expected 0 to {side.vocab_size - 1} (--{name}_size={side.vocab_size})"
        )
    return CheckedSide(words, eos_id, bos_id)


def describe_changes(stamps: Mapping[str, list[int] | None]) -> str:
    """Return the error message for files whose stamp changed, or an empty text."""
    changed = [
        path for path, previous in stamps.items() if read_stamp(path) != previous
    ]
    remedy = "changed during the run; repeat the run with files that do not change"
    return f"{' and '.join(changed)} {remedy}" if changed else ""


def read_stamp(path: str) -> list[int] | None:
    """Return the size in bytes and the time of the last change in ns.

    Returns:
      None if the file does not exist or cannot be inspected.
    """
    with contextlib.suppress(OSError, ValueError):
        status = os.stat(path)
        return [status.st_size, status.st_mtime_ns]
    return None


def _read_vocabulary(path: str, vocab_size: int, *, flag: str) -> tuple[bytes, ...]:
    """Return the first `vocab_size` words of a vocabulary, one per line.

    Args:
      path: The vocabulary.
      vocab_size: Maximum number of words.
      flag: The flag that names the file, without `_file`.
    """
    first_line: dict[bytes, int] = {}
    lines = itertools.islice(_read_lines(path, f"{flag}_file"), vocab_size)
    for number, line in enumerate(lines, start=1):
        word = line.rstrip(b"\r")
        if word.split() != [word]:
            fault = (
                f"{_quote(word)} contains a blank"
                if word.strip()
                else "the line is empty"
            )
            raise DataError(f"{path}:{number}: {fault}; expected one word per line")
        if word in first_line:
            raise DataError(
                f"{path}:{number}: the word {_quote(word)} is already on line "
                f"{first_line[word]}; each word may occur only once"
            )
        first_line[word] = number
    if not first_line:
        raise DataError(
            f"{path}: the file is empty; expected a vocabulary, one word per line"
        )
    return tuple(first_line)


def count_lines(path: str, *, flag: str) -> int:
    r"""Return the number of lines of a text file; a last line without `\n` counts.

    Raises:
      DataError: If the file is empty or not UTF-8.
    """
    count = sum(1 for _ in _read_lines(path, flag))
    if not count:
        raise DataError(f"{path}: the file is empty; expected sentences, one per line")
    return count


def count_pairs(files: Mapping[str, str]) -> int:
    """Return how many lines have a word in each of the files.

    Args:
      files: Paths by flag.
    """
    with contextlib.ExitStack() as stack:
        open_files = [
            stack.enter_context(_open(path, flag)) for flag, path in files.items()
        ]
        return sum(all(map(bytes.strip, lines)) for lines in zip(*open_files))


@contextlib.contextmanager
def _open(path: str, flag: str) -> Iterator[BinaryIO]:
    try:
        # Only single lines of the file are in memory.
        with input_files.open_regular(path, input_files.UNLIMITED) as file:
            yield file
    except OSError as error:
        reason = error.strerror or error
        raise DataError(
            f"--{flag}={path} cannot be read ({reason}); name a readable file"
        ) from None


def _read_lines(path: str, flag: str) -> Iterator[bytes]:
    r"""Yield lines without their `\n`, the only separator of lines in a binary file.

    Raises:
      DataError: If a line is too long or not UTF-8.
    """
    with _open(path, flag) as file:
        for number in itertools.count(1):
            line = file.readline(MAX_LINE_BYTES + 2)
            if not line:
                return
            content = line.removesuffix(b"\n")
            if len(content) > MAX_LINE_BYTES:
                raise DataError(
                    f"{path}:{number}: the line has more than {MAX_LINE_BYTES:,} "
                    "bytes; expected one sentence or word per line; shorten or remove "
                    "it"
                )
            if number == 1 and line.startswith(codecs.BOM_UTF8):
                raise DataError(
                    f"{path}:1: the file starts with a byte order mark; expected UTF-8 "
                    "without one; tail -c +4 removes it"
                )
            # Most lines are ASCII, which is found faster than UTF-8 is decoded.
            if not content.isascii():
                _require_utf8(content, path, number)
            yield content


def _require_utf8(line: bytes, path: str, number: int) -> None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number}: the line is not UTF-8 ({error.reason}); "
            "convert the file to UTF-8"
        ) from None


def _quote(word: bytes) -> str:
    text = ascii(word.decode())
    if len(text) > _MAX_QUOTED_CHARS:
        return text[:_MAX_QUOTED_CHARS] + "..."
    return text
