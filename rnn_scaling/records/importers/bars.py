"""Progress bars: the steps of a loop, with the rate or the seconds of a step.

If a log has several bars, such as training and validation, the bar that grew on most
lines counts, because it took most of the time.

A bar is a row of `formats`.
"""

import contextlib
import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rnn_scaling.records import cell_numbers
from rnn_scaling.records.cell_numbers import ARITHMETIC_ERROR, SECONDS, PrintedNumber
from rnn_scaling.records.decoding import MAX_NUMBER, MIN_NUMBER
from rnn_scaling.records.importers import log_numbers, rates
from rnn_scaling.records.importers.rates import RankRate, Stretch
from rnn_scaling.records.importers.reading import (
    ImportedRun,
    LineError,
    LogFormat,
    LogLine,
    Measurement,
    Problems,
    Reading,
    Terms,
    make_reading,
    number_lines,
    read_exact_number,
    read_log_lines,
    run_record,
)
from rnn_scaling.records.parts import LogFindingKind

# A number in a bar; it is short, so that no line takes long.
NUMBER = r"(?<![\d.,])\d[\d.,]{0,15}(?:e[-+]\d\d)?[kMGT]?"
_MAX_BAR_CHARACTERS = 1000  # characters of a bar that are read
_MAX_LINES = 200_000  # lines of a bar that are kept
_SINGLE_LINE = "-"  # the title of a bar that is a single line
_MAX_ERROR = 0.1  # largest relative rounding error of the time between two lines
_MIN_DIFFERENCE = 0.02  # smallest reported difference of a rate and the average
_EPOCH = re.compile(r"(?i)\bepoch\D{0,3}(\d{1,9})")
_HEADER = re.compile(r"\s*(?i:epoch) (\d{1,9})(?:/\d{1,9})?:?\s*")


class _Drawing(NamedTuple):
    """One drawing of a bar. The time of its measurement is seconds per step."""

    measurement: Measurement
    title: tuple[str, str | None]
    is_single_line: bool
    elapsed_s: float | None  # whole seconds since the bar began; None if not shown
    is_validated: bool  # its seconds contain a validation

    @property
    def step(self) -> float:
        return self.measurement.numbers["step"].value

    @property
    def mean(self) -> Stretch:
        """The steps and seconds since the bar began, if the rate is an average."""
        seconds = self.measurement.numbers["seconds"]
        half_s = 0.5 * self.step * seconds.resolution
        return Stretch(self.step, self.step * seconds.value, half_s)

    @property
    def end(self) -> tuple[float, float]:
        """The seconds since the bar began and half their error.

        If the rate contradicts the elapsed time of the bar, the rate is that of the
        latest steps, and the elapsed time counts.
        """
        assert self.elapsed_s is not None
        _, seconds, half_s, _ = self.mean
        if self.elapsed_s - half_s <= seconds <= self.elapsed_s + 1.0 + half_s:
            return seconds, half_s
        return self.elapsed_s + 0.5, 0.5


@dataclasses.dataclass(frozen=True)
class Bar(LogFormat):
    """A kind of progress bar; each is a row of `formats.FORMATS`."""

    name: str
    # Pattern of a line from its beginning, with the groups step, total, bar (its
    # title), rate, unit (of the rate), loss, and elapsed if the rate is the mean of all
    # steps.
    regex: re.Pattern[str]
    needs: str  # a text in each line
    # Whether its last line has the mean rate of the whole bar. Otherwise a validation
    # follows the first line of the last step, and may count in the rates after it.
    has_mean: bool
    note: str
    validated: str = ""  # a text in lines whose seconds contain a validation
    distinction: str = ""  # pattern that only logs of this kind contain, or ""
    foreign: Callable[[str], bool] | None = None  # whether a text is of another kind
    has_rates = True
    counts_steps = True

    def detect(self, text: str) -> bool:
        """Return whether a text has a bar of this kind with a rate."""
        if self.distinction and not re.search(self.distinction, text):
            return False
        has_bar = any(
            "seconds" in drawing.measurement.numbers
            for drawing in self._read_drawings(text.splitlines(keepends=True), Terms())
        )
        return has_bar and not (self.foreign and self.foreign(text))

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return one run: the rate of the main bar.

        Steps are timed by when their lines arrived. If that is unknown or too coarse,
        the rates that the bar shows count.
        """
        ranks = self._read_main_bar_by_rank(lines, terms)
        notes = [self.note]
        extra_numbers = {}
        try:
            # Arrivals time the whole program, so all ranks have this rate.
            rank_rate = self._measure_by_arrivals(ranks, terms)
        except ValueError:
            result, steps = self._combine_shown_rates(ranks, terms)
            extra_numbers["steps"] = read_exact_number(steps)
            notes += result.notes
            if terms.arrivals:
                notes.append(
                    "rates are read from the bar, because its lines arrived "
                    "in too few bursts to time them"
                )
            result = result.scaled(terms.items_per_step or 1.0)
        else:
            result = rates.combine_ranks(
                [rank_rate] * len(ranks), terms, counts_items=False
            )
        record = run_record(
            self.name,
            {},
            terms.unit or ("" if terms.items_per_step else "steps"),
            result.rate,
            batches=result.batches,
            rounding=min(result.rounding, rates.MAX_ERROR),
            clock=result.clock,
            findings=result.findings,
        )
        step = 2 * result.rounding * result.rate
        decimals = max(0, math.ceil(-math.log10(step))) if step else 0
        printed_rate = PrintedNumber(result.rate, step, f"{result.rate:.{decimals}f}")
        run = ImportedRun(
            ranks[0][-1].measurement.line.number, record, extra_numbers, printed_rate
        )
        notes += [note for note in result.notes if note not in notes]
        return make_reading(self.name, Problems(), "", runs=[run], notes=notes)

    def _combine_shown_rates(
        self, ranks: Sequence[Sequence[_Drawing]], terms: Terms
    ) -> tuple[RankRate, float]:
        """Return the rate that the bars of all ranks show, in steps/s, and the steps.

        Raises:
          LineError: If no bar has a rate.
        """
        bars = [bar for bar in map(self._measure_bars, ranks) if bar is not None]
        if not bars:
            raise LineError(1, "found no progress bar with a rate")
        rates_of_bars, steps = zip(*bars)
        counts_ranks = terms.items_per_step is None
        result = rates.combine_ranks(rates_of_bars, terms, counts_items=counts_ranks)
        if counts_ranks and terms.ranks == rates.Ranks.SUM:
            return result, math.fsum(steps)
        return result, steps[0]

    def _measure_by_arrivals(
        self, ranks: Sequence[Sequence[_Drawing]], terms: Terms
    ) -> RankRate:
        """Return the rate of a bar by the arrival of its lines.

        Lines after a validation are left out, unless all lines are.

        Raises:
          ValueError: If the arrivals are unknown or too coarse.
        """
        if not terms.arrivals or not ranks:
            raise ValueError("no arrivals")
        measurements = [each.measurement for each in _drop_validated(ranks[0])]
        return rates.measure_arrivals(measurements, terms)

    def _measure_bars(
        self, drawings: Sequence[_Drawing]
    ) -> tuple[RankRate, float] | None:
        """Return the rate that the bars of one rank show, and their steps.

        If there are several bars, the first one is left out, because it contains the
        start. A bar that shows its time counts from its first line to its last.
        """
        bars = self._split_into_bars(drawings)
        counted_bars = bars[1:] or bars
        if not counted_bars:
            return None
        means = [self._find_drawing_with_mean(bar).mean for bar in counted_bars]
        between_lines = [self._measure_between_lines(bar) for bar in counted_bars]
        stretches = [between or mean for between, mean in zip(between_lines, means)]
        rate = rates.compute_mean_rate(stretches)
        shown_rate = rates.compute_mean_rate(means)
        findings = []
        if any(between_lines) and abs(rate / shown_rate - 1) > _MIN_DIFFERENCE:
            kind = LogFindingKind.RUNNING_AVERAGE
            lines = sum(map(len, counted_bars))
            findings.append(rates.make_finding(kind, lines, lines, rate, shown_rate))
        note = "The rate includes its start."
        if len(bars) > 1:
            note = f"The first of {len(bars)} bars is left out."
        elif any(between_lines):
            note = "The rate is measured from its first line to its last."
        seconds = math.fsum(stretch.seconds for stretch in stretches)
        half_s = math.fsum(stretch.half_s for stretch in stretches)
        rounding = half_s / seconds + ARITHMETIC_ERROR
        steps = math.fsum(stretch.items for stretch in stretches)
        return RankRate(rate, rounding, findings=tuple(findings), notes=(note,)), steps

    def _split_into_bars(self, drawings: Sequence[_Drawing]) -> list[list[_Drawing]]:
        """Return the drawings with a rate of each bar, in the order of the log.

        A bar begins with a new epoch, when the steps count from 0 again, and with each
        line of a log that has one line per bar.
        """
        bars: list[list[_Drawing]] = []
        previous: _Drawing | None = None
        for drawing in drawings:
            epoch = drawing.measurement.epoch
            is_new = previous is None or drawing.is_single_line
            if previous is not None and not is_new:
                is_new = epoch != previous.measurement.epoch
                is_new |= rates.is_new_epoch(drawing.step, previous.step)
            if is_new:
                bars.append([])
            previous = drawing
            if "seconds" in drawing.measurement.numbers:
                bars[-1].append(drawing)
        return [bar for bar in bars if bar]

    def _find_drawing_with_mean(self, bar: Sequence[_Drawing]) -> _Drawing:
        """Return the drawing whose rate is the mean of the whole bar."""
        training = _drop_validated(bar)
        if self.has_mean:
            return training[-1]
        return max(training, key=lambda drawing: drawing.step)

    def _measure_between_lines(self, bar: Sequence[_Drawing]) -> Stretch | None:
        """Return the steps from the first drawing to the last.

        Returns:
          None if no elapsed times are shown, or if they have too few digits.
        """
        last = self._find_drawing_with_mean(bar)
        first = next(drawing for drawing in bar if drawing.step <= last.step)
        if first.elapsed_s is None or last.elapsed_s is None:
            return None
        began_s, began_half_s = first.end
        ended_s, ended_half_s = last.end
        steps = last.step - first.step
        seconds = ended_s - began_s
        half_s = began_half_s + ended_half_s
        if steps <= 0 or half_s > _MAX_ERROR * seconds:
            return None
        return Stretch(steps, seconds, half_s)

    def _read_main_bar_by_rank(
        self, lines: Iterable[str], terms: Terms
    ) -> list[list[_Drawing]]:
        """Return the drawings of the main bar by rank, the lowest rank first."""
        bars: dict[tuple[str, str | None], dict[int, list[_Drawing]]] = {}
        for drawing in self._read_drawings(lines, terms):
            rank = drawing.measurement.line.rank
            by_rank = bars.setdefault(drawing.title, {})
            drawings = by_rank.setdefault(-1 if rank is None else rank, [])
            drawings.append(drawing)
            if len(drawings) > _MAX_LINES:
                del drawings[1::2]

        def measure_growth(by_rank: dict[int, list[_Drawing]]) -> tuple[int, int]:
            return max((_count_growing(each), len(each)) for each in by_rank.values())

        main_bar = max(bars.values(), key=measure_growth, default={})
        return [main_bar[rank] for rank in sorted(main_bar)]

    def _read_drawings(self, lines: Iterable[str], terms: Terms) -> Iterator[_Drawing]:
        """Yield every drawing of a bar; one line may have many."""
        headers: dict[int | None, int] = {}
        for number, piece in number_lines(lines):
            if self.needs not in piece and "poch" not in piece:
                continue
            arrived_s = next(iter(terms.arrivals[number - 1 : number]), None)
            drawings = re.split("[\r\b]+", piece.rstrip("\r\n"))
            for line in read_log_lines(
                [f"{drawing}\n" for drawing in drawings], longest=_MAX_BAR_CHARACTERS
            ):
                if header := _HEADER.fullmatch(line.text):
                    headers[line.rank] = int(header[1])
                elif match := self.regex.match(line.text):
                    line = dataclasses.replace(line, number=number, arrived_s=arrived_s)
                    yield self._make_drawing(line, match, headers.get(line.rank))

    def _make_drawing(
        self, line: LogLine, match: re.Match[str], header: int | None
    ) -> _Drawing:
        epoch = _EPOCH.search(line.text, 0, match.start("step"))
        total = match["total"]
        title = re.sub(r"\d+", "#", (match["bar"] or "").strip())
        elapsed = cell_numbers.parse_cell(match.groupdict().get("elapsed") or "")
        return _Drawing(
            Measurement(
                line, _parse_numbers(match), epoch=int(epoch[1]) if epoch else header
            ),
            (title, total),
            is_single_line=match["bar"] == _SINGLE_LINE,
            elapsed_s=elapsed.value if elapsed else None,
            is_validated=bool(self.validated)
            and self.validated in line.text[match.end() :],
        )


def _drop_validated(drawings: Sequence[_Drawing]) -> Sequence[_Drawing]:
    """Return the drawings whose seconds have no validation, or all if they all have."""
    return [each for each in drawings if not each.is_validated] or drawings


def _count_growing(drawings: Sequence[_Drawing]) -> int:
    """Return how many drawings have a larger step than the one before.

    The result is 0 for a bar of one step, even if it is drawn several times.
    """
    pairs = itertools.pairwise(drawings)
    return sum(previous.step < drawing.step for previous, drawing in pairs)


def _parse_numbers(match: re.Match[str]) -> dict[str, PrintedNumber]:
    """Return the step of a line, its loss, and its seconds per step if it shows a rate."""
    step = PrintedNumber(0.0, 0.0, match["step"])
    numbers = {"step": step}
    with contextlib.suppress(ValueError):
        step = log_numbers.parse_number(match["step"])
        is_count = match["step"].isdigit()
        numbers["step"] = (
            dataclasses.replace(step, resolution=0.0) if is_count else step
        )
        if match["loss"]:
            numbers["loss"] = log_numbers.parse_number(match["loss"])
        rate = log_numbers.parse_number(match["rate"] or "")
        # A step of "0 ms" takes up to half a millisecond.
        value = max(rate.value, 0.5 * rate.resolution)
        if not all(
            MIN_NUMBER <= number <= MAX_NUMBER for number in (step.value, value)
        ):
            return numbers
        if match["unit"].endswith("/s"):
            numbers["seconds"] = PrintedNumber(
                1 / value, rate.resolution / value**2, rate.text
            )
        else:
            factor = SECONDS[match["unit"].strip().partition("/")[0]]
            numbers["seconds"] = PrintedNumber(
                value * factor, rate.resolution * factor, rate.text
            )
    return numbers
