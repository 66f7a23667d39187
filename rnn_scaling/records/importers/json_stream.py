"""Read a JSON list value by value, so that values before a fault are kept.

Formats whose files may be cut short call `read_items` for their lists.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

_DECODER = json.JSONDecoder()
_GAP = re.compile(r"[ \t\r\n,]*")
_CUT_CHARACTERS = 16  # a number or word that the end of the text cuts is shorter


class JsonFault(ValueError):
    """Text that is not JSON, or ends too early.

    Attributes:
      line: Line of the fault.
      is_between_values: Whether the text ends after a complete value.
    """

    def __init__(self, line: int, reason: str, is_between_values: bool = False) -> None:
        super().__init__(reason)
        self.line = line
        self.is_between_values = is_between_values


def read_items(text: str, start: int) -> Iterator[tuple[int, Any]]:
    """Yield the values of a list with their lines.

    Args:
      text: The text with the list.
      start: Position behind the opening bracket of the list.

    Raises:
      JsonFault: If the list ends early or contains something else than JSON.
    """
    position = start
    line = 1 + text.count("\n", 0, start)
    while True:
        gap = _GAP.match(text, position)
        begin = gap.end() if gap else position
        line += text.count("\n", position, begin)
        if text[begin : begin + 1] == "]":
            return
        if begin >= len(text):
            raise JsonFault(
                line, "the file ends early, expected ']'", is_between_values=True
            )
        num_commas = 0 if position == start else 1
        try:
            # The gap pattern skips any number of commas; the decoder checks none.
            if text.count(",", position, begin) != num_commas:
                raise json.JSONDecodeError("expected ']' or ','", text, begin)
            value, position = _DECODER.raw_decode(text, begin)
        except json.JSONDecodeError as e:
            is_cut = e.pos >= len(text) - _CUT_CHARACTERS
            if is_cut or "Unterminated string" in e.msg:
                raise JsonFault(line, "the file ends within a JSON value") from None
            line += text.count("\n", begin, e.pos)
            raise JsonFault(line, f"not JSON ({e.msg})") from None
        except (ValueError, RecursionError):
            reason = "a JSON value is too large or too deeply nested"
            raise JsonFault(line, reason) from None
        yield line, value
        line += text.count("\n", begin, position)
