"""Why a user's program failed, from its output: its last error, and its last lines."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence

MOST_LETTERS = 150  # of a quoted line
MOST_ERRORS = 100  # lines that are kept, so that those of the failed rank are among them
_PREFIX = re.compile(r"\[.{1,40}?\](?:<std\w+>)?:? *")
_RAISED = re.compile(r"[\w.]*(?:Error|Exception)\b|error:|fatal:", re.IGNORECASE)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: .*)?$")
_LAUNCHER = re.compile(  # the summary of torchrun and accelerate
    r"ChildFailedError|CalledProcessError: Command|torch[/.]distributed[/.].*(?:failed \(exitcode|Sending process)"
)
_RANK = re.compile(r"Root Cause.*?\brank\s*: (\d+)", re.DOTALL)
_KILLED = re.compile(r"Root Cause.*?(Signal \d+ \(\w+\) received by PID \d+)", re.DOTALL)


class ErrorOutput:
    """Collects the lines of a run that name an error."""

    def __init__(self) -> None:
        self._errors: collections.deque[str] = collections.deque(maxlen=MOST_ERRORS)
        self._is_over = self._in_traceback = self._after_file = False  # over: the summary has begun

    def see(self, line: str) -> None:
        """Keeps a line that names an error: the end of a Python traceback, or a line that begins with an error type."""
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
        """The last error, with a launcher that of the rank that failed first, and the last lines with words."""
        end = next((k for k, line in enumerate(lines) if _LAUNCHER.search(line)), len(lines))
        summary = "\n".join(lines[end:])
        rank, killed = _RANK.search(summary), _KILLED.search(summary)
        of_rank = [line for line in self._errors if rank and line.startswith(f"[rank{rank[1]}]")]
        errors = [killed[1]] if killed else [*(of_rank or self._errors)][-1:]
        worded = [line for line in lines[:end] if re.search(r"\w\w", line)]
        shown = dict.fromkeys([*errors, *([] if errors and summary else worded[-2:])])
        return " | ".join(line[:MOST_LETTERS] for line in shown) or "nothing"
