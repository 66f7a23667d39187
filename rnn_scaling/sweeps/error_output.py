"""Why somebody's program failed, by what it printed: the last error that it named, and its last lines."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence

MOST_LETTERS = 150  # of a line that a message quotes
MOST_ERRORS = 100  # that are kept: of several ranks one counts
_PREFIX = re.compile(r"\[.{1,40}?\](?:<std\w+>)?:? *")
_RAISED = re.compile(r"[\w.]*(?:Error|Exception)\b|error:|fatal:", re.IGNORECASE)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: .*)?$")
_LAUNCHER = re.compile(  # torchrun's, and accelerate's, summary
    r"ChildFailedError|CalledProcessError: Command|torch[/.]distributed[/.].*(?:failed \(exitcode|Sending process)"
)
_RANK = re.compile(r"Root Cause.*?\brank\s*: (\d+)", re.DOTALL)
_KILLED = re.compile(r"Root Cause.*?(Signal \d+ \(\w+\) received by PID \d+)", re.DOTALL)


class ErrorOutput:
    """Sees each line of a run."""

    def __init__(self) -> None:
        self._errors: collections.deque[str] = collections.deque(maxlen=MOST_ERRORS)
        self._is_over = self._in_traceback = self._after_file = False  # over: a launcher sums up

    def see(self, line: str) -> None:
        """Keeps a line that names an error: the end of a Python traceback, or one that says so."""
        self._is_over = self._is_over or bool(_LAUNCHER.search(line))
        text = _PREFIX.sub("", line, count=1)
        if text.startswith("Traceback (most recent call last)"):
            self._in_traceback = True
        elif not self._is_over:
            is_end = self._in_traceback and not self._after_file and bool(_EXCEPTION.match(text))
            self._in_traceback = self._in_traceback and not is_end
            if is_end or _RAISED.match(text):
                self._errors.append(line)
        self._after_file = text.startswith('File "')

    def text(self, lines: Sequence[str]) -> str:
        """The last error, of a launcher's ranks that of the first that failed, and the last lines with words."""
        end = next((k for k, line in enumerate(lines) if _LAUNCHER.search(line)), len(lines))
        summary = "\n".join(lines[end:])
        rank, killed = _RANK.search(summary), _KILLED.search(summary)
        of_rank = [line for line in self._errors if rank and line.startswith(f"[rank{rank[1]}]")]
        errors = [killed[1]] if killed else [*(of_rank or self._errors)][-1:]
        worded = [line for line in lines[:end] if re.search(r"\w\w", line)]
        shown = dict.fromkeys([*errors, *([] if errors and summary else worded[-2:])])
        return " | ".join(line[:MOST_LETTERS] for line in shown) or "nothing"
