"""Progress bars: the steps of a loop, and the rate or the seconds of a step next to them.

Of several bars, such as training and validation, the one that grew on the most lines counts: it took the most time.
"""

import contextlib
import dataclasses
import math
import operator
import re
from collections.abc import Iterable, Iterator, Sequence

from rnn_scaling.audit.numbers import Printed
from rnn_scaling.importers import line_clock, printed_numbers
from rnn_scaling.importers.common import (
    ImportedLog,
    Problems,
    ScalingRow,
    exact,
    finish,
    numbered,
    untag,
)
from rnn_scaling.importers.line_clock import Event

UNIT = "steps/s"
NUMBER = r"(?<![\d.,])\d[\d.,]{0,15}(?:e[-+]\d\d)?[kMGT]?"  # as bars show it; short, so that no line takes long
LONGEST = 1000  # characters of a bar that are read
SMALLEST, LARGEST = 1e-12, 1e18
MOST_LINES = 200_000  # of a bar that are kept
ALONE = "-"  # the title of a bar that is a single line
_SECONDS = {
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
}  # by what stands before the slash


@dataclasses.dataclass(frozen=True)
class Bar:
    format: str
    # Of a line from its beginning; groups step, total, bar (its title), rate, unit (of the rate), loss.
    regex: re.Pattern[str]
    needs: str  # a text that each line has, for which is looked first
    # Its last line has the mean rate of the whole bar; else validation follows its first line at the last step, and
    # may count in the rates of those after it.
    has_mean: bool
    notes: tuple[str, ...]

    def detect(self, head: str) -> bool:
        return any(
            match["rate"]
            for _, _, match in self._matches(head.splitlines(keepends=True))
        )

    def events(
        self, lines: Iterable[str], arrivals: Sequence[float]
    ) -> Iterator[Event]:
        """The steps of the main bar and when they were shown."""
        for line, match in self._main(lines):
            step, half = printed_numbers.read(match["step"])
            loss = match["loss"] and printed_numbers.read(match["loss"])[0]
            yield Event(
                arrivals[line - 1],
                step,
                0.0 if match["step"].isdigit() else half,
                loss or None,
            )

    def parse(self, lines: Iterable[str], source: str) -> ImportedLog:
        """One row: the mean rate of the main bar, of several without the first one, which holds the start."""
        bars: list[list[tuple[int, float, float, float]]] = []
        before = 0.0
        for line, match in self._main(lines):
            step, shown = _numbers(match)
            if (
                not bars
                or match["bar"] == ALONE
                or line_clock.is_new_epoch(step, before)
            ):
                bars.append([])
            before = step
            bars[-1] += [(line, step, *shown)] if shown else []
        lasts = [
            bar[-1] if self.has_mean else max(bar, key=lambda reading: reading[1])
            for bar in bars
            if bar
        ]
        counted, rows = lasts[1:] or lasts, []
        if counted:
            steps = math.fsum(step for _, step, _, _ in counted)
            seconds = math.fsum(step * step_s for _, step, step_s, _ in counted)
            off = math.fsum(step * half for _, step, _, half in counted) / seconds
            mean, unit = steps / seconds, 2 * off * steps / seconds
            rate = Printed(
                mean, unit, f"{mean:.{max(0, math.ceil(-math.log10(unit)))}f}"
            )
            rows.append(
                ScalingRow(
                    source,
                    counted[-1][0],
                    rate=rate,
                    rate_unit=UNIT,
                    extra={"steps": exact(steps)},
                )
            )
        start = (
            f"The first of {len(lasts)} bars is left out."
            if lasts[1:]
            else "Its start counts in the rate."
        )
        return finish(
            self.format,
            source,
            rows,
            (),
            [*self.notes, start],
            Problems(),
            "no progress bar with a rate",
        )

    def _main(self, lines: Iterable[str]) -> list[tuple[int, re.Match[str]]]:
        found: dict[tuple[object, ...], list[tuple[int, re.Match[str]]]] = {}
        for line, rank, match in self._matches(lines):
            title = re.sub(r"\d+", "#", (match["bar"] or "").strip())
            bar_lines = found.setdefault((rank, title, match["total"]), [])
            bar_lines.append((line, match))
            if len(bar_lines) > MOST_LINES:
                del bar_lines[1::2]
        return max(
            found.values(),
            key=lambda bar_lines: (_growing(bar_lines), len(bar_lines)),
            default=[],
        )

    def _matches(
        self, lines: Iterable[str]
    ) -> Iterator[tuple[int, int | None, re.Match[str]]]:
        for number, text in numbered(lines):
            for part in re.split("[\r\b]+", text) if self.needs in text else ():
                rank, untagged = untag(part[:LONGEST])
                if match := self.regex.match(untagged):
                    yield number, rank, match


def _growing(bar_lines: Sequence[tuple[int, re.Match[str]]]) -> int:
    """How many lines have a larger step than the line before: a bar of one step has none, however often it comes."""
    steps = [_numbers(match)[0] for _, match in bar_lines]
    return sum(map(operator.lt, steps, steps[1:]))


def _numbers(match: re.Match[str]) -> tuple[float, tuple[float, float] | None]:
    """(the step of a line, (the seconds of a step, half of what their last digit counts)); None where it shows none."""
    step, value, half = 0.0, 0.0, 0.0
    with contextlib.suppress(ValueError):
        step = printed_numbers.read(match["step"])[0]
        value, half = printed_numbers.read(match["rate"] or "")
    value = max(value, half)  # a step of 0 ms takes up to half of one
    if not all(SMALLEST <= number <= LARGEST for number in (step, value)):
        return step, None
    if match["unit"].endswith("/s"):
        return step, (1 / value, half / value**2)
    factor = _SECONDS[match["unit"].strip().partition("/")[0]]
    return step, (value * factor, half * factor)
