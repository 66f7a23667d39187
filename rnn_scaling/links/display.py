"""How far the measurements are, on stderr: one bar on a terminal, else a line for each."""

from __future__ import annotations

import sys
from typing import TextIO


class Display:
    """Told of every measurement that starts and of its rounds."""

    def __init__(self, enabled: bool, total: int, stream: TextIO | None = None) -> None:
        """Args:
        enabled: False shows nothing.
        total: measurements.
        stream: where to; sys.stderr when not given.
        """
        self._stream, self._enabled, self._total = stream or sys.stderr, enabled, total
        self._started, self._bar = 0, None
        if enabled and self._stream.isatty():
            from tqdm import tqdm  # here, so that runs without a terminal do not load it

            layout = "{desc} |{bar}| {percentage:.0f} %, {elapsed} so far, {remaining} left"
            self._bar = tqdm(total=total, file=self._stream, bar_format=layout, leave=False)

    def start(self, what: str) -> None:
        """The next measurement starts."""
        self._started += 1
        if self._bar is not None:
            self._move(self._started - 1, what)
        elif self._enabled:
            print(f"{self._started}/{self._total}: {what}", file=self._stream, flush=True)

    def rounds(self, done: int, total: int, what: str) -> None:
        """`done` of `total` rounds of the measurement have been made."""
        if self._bar is not None:
            self._move(self._started - 1 + done / max(total, 1), what)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _move(self, position: float, what: str) -> None:
        self._bar.set_description_str(what, refresh=False)
        self._bar.n = position
        self._bar.refresh()
