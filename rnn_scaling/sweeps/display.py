"""The progress of a sweep on stderr: a live bar on a terminal, elsewhere a line per run."""

import math
from collections.abc import Sequence
from typing import TextIO

from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.estimate import duration
from rnn_scaling.sweeps.failure import PROGRESS, RATE
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import Board, three_digits

REDRAW_S = 0.3
BAR = 22  # characters of the bar and around it, without the two numbers of runs


class SweepDisplay:
    """Shows runs and their output. `left_s`: seconds for all runs that are not done; NaN: unknown."""

    def __init__(
        self, total: int, done: int, stream: TextIO | None = None, begun: int = 0
    ) -> None:
        """stream: sys.stderr when not given; begun: runs of earlier rounds."""
        layout = "|{bar:10}| {n_fmt}/{total_fmt} runs{postfix}"
        self.board = Board(
            total, layout, stream=stream, initial=begun + done, dynamic_ncols=True
        )
        self._total, self._done = total, begun + done
        self._label, self._at, self._last = "", "", ""
        self._share: float | None = (
            0.0  # finished share of its batches; None: it counts them per epoch
        )
        self._left_s = self._since_s = self._shown_s = (
            0.0  # left_s was the estimate when since_s had passed
        )
        if done and not self.board.has_bar:
            self.board.line(f"{done} of {total - begun} runs were already finished")

    def start(self, label: str, left_s: float) -> None:
        self._label, self._at, self._left_s, self._since_s = (
            label,
            "starting",
            left_s,
            self.board.elapsed_s,
        )
        self._share = 0.0
        self._show()

    def output(self, line: str | None) -> None:
        """The run has written a line; None: only time has passed."""
        match = PROGRESS.match(line) if line else None
        if match:
            rate = RATE.search(line or "")
            done = f"{match[2]}/{match[3]}" if match[3] else match[2]
            self._at = f"{done} batches{f', {rate[1]}' if rate else ''}"
            share = int(match[2]) / max(1, int(match[3] or 0))
            is_on = match[3] and self._share is not None and share >= self._share
            self._share = share if is_on else self._share if not match[3] else None
        if self.board.elapsed_s - self._shown_s >= REDRAW_S:
            self._show()

    def end(self, label: str, result: RunRecord, left_s: float) -> None:
        self._done += 1
        self._last = outcome(result) if result.status == "ok" else result.status
        self._left_s, self._since_s, self._share = left_s, self.board.elapsed_s, 0.0
        if not self.board.has_bar:
            has_estimate = self._done < self._total and not math.isnan(left_s)
            left = f", about {duration(left_s)} left" if has_estimate else ""
            self.board.line(
                f"{self._done}/{self._total} {label}: {outcome(result)}{left}"
            )
        elif result.status != "ok":
            self.board.line(f"{label}: {outcome(result)}")
        self._show()

    def close(self) -> None:
        self.board.close()

    def _show(self) -> None:
        self._shown_s = self.board.elapsed_s
        ran_s = self._shown_s - self._since_s
        left_s = self._left_s - ran_s
        if (
            not left_s > 0 and self._done < self._total
        ):  # no estimate, or the run takes longer than expected
            run_s = ran_s / self._share if self._share else math.nan
            left_s = run_s * (self._total - self._done) - ran_s
        room = self.board.columns - BAR - 2 * len(str(self._total))
        left = "? left" if math.isnan(left_s) else f"{duration(max(0.0, left_s))} left"
        texts = [left, f"{self._label} {self._at}".strip(), f"last {self._last}"]
        self.board.move(
            self._done,
            postfix=fitting(
                [text for text in texts if text not in ("", "last ")], room
            ),
        )


def fitting(texts: Sequence[str], room: int) -> str:
    """The texts that find room, the first ones first, joined by commas.

    The second may lose letters from its middle: the end of a run's name says on how many devices it runs.
    """
    shown = list(texts)
    while len(shown) > 2 and len(", ".join(shown)) > room:
        shown.pop()
    over = len(", ".join(shown)) - room
    if over > 0 and len(shown) > 1:
        kept = max(2, len(shown[1]) - over - 1)
        shown[1] = (
            f"{shown[1][: kept // 3]}\N{HORIZONTAL ELLIPSIS}{shown[1][len(shown[1]) - (kept - kept // 3) :]}"
        )
    return ", ".join(shown)


def outcome(result: RunRecord) -> str:
    """The result of a run: its rate or its failure."""
    if result.status == "ok" and result.throughput:
        return f"{three_digits(result.throughput.items_per_second)} {result.unit}/s"
    return (
        f"{result.status}: {entry.plain(result.error.message)}"
        if result.error
        else result.status
    )
