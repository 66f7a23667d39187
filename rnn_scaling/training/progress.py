"""How far a run is, on stderr: a live bar on a terminal, a plain line every few seconds elsewhere."""

import time
from collections.abc import Callable
from typing import TextIO

from rnn_scaling.system.files.terminal import Board, three_digits
from rnn_scaling.training.observers import Batch, Observer, RunView

PLAIN_INTERVAL_S = 5.0
LAYOUT = "{desc} |{bar}| {n_fmt}/{total_fmt} batches{postfix}, {remaining} left"


class Progress:
    """Told of every batch after the clock was read."""

    def __init__(
        self,
        enabled: bool,
        total: int,
        warmup: int,
        unit: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        whose: str = "",
        before: int = 0,
    ) -> None:
        """total: batches of the run, warm-up included; 0: unknown, and a terminal has lines, too."""
        first = "warm-up" if warmup else "measuring"
        self._board = Board(
            total,
            LAYOUT,
            enabled=enabled,
            stream=stream,
            desc=first,
            postfix="compiling",
            leave=False,
        )
        self._total, self._warmup, self._rate_unit, self._clock = (
            total,
            warmup,
            f"{unit}/s{whose}",
            clock,
        )
        self._done, self._timed, self._seconds, self._last_line = (
            before,
            0,
            0.0,
            clock(),
        )

    def batch(
        self, step_s: float, items: int, loss: float, accuracy: float | None = None
    ) -> None:
        """A batch has ended. `accuracy`: share of its right predictions; None: not counted."""
        self._done += 1
        right = "" if accuracy is None else f", accuracy {100 * accuracy:.1f} %"
        rate = (
            f"{three_digits(items / step_s)} {self._rate_unit}, loss {loss:.4g}{right}"
        )
        if self._board.has_bar:
            phase = "measuring" if self._done == self._warmup else None
            return self._board.move(self._done, phase, rate, redraw=False)
        if self._done > 1:  # the first batch compiles; it says nothing about the others
            self._seconds += step_s
            self._timed += 1
        now = self._clock()
        if now - self._last_line < PLAIN_INTERVAL_S and self._done != self._total:
            return None
        self._last_line = now
        phase = "warm-up" if self._done <= self._warmup else "measuring"
        each_s = self._seconds / max(1, self._timed)
        left = (
            f", {(self._total - self._done) * each_s:.0f} s left"
            if self._done > 1 and self._total
            else ""
        )
        done = f"{self._done}/{self._total}" if self._total else f"{self._done}"
        return self._board.line(f"{phase}: {done} batches, {rate}{left}")

    def close(self) -> None:
        self._board.close()


class ProgressLine(Observer):
    """Shows how far a run is."""

    def __init__(self) -> None:
        self._progress: Progress | None = None

    def begin(self, run: RunView) -> None:
        self._progress = Progress(
            run.config.output.progress and run.rank == 0,
            run.max_batches,
            run.config.measure.num_warmup_batches,
            run.state.unit,
            whose=" at rank 0" if run.state.clients > 1 else "",
            before=len(run.state.timer.step_s),
        )

    def batch(self, batch: Batch) -> bool:
        assert self._progress is not None
        self._progress.batch(
            batch.seconds, batch.items, batch.loss, batch.result.accuracy
        )
        return False

    def end(self) -> None:
        if self._progress is not None:
            self._progress.close()
