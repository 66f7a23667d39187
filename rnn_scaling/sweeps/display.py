"""How far a sweep is, on stderr: a live bar on a terminal, a plain line a run elsewhere."""

from __future__ import annotations

import sys
from typing import Protocol, TextIO

from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.estimate import duration
from rnn_scaling.sweeps.failure import PROGRESS

REDRAW_S = 0.3


class Display(Protocol):
    """Told of every run and of what it says. `left_s` is the estimate for all runs that are not done."""

    def start(self, label: str, left_s: float) -> None: ...

    def said(self, line: str | None) -> None: ...

    def end(self, label: str, result: RunRecord, left_s: float) -> None: ...

    def close(self) -> None: ...


def open_display(total: int, done: int, stream: TextIO | None = None) -> Display:
    """The display that suits the stream (stderr).

    Args:
      total: runs of the sweep.
      done: runs that were finished before.
      stream: where to.
    """
    stream = stream or sys.stderr
    return _Bar(total, done, stream) if stream.isatty() else _Lines(total, done, stream)


class _Bar:
    def __init__(self, total: int, done: int, stream: TextIO) -> None:
        from tqdm import tqdm  # here, so that a sweep without a terminal does not load it

        layout = "|{bar:10}| {n_fmt}/{total_fmt} runs{postfix}"
        self._bar = tqdm(total=total, initial=done, file=stream, bar_format=layout, dynamic_ncols=True)
        self._label, self._at, self._last = "", "", ""
        self._left_s = self._since_s = self._shown_s = 0.0  # left_s was the estimate when since_s had passed

    def start(self, label: str, left_s: float) -> None:
        self._label, self._at, self._left_s, self._since_s = label, "starting", left_s, self._elapsed_s()
        self._show()

    def said(self, line: str | None) -> None:
        match = PROGRESS.match(line) if line else None
        if match:
            self._at = f"{match[2]}/{match[3]} batches"
        if self._elapsed_s() - self._shown_s >= REDRAW_S:
            self._show()

    def end(self, label: str, result: RunRecord, left_s: float) -> None:
        self._last = outcome(result) if result.status == "ok" else result.status
        self._left_s, self._since_s = left_s, self._elapsed_s()
        if result.status != "ok":
            self._bar.write(f"{label}: {outcome(result)}", file=self._bar.fp)
        self._bar.update()
        self._show()

    def close(self) -> None:
        self._bar.close()

    def _elapsed_s(self) -> float:
        return self._bar.format_dict["elapsed"]

    def _show(self) -> None:
        self._shown_s = self._elapsed_s()
        left_s = max(0.0, self._left_s - (self._shown_s - self._since_s))
        last = [f"last {self._last}"] if self._last else []
        # What matters most comes first: a narrow terminal shows no more.
        parts = [f"{duration(left_s)} left", *last, f"{self._label} {self._at}"]
        self._bar.set_postfix_str(", ".join(parts), refresh=False)
        self._bar.refresh()


class _Lines:
    def __init__(self, total: int, done: int, stream: TextIO) -> None:
        self._total, self._done, self._stream = total, done, stream
        if done:
            print(f"{done} of {total} runs were finished before", file=stream, flush=True)

    def start(self, label: str, left_s: float) -> None:
        pass

    def said(self, line: str | None) -> None:
        pass

    def end(self, label: str, result: RunRecord, left_s: float) -> None:
        self._done += 1
        left = f", about {duration(left_s)} left" if self._done < self._total else ""
        print(f"{self._done}/{self._total} {label}: {outcome(result)}{left}", file=self._stream, flush=True)

    def close(self) -> None:
        pass


def outcome(result: RunRecord) -> str:
    """The end of a run in words: its rate or its failure."""
    if result.status == "ok" and result.throughput:
        return f"{result.throughput.items_per_second:,.0f} words/s"
    return f"{result.status}: {result.error.message}" if result.error else result.status
