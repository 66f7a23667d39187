"""The lines in which another program prints warnings.

Sweeps keep the warnings of a user's program, and reports show them.
"""

import re

from rnn_scaling.system import entry

_MAX_LINES = 5  # different lines of a run that are kept
_MAX_LETTERS = 200  # letters of each line that are kept
# "WARNING: ...", "[WARN] ...", "UserWarning: ...", "warning: ..." near a line's start.
_WARNING = re.compile(
    r".{0,120}?(?:\bWARN(?:ING)?\b|\b[A-Za-z]*Warning:|^warning:|[\s:\]]warning:)"
)


class WarningLines:
    """Collects the warnings of a run; lines that differ only in numbers are one."""

    def __init__(self) -> None:
        self._by_text: dict[str, str] = {}

    def see(self, line: str) -> None:
        """Keep a line if it is a new warning."""
        if len(self._by_text) >= _MAX_LINES or not _WARNING.match(line):
            return
        text = entry.make_printable(line.strip())[:_MAX_LETTERS]
        self._by_text.setdefault(mask_numbers(text), text)

    def lines(self) -> tuple[str, ...]:
        """Return the first line of each warning."""
        return tuple(self._by_text.values())


def mask_numbers(line: str) -> str:
    """Return the line with "#" for each number, so that similar lines are equal."""
    return re.sub(r"\d+", "#", line)
