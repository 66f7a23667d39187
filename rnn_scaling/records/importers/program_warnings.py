"""The lines in which a user's program warns of something."""

import re

from rnn_scaling.system import entry

MOST_LINES = 5  # different lines of a run that are kept
MOST_LETTERS = 200  # of such a line
# "WARNING: ...", "[WARN] ...", "UserWarning: ...", "warning: ...", at a line's start.
_WARNING = re.compile(
    r".{0,120}?(?:\bWARN(?:ING)?\b|\b[A-Za-z]*Warning:|^warning:|[\s:\]]warning:)"
)


class WarningLines:
    """Collects the warnings of a run, each once, regardless of its numbers."""

    def __init__(self) -> None:
        self._by_text: dict[str, str] = {}

    def see(self, line: str) -> None:
        """Keep a line if it is a warning that has not been seen yet."""
        if len(self._by_text) >= MOST_LINES or not _WARNING.match(line):
            return
        shown = entry.printable(line.strip())[:MOST_LETTERS]
        self._by_text.setdefault(mask_numbers(shown), shown)

    def lines(self) -> tuple[str, ...]:
        """Return the first line of each warning."""
        return tuple(self._by_text.values())


def mask_numbers(line: str) -> str:
    """Return the line with its numbers masked, so that similar lines are equal."""
    return re.sub(r"\d+", "#", line)
