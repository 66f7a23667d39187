"""How far the measurements are and what each gave, on stderr: one bar on a terminal, else a line for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from rnn_scaling.files.terminal import Board


class LinksDisplay:
    """Told of every measurement that starts and of its rounds."""

    def __init__(self, enabled: bool, total: int, stream: TextIO | None = None) -> None:
        """stream: where to; sys.stderr when not given."""
        layout = "{desc} |{bar}| {percentage:.0f} %, {elapsed} so far, {remaining} left"
        self._board = Board(total, layout, enabled=enabled, stream=stream, leave=False)
        self._total, self._started = total, 0

    def start(self, what: str) -> None:
        """The next measurement starts."""
        self._started += 1
        if self._board.has_bar:
            self._board.move(self._started - 1, what)
        else:
            self._board.line(f"{self._started}/{self._total}: {what}")

    def rounds(self, done: int, total: int, what: str) -> None:
        """Rounds of the measurement have been made."""
        self._board.move(self._started - 1 + done / max(total, 1), what)

    def rows(self, lines: Iterable[str]) -> None:
        """A measurement has ended: what it gave, a line each, which stay above the bar."""
        for line in lines:
            self._board.line(f"  {line}")

    def close(self) -> None:
        self._board.close()
