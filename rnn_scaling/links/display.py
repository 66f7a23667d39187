"""How far the measurements are and what each gave, on stderr: one bar on a terminal, else a line for each."""

from collections.abc import Iterable
from typing import TextIO

from rnn_scaling.files.terminal import Board
from rnn_scaling.links.processes import WorkerOutcome
from rnn_scaling.links.series import ALL_REDUCE, Series, size_text
from rnn_scaling.links.table import GIGA

NOTHING = "nothing"  # the series of the call in which nothing is exchanged


class LinksDisplay:
    """Told of every measurement that starts and of its rounds."""

    def __init__(self, enabled: bool, total: int, stream: TextIO | None = None) -> None:
        """stream: where to; sys.stderr when not given."""
        layout = "{desc} |{bar}| {percentage:.0f} %, {elapsed} so far, {remaining} left"
        self._board = Board(total, layout, enabled=enabled, stream=stream, leave=False)
        self._total, self._started = total, 0

    def start(self, what: str) -> None:
        self._started += 1
        if self._board.has_bar:
            self._board.move(self._started - 1, what)
        else:
            self._board.line(f"{self._started}/{self._total}: {what}")

    def rounds(self, done: int, total: int, what: str) -> None:
        self._board.move(self._started - 1 + done / max(total, 1), what)

    def rows(self, lines: Iterable[str]) -> None:
        """A measurement has ended: what it gave, a line each, which stay above the bar."""
        for line in lines:
            self._board.line(f"  {line}")

    def close(self) -> None:
        self._board.close()


def outcome_lines(outcome: WorkerOutcome, what: str) -> list[str]:
    """A line for each series and product of a measurement, and for its failure."""
    lines = [_line(series) for series in outcome.series if series.points]
    for product in outcome.products:
        lines.append(f"{product.dtype}, {product.devices}: {product.best.median / GIGA:.3g} GFLOP/s at best")
    if outcome.error:
        lines.append(f"{what}: failed: {outcome.error}")
    return lines


def _line(series: Series) -> str:
    first, last = series.points[0], series.points[-1]
    unit = "GB/s busbw" if series.kind == ALL_REDUCE else "GB/s"
    has_rate = series.traffic and series.name != NOTHING
    rate = f"{series.gb_per_s(last):.3g} {unit} at {size_text(last.num_bytes)}, " if has_rate else ""
    return f"{series.name}: {rate}{1e6 * first.median_s:.3g} us at {size_text(first.num_bytes)}"
