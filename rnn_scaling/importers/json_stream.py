"""Reads JSON of any size piece by piece: one value in memory at a time, and what came before a truncation is kept."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"
_ENDS = tuple(_SPACE + ",]}")  # what may stand after a number
MAX_VALUE = 64 << 20  # longest single value, in characters


class JsonFault(ValueError):
    """Text that is no JSON, or ends too early."""

    def __init__(self, line: int, reason: str, between: bool = False) -> None:
        super().__init__(reason)
        self.line, self.between = line, between


class JsonReader:
    """A cursor over JSON text that comes in pieces.

    line: line of the cursor, from 1.
    """

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = iter(pieces)
        self._buffer = ""
        self._at = 0
        self.line = 1

    def peek(self) -> str:
        """The next character that is no space; "" at the end."""
        while True:
            while self._at < len(self._buffer):
                if self._buffer[self._at] not in _SPACE:
                    return self._buffer[self._at]
                self.line += self._buffer[self._at] == "\n"
                self._at += 1
            if not self._more():
                return ""

    def take(self, expected: str) -> None:
        """Steps over one character. Raises JsonFault if another one is next."""
        got = self.peek()
        if not got:
            raise JsonFault(self.line, f"the file ends early, expected {expected!r}", between=True)
        if got != expected:
            raise JsonFault(self.line, f"not JSON (expected {expected!r}, got {got!r})")
        self._at += 1

    def value(self) -> Any:
        """The next value, whole. Raises JsonFault if it is no JSON, or the text ends within it."""
        if not self.peek():
            raise JsonFault(self.line, "the file ends early, expected a value", between=True)
        while True:
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._at)
            except (ValueError, RecursionError) as e:
                self._retry(e)
                continue
            # "2.5e" of a number that goes on in the next piece reads as 2.5.
            is_cut = self._buffer[end : end + 1] not in _ENDS
            if is_cut and not isinstance(value, (dict, list, str)) and self._more():
                continue
            self.line += self._buffer.count("\n", self._at, end)
            self._at = end
            return value

    def _retry(self, error: Exception) -> None:
        """Reads at least as much again as is held already, so that a long value costs linear time."""
        size = len(self._buffer) - self._at
        if size > MAX_VALUE or not isinstance(error, json.JSONDecodeError):
            raise JsonFault(self.line, "a JSON value too large or too deep to read") from None
        # The decoder fails where the text ends, or a number, string or word was cut there; anywhere else is a fault.
        position = error.pos
        near_end = position >= len(self._buffer) - 16 or "Unterminated string" in str(error)
        if not near_end:
            line = self.line + self._buffer.count("\n", self._at, position)
            raise JsonFault(line, f"not JSON ({error.msg})") from None
        if not self._more(least=size):
            raise JsonFault(self.line, "the file ends within a JSON value") from None

    def _more(self, least: int = 1) -> bool:
        """Takes pieces of at least so many characters together; False if none is left."""
        pieces, size = [], 0
        for piece in self._pieces:
            pieces.append(piece)
            size += len(piece)
            if size >= least:
                break
        self._buffer = self._buffer[self._at :] + "".join(pieces)
        self._at = 0
        return bool(pieces)


def items(reader: JsonReader) -> Iterator[tuple[int, Any]]:
    """The values of a JSON list one by one, each with its line."""
    reader.take("[")
    for line in _lines_until(reader, "]"):
        yield line, reader.value()


def members(reader: JsonReader) -> Iterator[str]:
    """The keys of a JSON object one by one; the caller reads each value with `reader.value` or `items`."""
    reader.take("{")
    for _ in _lines_until(reader, "}"):
        key = reader.value()
        if not isinstance(key, str):
            raise JsonFault(reader.line, f"expected a key in quotes, got {str(key)[:40]!r}")
        reader.take(":")
        yield key


def _lines_until(reader: JsonReader, end: str) -> Iterator[int]:
    """The line of each value or member, which the caller reads; steps over the commas between them and over `end`."""
    while reader.peek() != end:
        yield reader.line
        if reader.peek() == ",":
            reader.take(",")
        elif reader.peek() != end:
            reader.take(end)  # says what is there instead
    reader.take(end)
