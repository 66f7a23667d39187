"""Progress bars: the steps of a loop, with the rate or the seconds of a step.

If a log has several bars, such as training and validation, the bar that grew on most
lines counts, because it took most of the time.
"""

import contextlib
import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rnn_scaling.records.decoding import LARGEST, SMALLEST
from rnn_scaling.records.importers import cost_series, printed_numbers, rates
from rnn_scaling.records.importers.cost_series import PrintedAverage
from rnn_scaling.records.importers.rates import RankRate
from rnn_scaling.records.importers.reading import (
    ImportedRun,
    LogFormat,
    Measurement,
    Problems,
    Reading,
    Terms,
    exact_number,
    log_lines,
    make_reading,
    number_lines,
    run_record,
)
from rnn_scaling.records.parts import LogFindingKind
from rnn_scaling.records.printed_number import SLACK, Printed

# A number in a bar; it is short, so that no line takes long.
NUMBER = r"(?<![\d.,])\d[\d.,]{0,15}(?:e[-+]\d\d)?[kMGT]?"
LONGEST_BAR = 1000  # characters of a bar that are read
MOST_LINES = 200_000  # lines of a bar that are kept
ALONE = "-"  # the title of a bar that is a single line
MOST_OFF = 0.1  # largest relative rounding error of the time between two lines
LEAST_DIFFERENCE = 0.02  # smallest reported difference of a rate and the average
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}  # units before the slash
_EPOCH = re.compile(r"(?i)\bepoch\D{0,3}(\d{1,9})")
_HEADER = re.compile(r"\s*(?i:epoch) (\d{1,9})(?:/\d{1,9})?:?\s*")


class _Drawing(NamedTuple):
    """One drawing of a bar. The time of its measurement is seconds per step."""

    shown: Measurement
    title: tuple[str, str | None]
    is_alone: bool
    elapsed_s: float | None  # whole seconds since the bar began; None if not shown
    is_complete: bool
    is_validated: bool  # its seconds contain a validation

    @property
    def step(self) -> float:
        return self.shown.numbers["step"].value

    @property
    def end_s(self) -> float:
        """Seconds since the bar began, if the rate is an average."""
        return self.step * self.shown.numbers["seconds"].value

    @property
    def off_s(self) -> float:
        return 0.5 * self.step * self.shown.numbers["seconds"].step


class _Stretch(NamedTuple):
    """Steps that were timed together; off_s is the rounding error of the seconds."""

    steps: float
    seconds: float
    off_s: float


@dataclasses.dataclass(frozen=True)
class Bar(LogFormat):
    """A kind of progress bar; each is a row of `formats.FORMATS`."""

    name: str
    # Pattern of a line from its beginning, with the groups step, total, bar (its title),
    # rate, unit (of the rate), loss, and elapsed if the rate is the mean of all steps.
    regex: re.Pattern[str]
    needs: str  # a text in each line
    # Whether its last line has the mean rate of the whole bar. Otherwise a validation
    # follows the first line of the last step, and may count in the rates after it.
    has_mean: bool
    note: str
    validated: str = ""  # a text in lines whose seconds contain a validation
    own: str = (
        ""  # pattern of a text that only logs of this kind have; "" if any has it
    )
    foreign: Callable[[str], bool] | None = None  # whether a text is of another kind
    has_rates = True
    counts_steps = True

    def detect(self, text: str) -> bool:
        """Return whether a text has a bar of this kind with a rate."""
        if self.own and not re.search(self.own, text):
            return False
        has_bar = any(
            "seconds" in drawing.shown.numbers
            for drawing in self._drawings(text.splitlines(keepends=True), Terms())
        )
        return has_bar and not (self.foreign and self.foreign(text))

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return one run: the rate of the main bar.

        The steps are timed by the arrival of the lines if that is known. The rates that
        the bar shows count if that is too coarse.
        """
        ranks = self._main(lines, terms)
        notes = [self.note]
        extra = {}
        counts_ranks = terms.items_per_step is None
        timed: RankRate | None = None
        if terms.arrivals and ranks:
            with contextlib.suppress(ValueError):
                timed = self._of_arrivals(ranks[0], terms)
        if timed is not None:
            found = rates.combine_ranks([timed] * len(ranks), terms, counts_items=False)
        else:
            shown = [rate for rate in map(self._of_bars, ranks) if rate is not None]
            if not shown:
                make_reading(self.name, Problems(), "no progress bar with a rate")
            first_steps, first_notes = shown[0][1:]
            notes += first_notes
            found = rates.combine_ranks(
                [each[0] for each in shown], terms, counts_items=counts_ranks
            )
            is_sum = counts_ranks and terms.ranks == rates.Ranks.SUM
            counted = shown if is_sum else shown[:1]
            steps = math.fsum(each[1] for each in counted)
            extra["steps"] = exact_number(steps)
            if terms.arrivals:
                notes.append(
                    "rates are read from the bar, since its lines arrived in too few "
                    "bursts to time"
                )
            found = _in_items(found, terms.items_per_step or 1.0)
        record = run_record(
            self.name,
            {},
            terms.unit or ("" if terms.items_per_step else "steps"),
            found.rate,
            batches=found.batches,
            rounding=min(found.rounding, rates.MOST_ERROR),
            clock=found.clock,
            findings=found.findings,
        )
        step = 2 * found.rounding * found.rate
        decimals = max(0, math.ceil(-math.log10(step))) if step else 0
        printed = Printed(found.rate, step, f"{found.rate:.{decimals}f}")
        run = ImportedRun(ranks[0][-1].shown.line.number, record, extra, printed)
        notes += [note for note in found.notes if note not in notes]
        return make_reading(self.name, Problems(), "", runs=[run], notes=notes)

    def _of_arrivals(self, main: Sequence[_Drawing], terms: Terms) -> RankRate:
        """Return the rate of a bar by the arrival of its lines.

        Lines after a validation are left out, unless all lines are.
        """
        timed = [drawing for drawing in main if not drawing.is_validated]
        return rates.measure_arrivals([each.shown for each in timed or main], terms)

    def _of_bars(
        self, main: Sequence[_Drawing]
    ) -> tuple[RankRate, float, list[str]] | None:
        """Return the rate that the bars of one rank show, its steps, and a note.

        If there are several bars, the first one is left out, because it contains the
        start. A bar whose rates are averages counts from its first line to its last.
        """
        bars = self._bars(main)
        counted = bars[1:] or bars
        if not counted:
            return None
        means = [_mean_of(self._last(bar)) for bar in counted]
        between = [self._between_lines(bar) for bar in counted]
        stretches = [measured or mean for measured, mean in zip(between, means)]
        steps = math.fsum(stretch.steps for stretch in stretches)
        seconds = math.fsum(stretch.seconds for stretch in stretches)
        off_s = math.fsum(stretch.off_s for stretch in stretches)
        rate = steps / seconds
        shown_s = math.fsum(stretch.seconds for stretch in means)
        shown_rate = math.fsum(stretch.steps for stretch in means) / shown_s
        is_between = any(stretch is not None for stretch in between)
        findings = []
        if is_between and abs(rate / shown_rate - 1) > LEAST_DIFFERENCE:
            kind = LogFindingKind.RUNNING_AVERAGE
            lines = sum(map(len, counted))
            findings.append(rates.make_finding(kind, lines, lines, rate, shown_rate))
        start = "Its start counts in the rate."
        if len(bars) > 1:
            start = f"The first of {len(bars)} bars is left out."
        elif is_between:
            start = "The rate is that from its first line to its last."
        rounding = off_s / seconds + SLACK
        return RankRate(rate, rounding, findings=tuple(findings)), steps, [start]

    def _bars(self, main: Sequence[_Drawing]) -> list[list[_Drawing]]:
        """Return the drawings with a rate of each bar, in the order of the log."""
        bars: list[list[_Drawing]] = []
        # Without any growing bar, each line is a whole epoch; only its second drawing,
        # after a validation, is not.
        are_whole = _growing(main) == 0
        before: _Drawing | None = None
        for drawing in main:
            is_new = before is None or drawing.is_alone
            if before is not None and not is_new:
                is_new = drawing.shown.epoch != before.shown.epoch
                is_new |= rates.is_new_epoch(drawing.step, before.step)
                is_other_line = drawing.shown.line.number != before.shown.line.number
                is_new |= are_whole and is_other_line and not drawing.is_validated
            if is_new:
                bars.append([])
            before = drawing
            if "seconds" in drawing.shown.numbers:
                bars[-1].append(drawing)
        return [bar for bar in bars if bar]

    def _last(self, bar: Sequence[_Drawing]) -> _Drawing:
        """Return the drawing whose rate is the mean of the whole bar."""
        training = [drawing for drawing in bar if not drawing.is_validated] or bar
        if self.has_mean:
            return training[-1]
        return max(training, key=lambda drawing: drawing.step)

    def _between_lines(self, bar: Sequence[_Drawing]) -> _Stretch | None:
        """Return the steps from the first drawing to the last.

        Returns:
          None if rates are not averages, or if too few digits were printed.
        """
        last = self._last(bar)
        earlier = [drawing for drawing in bar if drawing.step <= last.step]
        first = earlier[0]
        if first.elapsed_s is None or last.elapsed_s is None:
            return None
        if not last.is_complete and not _are_averages(earlier):
            return None
        began_s, began_off_s = _end_of(first, first.elapsed_s)
        ended_s, ended_off_s = _end_of(last, last.elapsed_s)
        stretch = _Stretch(
            last.step - first.step, ended_s - began_s, began_off_s + ended_off_s
        )
        if stretch.steps <= 0 or stretch.off_s > MOST_OFF * stretch.seconds:
            return None
        return stretch

    def _main(self, lines: Iterable[str], terms: Terms) -> list[list[_Drawing]]:
        """Return the drawings of the main bar by rank, the lowest rank first."""
        found: dict[tuple[str, str | None], dict[int, list[_Drawing]]] = {}
        for drawing in self._drawings(lines, terms):
            rank = drawing.shown.line.rank
            by_rank = found.setdefault(drawing.title, {})
            drawings = by_rank.setdefault(-1 if rank is None else rank, [])
            drawings.append(drawing)
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

    def _drawings(self, lines: Iterable[str], terms: Terms) -> Iterator[_Drawing]:
        """Yield every drawing of a bar; one line may have many."""
        headers: dict[int | None, int] = {}
        for number, piece in number_lines(lines):
            if self.needs not in piece and "poch" not in piece:
                continue
            arrivals = terms.arrivals[number - 1 : number]
            parts = re.split("[\r\b]+", piece.rstrip("\r\n"))
            for line in log_lines([f"{part}\n" for part in parts], longest=LONGEST_BAR):
                if header := _HEADER.fullmatch(line.text):
                    headers[line.rank] = int(header[1])
                elif match := self.regex.match(line.text):
                    title = _EPOCH.search(line.text, 0, match.start("step"))
                    arrived_s = arrivals[0] if arrivals else None
                    line = dataclasses.replace(line, number=number, arrived_s=arrived_s)
                    shown = Measurement(
                        line,
                        _numbers(match),
                        epoch=int(title[1]) if title else headers.get(line.rank),
                    )
                    yield self._drawing(shown, match)

    def _drawing(self, shown: Measurement, match: re.Match[str]) -> _Drawing:
        total = match["total"]
        title = re.sub(r"\d+", "#", (match["bar"] or "").strip())
        behind = match.string[match.end() :]
        return _Drawing(
            shown,
            (title, total),
            is_alone=match["bar"] == ALONE,
            elapsed_s=_elapsed_s(match.groupdict().get("elapsed") or ""),
            is_complete=total is not None and total == match["step"],
            is_validated=bool(self.validated) and self.validated in behind,
        )


def _in_items(found: RankRate, items_per_step: float) -> RankRate:
    """Return the rate of steps as one of items."""
    findings = []
    for each in found.findings:
        other = None if each.other is None else each.other * items_per_step
        taken = each.taken * items_per_step
        findings.append(dataclasses.replace(each, taken=taken, other=other))
    return dataclasses.replace(
        found, rate=found.rate * items_per_step, findings=tuple(findings)
    )


def _mean_of(last: _Drawing) -> _Stretch:
    return _Stretch(last.step, last.end_s, last.off_s)


def _end_of(drawing: _Drawing, elapsed_s: float) -> tuple[float, float]:
    """Return the seconds from the start of a bar to a drawing, and half their error.

    The whole seconds of the bar count if the rate contradicts them, since it is that of
    the latest steps then.
    """
    low_s = elapsed_s - drawing.off_s
    high_s = elapsed_s + 1.0 + drawing.off_s
    if low_s <= drawing.end_s <= high_s:
        return drawing.end_s, drawing.off_s
    return elapsed_s + 0.5, 0.5


def _are_averages(drawings: Sequence[_Drawing]) -> bool:
    """Return whether the rates of a bar that was not completed are averages.

    Others are those of the latest steps.
    """
    averages = [
        PrintedAverage(each.step, each.step / each.end_s, 0.0) for each in drawings
    ]
    if not cost_series.rises([average.rate for average in averages]):
        return False
    is_short = len(averages) < cost_series.FEWEST_AVERAGES
    return is_short or cost_series.is_straight(averages)


def _growing(drawings: Sequence[_Drawing]) -> int:
    """Return how many drawings have a larger step than the one before.

    The result is 0 for a bar of one step, even if it is drawn several times.
    """
    pairs = itertools.pairwise(drawings)
    return sum(before.step < after.step for before, after in pairs)


def _numbers(match: re.Match[str]) -> dict[str, Printed]:
    """Return the step of a line, its loss, and its seconds per step if it shows a rate."""
    step = Printed(0.0, 0.0, match["step"])
    numbers = {"step": step}
    with contextlib.suppress(ValueError):
        step = printed_numbers.parse_number(match["step"])
        is_count = match["step"].isdigit()
        numbers["step"] = dataclasses.replace(step, step=0.0) if is_count else step
        if match["loss"]:
            numbers["loss"] = printed_numbers.parse_number(match["loss"])
        rate = printed_numbers.parse_number(match["rate"] or "")
        value = max(
            rate.value, 0.5 * rate.step
        )  # a step of 0 ms takes up to half of one
        if not all(SMALLEST <= each <= LARGEST for each in (step.value, value)):
            return numbers
        if match["unit"].endswith("/s"):
            numbers["seconds"] = Printed(1 / value, rate.step / value**2, rate.text)
        else:
            factor = _SECONDS[match["unit"].strip().partition("/")[0]]
            numbers["seconds"] = Printed(value * factor, rate.step * factor, rate.text)
    return numbers


def _elapsed_s(text: str) -> float | None:
    """Return the seconds of a text such as 01:02:03; None if it is not one."""
    seconds = 0.0
    for part in text.split(":"):
        if not part.isdigit():
            return None
        seconds = 60 * seconds + float(part)
    return seconds
