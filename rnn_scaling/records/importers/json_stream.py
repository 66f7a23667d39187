"""Reads a JSON list value by value, so that what came before a truncation or a fault is kept."""

import json
import re
from collections.abc import Iterator
from typing import Any

_DECODER = json.JSONDecoder()
_GAP = re.compile(r"[ \t\r\n,]*")


class JsonFault(ValueError):
    """Text that is no JSON, or ends too early; `between`: after a complete value."""

    def __init__(self, line: int, reason: str, between: bool = False) -> None:
        super().__init__(reason)
        self.line, self.between = line, between


def items(text: str, start: int) -> Iterator[tuple[int, Any]]:
    """The values of the list whose bracket ends at `start`, each with its line; JsonFault where it cannot go on."""
    at, line = start, 1 + text.count("\n", 0, start)
    while True:
        gap = _GAP.match(text, at)
        begin = gap.end() if gap else at
        line += text.count("\n", at, begin)
        if text[begin : begin + 1] == "]":
            return
        if begin >= len(text):
            raise JsonFault(line, "the file ends early, expected ']'", between=True)
        try:
            if text.count(",", at, begin) != (at > start):
                raise json.JSONDecodeError("expected ']' or ','", text, begin)
            value, at = _DECODER.raw_decode(text, begin)
        except json.JSONDecodeError as e:
            # It fails where the text ends, or a number, string or word was cut there; anywhere else is a fault.
            if e.pos >= len(text) - 16 or "Unterminated string" in e.msg:
                raise JsonFault(line, "the file ends within a JSON value") from None
            raise JsonFault(
                line + text.count("\n", begin, e.pos), f"not JSON ({e.msg})"
            ) from None
        except (ValueError, RecursionError):
            raise JsonFault(
                line, "a JSON value too large or too deep to read"
            ) from None
        yield line, value
        line += text.count("\n", begin, at)
