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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

from rnn_scaling.files import input_files
from rnn_scaling.models.batch import Side
from rnn_scaling.settings.run_options import DataOptions

_CHUNK_BYTES = 1 << 20  # stays in the processor's cache while it is looked at twice
_SHOWN_CHARS = 60
MAX_LINE_BYTES = 1 << 16  # some ten thousand words
_BOM = codecs.BOM_UTF8


class DataError(ValueError):
    """A file that cannot be trained on. One line: `FILE:LINE: what was found; what is expected`."""


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The words that have ids; UTF-8 bytes, the word of id i at index i."""

    file: str
    words: tuple[bytes, ...]


@dataclasses.dataclass(frozen=True)
class CheckedSide:
    """One side's vocabulary, and the ids of its special words; `bos_id` where the side is predicted."""

    vocabulary: Vocabulary
    eos_id: int
    bos_id: int | None


@dataclasses.dataclass(frozen=True)
class Corpus:
    """What the check learned on its way."""

    num_lines: int  # of each file, empty ones too
    sides: tuple[CheckedSide, ...]


def check(data: DataOptions, sides: Sequence[Side]) -> Corpus:
    """Reads every file once and fails on the first that breaks a rule.

    Args:
      data: names the files, `bos`, `eos` and `unk_id`.

    Raises:
      DataError: if a file breaks a rule of this module.
    """
    names = [f"{side.vocabulary or side.name}_vocab" for side in sides]
    vocabularies = [
        _read_vocabulary(getattr(data, f"{name}_file"), side.vocab_size, flag=name) for side, name in zip(sides, names)
    ]
    bos_ids = [
        _id_of(data.bos, "bos", vocabulary, f"{name}_size") if side.predicted else None
        for side, name, vocabulary in zip(sides, names, vocabularies)
    ]
    eos_ids = [_id_of(data.eos, "eos", vocabulary, f"{name}_size") for name, vocabulary in zip(names, vocabularies)]
    for side, name, vocabulary in zip(sides, names, vocabularies):
        if not 0 <= data.unk_id < side.vocab_size:
            raise DataError(
                f"{vocabulary.file}: --unk_id={data.unk_id} is no id of this vocabulary; "
                f"expected 0 to {side.vocab_size - 1} (--{name}_size={side.vocab_size})"
            )
    files = {f"{side.name}_file_name": getattr(data, f"{side.name}_file_name") for side in sides}
    num_lines = _count_equal_lines(files)
    _require_words(files)
    return Corpus(num_lines, tuple(map(CheckedSide, vocabularies, eos_ids, bos_ids)))


class Stamps:
    """Sizes and times of the last change of some files, to see later whether these are still the same."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._known = {path: _stamp(path) for path in paths}

    def change(self) -> str:
        """The error message for files that have changed since; "" if none has."""
        changed = [path for path, stamp in self._known.items() if _stamp(path) != stamp]
        remedy = "changed while the run read it; run it again on files that stay"
        return f"{' and '.join(changed)} {remedy}" if changed else ""


def _stamp(path: str) -> tuple[int, int] | None:
    """Size in bytes and time of the last change in ns; None where they cannot be had."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns


def _count_equal_lines(files: Mapping[str, str]) -> int:
    """Lines of each of the files, by flag."""
    lines = {path: count_lines(path, flag=flag) for flag, path in files.items()}
    if len(set(lines.values())) > 1:
        counts = ", and ".join(f"{path}: {count} lines" for path, count in lines.items())
        raise DataError(f"{counts}; expected equally many, line by line translations")
    return next(iter(lines.values()))


def _read_vocabulary(path: str, vocab_size: int, *, flag: str) -> Vocabulary:
    """The first `vocab_size` words of a vocabulary.

    Args:
      flag: without its `_file`, for the messages.

    Raises:
      DataError: if the file cannot be read, is empty, or one of these lines is not one new word in UTF-8.
    """
    first_line: dict[bytes, int] = {}
    with _open(path, f"{flag}_file") as file:
        for number, line in enumerate(itertools.islice(_lines(file, path), vocab_size), start=1):
            word = line.rstrip(b"\r")
            if number == 1:
                _refuse_bom(path, word)
            if not _is_utf8(word):
                raise DataError(f"{path}:{number}: bytes that are not UTF-8; expected UTF-8")
            if word.split() != [word]:
                fault = f"{_shown(word)} has a blank in it" if word.strip() else "an empty line"
                raise DataError(f"{path}:{number}: {fault}; expected one word a line")
            if word in first_line:
                raise DataError(
                    f"{path}:{number}: the word {_shown(word)} again, which line {first_line[word]} has; "
                    "expected each word once"
                )
            first_line[word] = number
    if not first_line:
        raise DataError(f"{path}: an empty file; expected a vocabulary, a word a line")
    return Vocabulary(path, tuple(first_line))


def count_lines(path: str, *, flag: str) -> int:
    """Lines of a text file that is UTF-8 and not empty; a last line without `\\n` counts.

    Raises:
      DataError: if the file cannot be read, is empty, or is not UTF-8.
    """
    lines = length = 0  # length: of the line that goes on in the next chunk
    last = b""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with _open(path, flag) as file:
        for chunk in _chunks(file, path):
            if not last:
                _refuse_bom(path, chunk)
            pending = decoder.getstate()[0]
            if pending or not chunk.isascii():
                try:
                    decoder.decode(chunk)
                except UnicodeDecodeError as error:
                    line = lines + (pending + chunk)[: error.start].count(b"\n") + 1
                    raise DataError(
                        f"{path}:{line}: bytes that are not UTF-8 ({error.reason}); expected UTF-8"
                    ) from None
            length = _check_length(path, lines, length, chunk)
            lines += chunk.count(b"\n")
            last = chunk[-1:]
    if not last:
        raise DataError(f"{path}: an empty file; expected sentences, one a line")
    if decoder.getstate()[0]:
        raise DataError(f"{path}:{lines + 1}: bytes that are not UTF-8 (the file ends in a character); expected UTF-8")
    return lines + (last != b"\n")


def _check_length(path: str, lines: int, length: int, chunk: bytes) -> int:
    """Fails on a line that is too long.

    Args:
      length: bytes of the line that the chunk goes on with.
      chunk: the file's next bytes.

    Returns:
      Bytes of the line that goes on after the chunk.
    """
    end = chunk.find(b"\n")
    if length + (len(chunk) if end < 0 else end) > MAX_LINE_BYTES:
        raise _too_long(path, lines + 1)
    if end < 0:
        return length + len(chunk)
    start = end + 1
    while len(chunk) - start > MAX_LINE_BYTES:  # jumps from line end to line end, some 64 KiB apart
        end = chunk.rfind(b"\n", start, start + MAX_LINE_BYTES + 1)
        if end < 0:
            raise _too_long(path, lines + 1 + chunk.count(b"\n", 0, start))
        start = end + 1
    return len(chunk) - 1 - chunk.rfind(b"\n")


def count_pairs(files: Mapping[str, str], most: int | None = None) -> int:
    """Lines that have a word in each of the files, by flag; stops at `most` of them."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_open(path, flag)) for flag, path in files.items()]
        pairs = (lines for lines in zip(*opened) if all(line.strip() for line in lines))
        return sum(1 for _ in itertools.islice(pairs, most))


def _require_words(files: Mapping[str, str]) -> None:
    """Fails unless some line has a word in each of the files, by flag."""
    if count_pairs(files, 1):
        return
    first, *others = files.values()
    if others:
        also = " and in ".join(others)
        raise DataError(f"{first}: no line that has a word here and in {also}; expected at least one such pair")
    raise DataError(f"{first}: no line that has a word; expected at least one")


def _id_of(word: str, flag: str, vocab: Vocabulary, size_flag: str) -> int:
    try:
        return vocab.words.index(word.encode(errors="surrogateescape"))  # as the command line gave it
    except ValueError:
        raise DataError(
            f"{vocab.file}: no line {word!r} among the first {len(vocab.words)}; expected the word that "
            f"--{flag} names; add the line, give --{flag} the word that the file uses, or raise --{size_flag}"
        ) from None


def _open(path: str, flag: str) -> BinaryIO:
    try:
        return input_files.open_regular(path, input_files.UNLIMITED)  # only the lines of it are ever in memory
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path or '(no name)'}: cannot be read ({reason}); expected --{flag} to name a file") from None


def _chunks(file: BinaryIO, path: str) -> Iterator[bytes]:
    try:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); expected a file") from None


def _lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Lines without their `\\n`, none of which may be too long; a binary file splits at nothing else."""
    for number in itertools.count(1):
        line = file.readline(MAX_LINE_BYTES + 2)
        if not line:
            return
        content = line.removesuffix(b"\n")
        if len(content) > MAX_LINE_BYTES:
            raise _too_long(path, number)
        yield content


def _too_long(path: str, number: int) -> DataError:
    return DataError(
        f"{path}:{number}: a line of more than {MAX_LINE_BYTES:,} bytes; expected one sentence or word a line: "
        "cut it, or leave it out"
    )


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _refuse_bom(path: str, start: bytes) -> None:
    if start.startswith(_BOM):
        raise DataError(f"{path}:1: a byte order mark; expected UTF-8 without one: tail -c +4 removes it")


def _shown(word: bytes) -> str:
    """A word as part of a one-line message."""
    text = ascii(word.decode())
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."
