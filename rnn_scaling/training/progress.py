"""How far a run is, on stderr: a live bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Protocol, TextIO

PLAIN_INTERVAL_S = 5.0


class Progress(Protocol):
    """Told of every batch after the clock was read."""

    def batch(self, step_s: float, words: int, loss: float) -> None: ...

    def close(self) -> None: ...


def start(enabled: bool, total: int, warmup: int, stream: TextIO | None = None) -> Progress:
    """The progress display that suits `stream`.

    Args:
      enabled: False shows nothing.
      total: batches of the run, warm-up included.
      warmup: warm-up batches.
      stream: where to; sys.stderr when not given.
    """
    stream = stream or sys.stderr
    if not enabled:
        return _Silent()
    return _Bar(total, warmup, stream) if stream.isatty() else _Lines(total, warmup, stream)


class _Silent:
    def batch(self, step_s: float, words: int, loss: float) -> None:
        pass

    def close(self) -> None:
        pass


class _Bar:
    def __init__(self, total: int, warmup: int, stream: TextIO) -> None:
        from tqdm import tqdm  # here, so that runs without a terminal do not load it

        layout = "{desc} |{bar}| {n_fmt}/{total_fmt} batches, {postfix}, {remaining} left"
        self._warmup, self._done = warmup, 0
        self._bar = tqdm(total=total, file=stream, bar_format=layout, postfix="compiling", leave=False)
        self._bar.set_description("warm-up" if warmup else "measuring", refresh=True)

    def batch(self, step_s: float, words: int, loss: float) -> None:
        self._done += 1
        if self._done == self._warmup:
            self._bar.set_description("measuring", refresh=False)
        self._bar.set_postfix_str(_rate(step_s, words, loss), refresh=False)
        self._bar.update()

    def close(self) -> None:
        self._bar.close()


class _Lines:
    def __init__(self, total: int, warmup: int, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._warmup, self._stream, self._clock = total, warmup, stream, clock
        self._done, self._seconds, self._last_line = 0, 0.0, clock()

    def batch(self, step_s: float, words: int, loss: float) -> None:
        self._done += 1
        if self._done > 1:  # the first batch compiles; it says nothing about the others
            self._seconds += step_s
        now = self._clock()
        if now - self._last_line < PLAIN_INTERVAL_S and self._done != self._total:
            return
        self._last_line = now
        phase = "warm-up" if self._done <= self._warmup else "measuring"
        left_s = (self._total - self._done) * self._seconds / max(1, self._done - 1)
        print(
            f"{phase}: {self._done}/{self._total} batches, {_rate(step_s, words, loss)}, {left_s:.0f} s left",
            file=self._stream,
            flush=True,
        )

    def close(self) -> None:
        pass


def _rate(step_s: float, words: int, loss: float) -> str:
    return f"{words / step_s:,.0f} words/s, loss {loss:.4g}"
