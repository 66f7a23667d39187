"""Show the progress of a sweep on stderr: a bar on a terminal, or else a line per run.

Only `conduct` uses `SweepDisplay`.
"""

import math
from collections.abc import Sequence
from typing import TextIO

from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.estimate import format_duration
from rnn_scaling.sweeps.failure import PROGRESS, RATE
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import Board, format_three_digits

_REDRAW_S = 0.3
_BAR_CHARACTERS = (
    22  # characters of the bar and around it, without the two numbers of runs
)


class SweepDisplay:
    """Shows the runs of a sweep and their output.

    Everywhere `left_s` is the estimate for all runs that are not done, in seconds; NaN
    if it is unknown.
    """

    def __init__(
        self,
        total: int,
        num_done: int,
        stream: TextIO | None = None,
        num_begun: int = 0,
    ) -> None:
        """Show the runs that are finished already.

        Args:
          total: Runs of all rounds so far.
          num_done: Runs of this round that were finished before.
          stream: The stream that shows them; None for stderr.
          num_begun: Runs of earlier rounds.
        """
        layout = "|{bar:10}| {n_fmt}/{total_fmt} runs{postfix}"
        self.board = Board(
            total,
            layout,
            stream=stream,
            initial=num_begun + num_done,
            dynamic_ncols=True,
        )
        self._total = total
        self._done = num_begun + num_done
        self._label = ""
        self._progress = ""
        self._last = ""
        # Finished share of the run's batches; None if it counts them per epoch.
        self._share: float | None = 0.0
        self._left_s = 0.0  # estimate when the run started
        self._started_s = 0.0
        self._shown_s = 0.0
        if num_done and not self.board.has_bar:
            self.board.print_line(
                f"{num_done} of {total - num_begun} runs were already finished"
            )

    def start(self, label: str, left_s: float) -> None:
        """Show that a run starts."""
        self._label = label
        self._progress = "starting"
        self._restart(left_s)
        self._show()

    def _restart(self, left_s: float) -> None:
        self._left_s = left_s
        self._started_s = self.board.elapsed_s
        self._share = 0.0

    def show_output(self, line: str | None) -> None:
        """Show a line that the run has written, or None if only time has passed."""
        match = PROGRESS.match(line) if line else None
        if match:
            rate = RATE.search(match.string)
            _, step, total = match.groups()
            step_text = f"{step}/{total}" if total else step
            self._progress = f"{step_text} batches"
            if rate:
                self._progress += f", {rate[1]}"
            if total:
                share = int(step) / max(1, int(total))
                is_growing = self._share is not None and share >= self._share
                self._share = share if is_growing else None
        if self.board.elapsed_s - self._shown_s >= _REDRAW_S:
            self._show()

    def end(self, label: str, result: RunRecord, left_s: float) -> None:
        """Show the result of a run."""
        self._done += 1
        is_ok = result.status == "ok"
        self._last = describe(result) if is_ok else result.status
        self._restart(left_s)
        if not self.board.has_bar:
            line = f"{self._done}/{self._total} {label}: {describe(result)}"
            if self._done < self._total and not math.isnan(left_s):
                line += f", about {format_duration(left_s)} left"
            self.board.print_line(line)
        elif not is_ok:
            self.board.print_line(f"{label}: {describe(result)}")
        self._show()

    def close(self) -> None:
        """Remove the bar."""
        self.board.close()

    def _show(self) -> None:
        """Redraw the line of the running run and of the time that remains."""
        self._shown_s = self.board.elapsed_s
        ran_s = self._shown_s - self._started_s
        left_s = self._left_s - ran_s
        runs_left = self._total - self._done
        # No estimate, or the run takes longer than expected.
        if not left_s > 0 and runs_left:
            run_s = ran_s / self._share if self._share else math.nan
            left_s = run_s * runs_left - ran_s
        time_left = "?" if math.isnan(left_s) else format_duration(max(0.0, left_s))
        texts = [f"{time_left} left", f"{self._label} {self._progress}".strip()]
        if self._last:
            texts.append(f"last {self._last}")
        room = self.board.columns - _BAR_CHARACTERS - 2 * len(str(self._total))
        self.board.move(self._done, postfix=fit(texts, room))


def fit(texts: Sequence[str], room: int) -> str:
    """Join the first texts that fit into `room` letters by commas.

    The second may lose letters from its middle, because the end of a run's name is its
    number of devices.
    """
    shown_texts = [text for text in texts if text]
    while len(shown_texts) > 2 and len(", ".join(shown_texts)) > room:
        shown_texts.pop()
    over = len(", ".join(shown_texts)) - room
    if over > 0 and len(shown_texts) > 1:
        text = shown_texts[1]
        max_letters = max(2, len(text) - over - 1)
        head = text[: max_letters // 3]
        tail = text[len(text) - (max_letters - max_letters // 3) :]
        shown_texts[1] = f"{head}\N{HORIZONTAL ELLIPSIS}{tail}"
    return ", ".join(shown_texts)


def describe(result: RunRecord) -> str:
    """Return the result of a run: its rate or its failure."""
    if result.status == "ok" and result.throughput:
        return (
            f"{format_three_digits(result.throughput.items_per_second)} {result.unit}/s"
        )
    if result.error:
        return f"{result.status}: {entry.make_plain(result.error.message)}"
    return result.status
