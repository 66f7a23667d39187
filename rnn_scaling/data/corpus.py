"""Checks text and vocabularies before the pipeline reads them; needs no TensorFlow.

Rules (the pipeline's own are in text.py):

- Text and vocabularies are UTF-8 without a byte order mark. Lines end with `\\n`; the last one need not. Carriage
  returns before it (CRLF) are no part of the line. A line of either has at most 64 KiB: the
  pipeline holds thousands of them.
- A word is what stands between ASCII blanks. So U+2028, U+0085, the no-break space and NUL are parts of words.
- Two text files have equally many lines; a pair with an empty side is left out, and at least one pair must be left.
- The word in line n of a vocabulary has the id n - 1. Lines after the first `vocab_size` are not read; a file with
  fewer words is fine, the ids above are then never used, unless `unk_id` is one of them.
- A vocabulary has one word a line, without blanks, each word once; `eos` is in each, `bos` in the target's.
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

_SHOWN_CHARS = 60
MAX_LINE_BYTES = 1 << 16  # some ten thousand words


class DataError(ValueError):
    """A file that cannot be trained on. One line: `FILE:LINE: what was found; what is expected`."""


@dataclasses.dataclass(frozen=True)
class CheckedSide:
    """One side's vocabulary, and the ids of its special words; `bos_id` where the side is predicted."""

    words: tuple[bytes, ...]  # those that have ids; UTF-8, the word of id i at index i
    eos_id: int
    bos_id: int | None


@dataclasses.dataclass(frozen=True)
class Corpus:
    num_pairs: int  # that are trained on: lines that have a word on each side
    sides: tuple[CheckedSide, ...]


def check(data: DataOptions, sides: Sequence[Side]) -> Corpus:
    """Reads every file once and fails on the first that breaks a rule of this module, with a DataError."""
    checked = [_checked_side(data, side) for side in sides]
    flags = [f"{side.name}_file_name" for side in sides]
    files = {flag: getattr(data, flag) for flag in flags}
    lines = {path: count_lines(path, flag=flag) for flag, path in files.items()}
    if len(set(lines.values())) > 1:
        counts = ", and ".join(
            f"{path}: {count} lines" for path, count in lines.items()
        )
        raise DataError(f"{counts}; expected equally many, line by line translations")
    num_pairs = count_pairs(files)
    if not num_pairs:
        first, *others = files.values()
        if others:
            also = " and in ".join(others)
            raise DataError(
                f"{first}: no line that has a word here and in {also}; expected at least one such pair"
            )
        raise DataError(f"{first}: no line that has a word; expected at least one")
    return Corpus(num_pairs, tuple(checked))


def _checked_side(data: DataOptions, side: Side) -> CheckedSide:
    name = f"{side.vocabulary or side.name}_vocab"
    path = getattr(data, f"{name}_file")
    words = _read_vocabulary(path, side.vocab_size, flag=name)

    def id_of(word: str, flag: str) -> int:
        try:
            return words.index(
                word.encode(errors="surrogateescape")
            )  # as the command line gave it
        except ValueError:
            raise DataError(
                f"{path}: no line {word!r} among the first {len(words)}; expected the word that "
                f"--{flag} names; add the line, give --{flag} the word that the file uses, or raise --{name}_size"
            ) from None

    bos_id = id_of(data.bos, "bos") if side.predicted else None
    eos_id = id_of(data.eos, "eos")
    if not 0 <= data.unk_id < side.vocab_size:
        raise DataError(
            f"{path}: --unk_id={data.unk_id} is no id of this vocabulary; "
            f"expected 0 to {side.vocab_size - 1} (--{name}_size={side.vocab_size})"
        )
    return CheckedSide(words, eos_id, bos_id)


def describe_changes(stamps: Mapping[str, list[int] | None]) -> str:
    """The error message for files that are no longer as `stamp` found them; "" if all are."""
    changed = [path for path, before in stamps.items() if stamp(path) != before]
    remedy = "changed while the run read it; run it again on files that stay"
    return f"{' and '.join(changed)} {remedy}" if changed else ""


def stamp(path: str) -> list[int] | None:
    """Size in bytes and time of the last change in ns; None where they cannot be had."""
    with contextlib.suppress(OSError, ValueError):
        status = os.stat(path)
        return [status.st_size, status.st_mtime_ns]
    return None


def _read_vocabulary(path: str, vocab_size: int, *, flag: str) -> tuple[bytes, ...]:
    """The first `vocab_size` words of a vocabulary, a new one in each line; `flag`: without its `_file`."""
    first_line: dict[bytes, int] = {}
    for number, line in enumerate(
        itertools.islice(_lines(path, f"{flag}_file"), vocab_size), start=1
    ):
        word = line.rstrip(b"\r")
        if word.split() != [word]:
            fault = (
                f"{_shown(word)} has a blank in it" if word.strip() else "an empty line"
            )
            raise DataError(f"{path}:{number}: {fault}; expected one word a line")
        if word in first_line:
            raise DataError(
                f"{path}:{number}: the word {_shown(word)} again, which line {first_line[word]} has; "
                "expected each word once"
            )
        first_line[word] = number
    if not first_line:
        raise DataError(f"{path}: an empty file; expected a vocabulary, a word a line")
    return tuple(first_line)


def count_lines(path: str, *, flag: str) -> int:
    """Lines of a text file, which is UTF-8 and not empty; a last line without `\\n` counts."""
    count = sum(1 for _ in _lines(path, flag))
    if not count:
        raise DataError(f"{path}: an empty file; expected sentences, one a line")
    return count


def count_pairs(files: Mapping[str, str]) -> int:
    """Lines that have a word in each of the files, by flag."""
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(_open(path, flag)) for flag, path in files.items()
        ]
        return sum(all(line.strip() for line in lines) for lines in zip(*opened))


@contextlib.contextmanager
def _open(path: str, flag: str) -> Iterator[BinaryIO]:
    try:
        with input_files.open_regular(
            path, input_files.UNLIMITED
        ) as file:  # only the lines of it are ever in memory
            yield file
    except OSError as error:
        reason = error.strerror or error
        raise DataError(
            f"{path or '(no name)'}: cannot be read ({reason}); expected --{flag} to name a file"
        ) from None


def _lines(path: str, flag: str) -> Iterator[bytes]:
    """Lines without their `\\n`, at which alone a binary file splits; each is UTF-8 and not too long."""
    with _open(path, flag) as file:
        for number in itertools.count(1):
            line = file.readline(MAX_LINE_BYTES + 2)
            if not line:
                return
            content = line.removesuffix(b"\n")
            if len(content) > MAX_LINE_BYTES:
                raise DataError(
                    f"{path}:{number}: a line of more than {MAX_LINE_BYTES:,} bytes; expected one sentence or word a "
                    "line: cut it, or leave it out"
                )
            if number == 1 and line.startswith(codecs.BOM_UTF8):
                raise DataError(
                    f"{path}:1: a byte order mark; expected UTF-8 without one: tail -c +4 removes it"
                )
            if not content.isascii():
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    reason = error.reason
                    raise DataError(
                        f"{path}:{number}: bytes that are not UTF-8 ({reason}); expected UTF-8"
                    ) from None
            yield content


def _shown(word: bytes) -> str:
    text = ascii(word.decode())
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."
