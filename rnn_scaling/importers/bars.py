"""Progress bars: the steps of a loop, and the rate or the seconds of a step next to them.

If a log has several bars, such as training and validation, the one that grew on the most
lines counts, because it took the most time.
"""

import contextlib
import dataclasses
import math
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rnn_scaling.importers import line_clock, printed_numbers, running_average
from rnn_scaling.importers.common import (
    ImportedLog,
    Problems,
    ScalingRow,
    exact,
    finish,
    numbered,
)
from rnn_scaling.importers.line_clock import Event
from rnn_scaling.importers.rank_tags import Ranks, untag
from rnn_scaling.records.parts import LogFinding, LogFindingKind
from rnn_scaling.records.printed_number import Printed

UNIT = "steps/s"
# As bars show it; short, so that no line takes long.
NUMBER = r"(?<![\d.,])\d[\d.,]{0,15}(?:e[-+]\d\d)?[kMGT]?"
LONGEST = 1000  # characters of a bar that are read
SMALLEST, LARGEST = 1e-12, 1e18
MOST_LINES = 200_000  # of a bar that are kept
ALONE = "-"  # the title of a bar that is a single line
MOST_OFF = 0.1  # share of the time between two lines that their digits leave open
LEAST_DIFFERENCE = 0.02  # between the rate of the lines and their average, to report
# By the text in front of the slash.
_SECONDS = {
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
}
_EPOCH = re.compile(r"(?i)\bepoch\D{0,3}(\d{1,9})")
_HEADER = re.compile(r"\s*(?i:epoch) (\d{1,9})(?:/\d{1,9})?:?\s*")


class _Shown(NamedTuple):
    """One drawing of a bar."""

    line: int
    match: re.Match[str]
    epoch: int | None  # of its title, or of the header above it; None without both


class _Reading(NamedTuple):
    """The numbers of one drawing with a rate."""

    line: int
    step: float
    step_s: float
    half_s: float  # half of what the last digit of step_s means
    elapsed_s: float | None  # whole seconds since the bar began; None if not shown
    is_complete: bool
    is_validated: bool

    @property
    def end_s(self) -> float:
        """Seconds since the bar began, if the rate is an average."""
        return self.step * self.step_s

    @property
    def off_s(self) -> float:
        return self.step * self.half_s


class _Stretch(NamedTuple):
    """Steps that were timed together. off_s: by how much digits leave the time open."""

    steps: float
    seconds: float
    off_s: float


@dataclasses.dataclass(frozen=True)
class _RankRate:
    """What the bars of one rank say."""

    line: int
    rate: float
    half: float
    printed_rate: float  # the mean of the printed averages
    steps: float
    num_bars: int
    num_lines: int
    is_between_lines: bool


@dataclasses.dataclass(frozen=True)
class Bar:
    format: str
    # Of a line from its beginning; groups step, total, bar (its title), rate, unit (of
    # the rate), loss, and elapsed if the rate is the mean of all steps so far.
    regex: re.Pattern[str]
    needs: str  # a text that each line has, for which is looked first
    # Its last line has the mean rate of the whole bar; else validation follows its first
    # line at the last step, and may count in the rates of those after it.
    has_mean: bool
    notes: tuple[str, ...]
    # A text of the lines whose seconds contain a validation; empty: none shows it.
    validated: str = ""

    def detect(self, head: str) -> bool:
        return any(
            shown.match["rate"]
            for _, shown in self._matches(head.splitlines(keepends=True))
        )

    def count_ranks(self, lines: Iterable[str]) -> int:
        """Return how many ranks show the main bar."""
        return len(self._mains(lines))

    def events(
        self, lines: Iterable[str], arrivals: Sequence[float]
    ) -> Iterator[Event]:
        """The steps of the main bar and when they were shown.

        A line that came after a validation is left out, unless all lines did.
        """
        main = next(iter(self._mains(lines)), [])
        timed = [shown for shown in main if not self._is_validated(shown.match)]
        for line, match, epoch in timed or main:
            step, half = printed_numbers.read(match["step"])
            loss = match["loss"] and printed_numbers.read(match["loss"])[0]
            yield Event(
                arrivals[line - 1],
                step,
                0.0 if match["step"].isdigit() else half,
                loss or None,
                epoch,
            )

    def parse(
        self, lines: Iterable[str], source: str, ranks: Ranks | None = None
    ) -> ImportedLog:
        """Return one row: the rate of the main bar.

        If there are several bars, the first one is left out, because it contains the
        start. A bar whose rates are averages counts from its first line to its last.
        """
        found = [self._rank_rate(main) for main in self._mains(lines)]
        rates = [rate for rate in found if rate is not None]
        rows: list[ScalingRow] = []
        findings: list[LogFinding] = []
        start = "Its start counts in the rate."
        if rates:
            first = rates[0]
            is_sum = ranks == Ranks.SUM
            counted = rates if is_sum else rates[:1]
            rows.append(_row(counted, source))
            findings = _findings(rates, is_sum)
            if first.num_bars > 1:
                start = f"The first of {first.num_bars} bars is left out."
            elif first.is_between_lines:
                start = "The rate is that from its first line to its last."
        return finish(
            self.format,
            source,
            rows,
            (),
            [*self.notes, start],
            Problems(),
            "no progress bar with a rate",
            findings=findings,
        )

    def _rank_rate(self, main: Sequence[_Shown]) -> _RankRate | None:
        """Return the rate of one rank's bars; None if they show no rate."""
        bars = self._bars(main)
        counted = bars[1:] or bars
        if not counted:
            return None
        printed = [_printed_stretch(self._last(bar)) for bar in counted]
        between = [self._between_lines(bar) for bar in counted]
        stretches = [
            measured or mean for measured, mean in zip(between, printed, strict=True)
        ]
        steps = math.fsum(stretch.steps for stretch in stretches)
        seconds = math.fsum(stretch.seconds for stretch in stretches)
        off_s = math.fsum(stretch.off_s for stretch in stretches)
        return _RankRate(
            line=self._last(counted[-1]).line,
            rate=steps / seconds,
            half=off_s * steps / seconds**2,
            printed_rate=math.fsum(stretch.steps for stretch in printed)
            / math.fsum(stretch.seconds for stretch in printed),
            steps=steps,
            num_bars=len(bars),
            num_lines=sum(map(len, counted)),
            is_between_lines=any(stretch is not None for stretch in between),
        )

    def _bars(self, main: Sequence[_Shown]) -> list[list[_Reading]]:
        """Return the drawings with a rate of each bar, in the order of the log."""
        bars: list[list[_Reading]] = []
        # Without any growing bar, each line is a whole epoch; only its second drawing,
        # after a validation, is not.
        are_whole = _growing(main) == 0
        step_before = 0.0
        before: _Shown | None = None
        for shown in main:
            step, shown_s = _numbers(shown.match)
            is_validated = self._is_validated(shown.match)
            is_new = (
                before is None
                or shown.match["bar"] == ALONE
                or shown.epoch != before.epoch
                or line_clock.is_new_epoch(step, step_before)
                or (are_whole and shown.line != before.line and not is_validated)
            )
            if is_new:
                bars.append([])
            step_before = step
            before = shown
            if shown_s is None:
                continue
            total = shown.match["total"]
            bars[-1].append(
                _Reading(
                    shown.line,
                    step,
                    *shown_s,
                    elapsed_s=_elapsed_s(shown.match),
                    is_complete=total is not None and total == shown.match["step"],
                    is_validated=is_validated,
                )
            )
        return [bar for bar in bars if bar]

    def _last(self, bar: Sequence[_Reading]) -> _Reading:
        """Return the drawing whose rate is the mean of the whole bar."""
        training = [reading for reading in bar if not reading.is_validated] or bar
        if self.has_mean:
            return training[-1]
        return max(training, key=lambda reading: reading.step)

    def _between_lines(self, bar: Sequence[_Reading]) -> _Stretch | None:
        """Return the steps from the first drawing to the last.

        None if rates are not averages, or if the digits do not say how long it was.
        """
        last = self._last(bar)
        upto = [reading for reading in bar if reading.step <= last.step]
        first = upto[0]
        if first.elapsed_s is None or last.elapsed_s is None:
            return None
        if not last.is_complete and not _are_averages(upto):
            return None
        began_s, began_off_s = _end_of(first)
        ended_s, ended_off_s = _end_of(last)
        steps = last.step - first.step
        seconds = ended_s - began_s
        off_s = began_off_s + ended_off_s
        if steps <= 0 or off_s > MOST_OFF * seconds:
            return None
        return _Stretch(steps, seconds, off_s)

    def _is_validated(self, match: re.Match[str]) -> bool:
        return bool(self.validated) and self.validated in match.string[match.end() :]

    def _mains(self, lines: Iterable[str]) -> list[list[_Shown]]:
        """Return the drawings of the main bar by rank, the lowest rank first."""
        found: dict[tuple[str, str | None], dict[int, list[_Shown]]] = {}
        for rank, shown in self._matches(lines):
            title = re.sub(r"\d+", "#", (shown.match["bar"] or "").strip())
            by_rank = found.setdefault((title, shown.match["total"]), {})
            drawings = by_rank.setdefault(-1 if rank is None else rank, [])
            drawings.append(shown)
            if len(drawings) > MOST_LINES:
                del drawings[1::2]
        main = max(
            found.values(),
            key=lambda by_rank: max(
                (_growing(drawings), len(drawings)) for drawings in by_rank.values()
            ),
            default={},
        )
        return [main[rank] for rank in sorted(main)]

    def _matches(self, lines: Iterable[str]) -> Iterator[tuple[int | None, _Shown]]:
        """Yield every drawing of a bar and its rank."""
        headers: dict[int | None, int] = {}
        for number, text in numbered(lines):
            if self.needs not in text and "poch" not in text:
                continue
            for part in re.split("[\r\b]+", text):
                rank, untagged = untag(part[:LONGEST])
                if header := _HEADER.fullmatch(untagged):
                    headers[rank] = int(header[1])
                elif self.needs in part and (match := self.regex.match(untagged)):
                    title = _EPOCH.search(untagged, 0, match.start("step"))
                    epoch = int(title[1]) if title else headers.get(rank)
                    yield rank, _Shown(number, match, epoch)


def _row(rates: Sequence[_RankRate], source: str) -> ScalingRow:
    """Return the row of one rank, or of the sum of several."""
    mean = math.fsum(rate.rate for rate in rates)
    unit = 2 * math.fsum(rate.half for rate in rates)
    decimals = max(0, math.ceil(-math.log10(unit)))
    return ScalingRow(
        source,
        rates[0].line,
        rate=Printed(mean, unit, f"{mean:.{decimals}f}"),
        rate_unit=UNIT,
        extra={"steps": exact(math.fsum(rate.steps for rate in rates))},
    )


def _findings(rates: Sequence[_RankRate], is_sum: bool) -> list[LogFinding]:
    """Return what else the rate may be."""
    first = rates[0]
    total = math.fsum(rate.rate for rate in rates)
    findings = []
    if len(rates) > 1:
        kind = LogFindingKind.SUM_OF_RANKS if is_sum else LogFindingKind.FIRST_RANK
        findings.append(
            LogFinding(
                kind=kind.value,
                count=len(rates),
                total=len(rates),
                taken=total if is_sum else first.rate,
                other=first.rate if is_sum else total,
            )
        )
    difference = abs(first.rate / first.printed_rate - 1)
    if first.is_between_lines and difference > LEAST_DIFFERENCE:
        findings.append(
            LogFinding(
                kind=LogFindingKind.RUNNING_AVERAGE.value,
                count=first.num_lines,
                total=first.num_lines,
                taken=first.rate,
                other=first.printed_rate,
            )
        )
    return findings


def _printed_stretch(last: _Reading) -> _Stretch:
    return _Stretch(last.step, last.end_s, last.off_s)


def _end_of(reading: _Reading) -> tuple[float, float]:
    """Return the seconds from the start of a bar to a drawing, and half their error.

    The whole seconds of the bar count if the rate contradicts them, since it is that of
    the latest steps then.
    """
    assert reading.elapsed_s is not None
    low_s = reading.elapsed_s - reading.off_s
    high_s = reading.elapsed_s + 1.0 + reading.off_s
    if low_s <= reading.end_s <= high_s:
        return reading.end_s, reading.off_s
    return reading.elapsed_s + 0.5, 0.5


def _are_averages(readings: Sequence[_Reading]) -> bool:
    """Return whether the rates of a bar that was not completed are averages.

    Others are those of the latest steps.
    """
    rates = [1 / reading.step_s for reading in readings]
    if not running_average.rise(rates):
        return False
    ends = [reading.step for reading in readings]
    return len(rates) < running_average.FEWEST_LINES or running_average.is_straight(
        ends, rates
    )


def _growing(drawings: Sequence[_Shown]) -> int:
    """Return how many drawings have a larger step than the one before.

    A bar of one step has none, however often it is drawn.
    """
    steps = [_numbers(shown.match)[0] for shown in drawings]
    return sum(map(operator.lt, steps, steps[1:]))


def _numbers(match: re.Match[str]) -> tuple[float, tuple[float, float] | None]:
    """Return the step of a line, and its seconds per step.

    Returns:
      The seconds are None if the line shows none; otherwise they come with half of what
      their last digit means.
    """
    step = 0.0
    value = 0.0
    half = 0.0
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


def _elapsed_s(match: re.Match[str]) -> float | None:
    """Return the seconds of a text such as 01:02:03; None if the line shows none."""
    text = match.groupdict().get("elapsed") or ""
    parts = text.split(":")
    if not all(part.isdigit() for part in parts):
        return None
    seconds = 0.0
    for part in parts:
        seconds = 60 * seconds + float(part)
    return seconds
