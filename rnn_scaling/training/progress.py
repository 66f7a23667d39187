"""Show the progress of a run on stderr.

A terminal shows a bar; any other stream gets a plain line every few seconds.
"""

import time
from collections.abc import Callable
from typing import TextIO

from rnn_scaling.system.files.terminal import Board, format_three_digits
from rnn_scaling.training.observers import Batch, Observer, RunView

PLAIN_INTERVAL_S = 5.0
LAYOUT = "{desc} |{bar}| {n_fmt}/{total_fmt} batches{postfix}, {remaining} left"


class Progress:
    """Shows each batch after the clock was read; only one thread may use it."""

    def __init__(
        self,
        enabled: bool,
        total: int,
        warmup: int,
        unit: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        scope: str = "",
        done: int = 0,
    ) -> None:
        """Start the display.

        Args:
          enabled: Whether anything is written.
          total: Batches of the run with the warm-up; 0 if unknown. Even a terminal then
            gets lines.
          warmup: Batches of the warm-up.
          unit: The unit of the items.
          stream: The stream to write to; None for stderr.
          clock: Returns seconds.
          scope: Follows the unit of the rate, as in " at rank 0".
          done: Batches that were done before a checkpoint.
        """
        self._board = Board(
            total,
            LAYOUT,
            enabled=enabled,
            stream=stream,
            desc="warm-up" if warmup else "measuring",
            postfix="compiling",
            leave=False,
        )
        self._total = total
        self._warmup = warmup
        self._rate_unit = f"{unit}/s{scope}"
        self._clock = clock
        self._done = done
        self._num_timed = 0
        self._timed_s = 0.0
        self._last_line = clock()

    def show_batch(
        self, step_s: float, items: int, loss: float, accuracy: float | None = None
    ) -> None:
        """Show a batch that has ended.

        Args:
          step_s: Seconds of the batch.
          items: Items of the batch.
          loss: Mean loss of the batch.
          accuracy: Share of correct predictions, or None if they are not counted.
        """
        self._done += 1
        rate = (
            f"{format_three_digits(items / step_s)} {self._rate_unit}, loss {loss:.4g}"
        )
        if accuracy is not None:
            rate += f", accuracy {100 * accuracy:.1f} %"
        if self._board.has_bar:
            phase = "measuring" if self._done == self._warmup else None
            self._board.move(self._done, phase, rate, redraw=False)
            return
        # The first batch compiles and does not show how long the others take.
        if self._done > 1:
            self._timed_s += step_s
            self._num_timed += 1
        now = self._clock()
        is_due = now - self._last_line >= PLAIN_INTERVAL_S
        if is_due or self._done == self._total:
            self._last_line = now
            self._write_line(rate)

    def _write_line(self, rate: str) -> None:
        """Print a line with the batches, the rate and the remaining seconds."""
        phase = "warm-up" if self._done <= self._warmup else "measuring"
        done_text = str(self._done)
        remaining = ""
        if self._total:
            done_text += f"/{self._total}"
            if self._done > 1:
                batch_s = self._timed_s / max(1, self._num_timed)
                remaining_s = (self._total - self._done) * batch_s
                remaining = f", {remaining_s:.0f} s left"
        self._board.print_line(f"{phase}: {done_text} batches, {rate}{remaining}")

    def close(self) -> None:
        """Remove the bar."""
        self._board.close()


class ProgressLine(Observer):
    """Shows the progress of a run."""

    def __init__(self) -> None:
        self._progress: Progress | None = None

    def begin(self, run: RunView) -> None:
        self._progress = Progress(
            run.config.output.progress and run.rank == 0,
            run.max_batches,
            run.config.measure.num_warmup_batches,
            run.state.unit,
            scope=" at rank 0" if run.state.clients > 1 else "",
            done=len(run.state.timer.step_s),
        )

    def end_batch(self, batch: Batch) -> bool:
        assert self._progress is not None
        self._progress.show_batch(
            batch.seconds, batch.items, batch.loss, batch.result.accuracy
        )
        return False

    def end(self) -> None:
        if self._progress is not None:
            self._progress.close()
