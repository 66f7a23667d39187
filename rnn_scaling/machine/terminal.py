"""How far something is, on stderr: tqdm's bar on a terminal; elsewhere whatever lines the caller has."""

from __future__ import annotations

import sys
from typing import Any, TextIO


class Board:
    """A bar where the stream is a terminal, else plain lines; nothing at all where it is switched off."""

    def __init__(
        self, total: int, layout: str, *, enabled: bool = True, stream: TextIO | None = None, **options: Any
    ) -> None:
        """Args:
        total: of what the bar counts.
        layout: tqdm's bar_format.
        enabled: False shows nothing.
        stream: where to; sys.stderr when not given.
        options: more of tqdm's.
        """
        self._stream, self._enabled, self._bar = stream or sys.stderr, enabled, None
        if enabled and self._stream.isatty():
            from tqdm import tqdm  # here, so that runs without a terminal do not load it

            self._bar = tqdm(total=total, bar_format=layout, file=self._stream, **options)

    @property
    def has_bar(self) -> bool:
        return self._bar is not None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the bar was opened; 0 without one."""
        return self._bar.format_dict["elapsed"] if self._bar is not None else 0.0

    def move(
        self,
        position: float | None = None,
        description: str | None = None,
        postfix: str | None = None,
        redraw: bool = True,
    ) -> None:
        """Moves the bar, if there is one.

        Args:
          position: of `total`; None: as before.
          description: text before the bar; None: as before.
          postfix: text behind it; None: as before.
          redraw: False draws it ten times a second at most, for calls that cost time.
        """
        if self._bar is None:
            return
        if description is not None:
            self._bar.set_description_str(description, refresh=False)
        if postfix is not None:
            self._bar.set_postfix_str(postfix, refresh=False)
        moved = 0 if position is None else position - self._bar.n
        if redraw:
            self._bar.n += moved
            self._bar.refresh()
        else:
            self._bar.update(moved)

    def line(self, text: str) -> None:
        """Prints a line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        elif self._enabled:
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
