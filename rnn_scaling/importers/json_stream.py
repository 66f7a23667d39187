"""Reads JSON value by value, so that what came before a truncation or a fault is kept."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


class JsonFault(ValueError):
    """Text that is no JSON, or ends too early."""

    def __init__(self, line: int, reason: str, between: bool = False) -> None:
        super().__init__(reason)
        self.line, self.between = line, between


class JsonReader:
    """A cursor over the text of a file. line: of the cursor, from 1."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._text, self._at, self.line = "".join(pieces), 0, 1

    def peek(self) -> str:
        """The next character that is no space; "" at the end."""
        spaces = _SPACE.match(self._text, self._at)
        self._move(spaces.end() if spaces else self._at)
        return self._text[self._at : self._at + 1]

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
        try:
            value, end = _DECODER.raw_decode(self._text, self._at)
        except json.JSONDecodeError as e:
            # It fails where the text ends, or a number, string or word was cut there; anywhere else is a fault.
            if e.pos >= len(self._text) - 16 or "Unterminated string" in e.msg:
                raise JsonFault(self.line, "the file ends within a JSON value") from None
            raise JsonFault(self.line + self._text.count("\n", self._at, e.pos), f"not JSON ({e.msg})") from None
        except (ValueError, RecursionError):
            raise JsonFault(self.line, "a JSON value too large or too deep to read") from None
        self._move(end)
        return value

    def _move(self, end: int) -> None:
        self.line += self._text.count("\n", self._at, end)
        self._at = end


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
