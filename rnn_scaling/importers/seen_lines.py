"""Collect other facts of the lines from which a pattern reads a rate.

`analysis.plausibility` judges it.
"""

import dataclasses
import math
import re
import statistics
from collections.abc import Mapping, Sequence

from rnn_scaling.importers import printed_numbers, printed_units, start_up
from rnn_scaling.importers.log_formats import Terms
from rnn_scaling.importers.printed_units import Kind, PrintedUnit
from rnn_scaling.records.decoding import LARGEST, SMALLEST
from rnn_scaling.records.parts import PrintedOutput

MOST_LINES = 500  # lines, evenly chosen, in which other rates are looked for
_NUMBER = re.compile(
    r"(?<![\w.])\d[\d,]{0,15}(?:\.\d{1,15})?(?:[eE][-+]?\d\d?)?(?![\d.])"
)
# Without a decimal point it may be a number of devices.
_AVERAGE_BEHIND = re.compile(
    r"\s?(?:[\w/]{1,20}\s?)?\(\s*(\d{1,15}\.\d{1,15})\s?(?:\w{0,20}/s(?:ec)?)?\s*\)"
)
# A standard deviation may be in parentheses as well, but is seldom that large.
_LEAST_OF_AVERAGE = 0.1
_ITEM_LETTERS = 3  # letters that distinguish "tokens" and "tok" from "words"
_WORDS_OF_RATES = {
    "wps": "wor",
    "tps": "tok",
    "fps": "fra",
    "ips": "img",
    "sps": "sam",
    "ups": "upd",
    "qps": "que",
}
# Words that a line uses for one quantity only, unlike "rate".
_RATES_BY_NAME = ("throughput", "bandwidth", "busbw", "algbw", "speed")


@dataclasses.dataclass(frozen=True)
class SeenLine:
    """A line that a pattern matches."""

    arrived_s: float | None  # on the clock of the sweep; None if not known
    texts: Mapping[str, str]  # by group of the pattern
    text: str  # the line without the tag of its rank
    span: tuple[int, int] | None  # place in `text` of the group rate, seconds or ms


def output(lines: Sequence[SeenLine], terms: Terms) -> PrintedOutput:
    """Return what the lines of one rank say, in the order of their arrival."""
    all_rates = [_rate(line.texts) for line in lines]
    rates = [rate for rate in all_rates if rate is not None]
    first = 0
    if rates:
        first = start_up.find([1 / rate for rate in rates], terms.warmup).lines
    counted = lines[first:]
    rates = rates[first:]
    arrivals = [line.arrived_s for line in lines if line.arrived_s is not None]
    return PrintedOutput(
        lines=len(lines),
        span_s=arrivals[-1] - arrivals[0] if arrivals else None,
        process_s=terms.timing.seconds or None,
        lowest_rate=min(rates, default=None),
        highest_rate=max(rates, default=None),
        other_rate_ratio=_other_rate_ratio(counted),
    )


def _read(text: str | None) -> float | None:
    """Return a printed number that a record can hold, or None."""
    try:
        value = printed_numbers.read(text or "")[0]
    except ValueError:
        return None
    return value if SMALLEST <= value <= LARGEST else None


def _seconds(texts: Mapping[str, str]) -> float | None:
    """Return the printed seconds of one match, of one step or of a stretch of steps."""
    if "ms" in texts:
        value = _read(texts["ms"])
        return None if value is None else value / 1000
    return _read(texts.get("seconds"))


def _rate(texts: Mapping[str, str]) -> float | None:
    """Return the rate of one match, in items/s, or in steps/s without its items."""
    if "rate" in texts:
        return _read(texts["rate"])
    seconds = _seconds(texts)
    items = _read(texts["items"]) if "items" in texts else 1.0
    if seconds is None or items is None:
        return None
    return items / seconds if SMALLEST <= items / seconds <= LARGEST else None


def _other_rate_ratio(lines: Sequence[SeenLine]) -> float | None:
    """Return the median of another rate of a line divided by the rate that was read.

    If a line has several other rates, the one that differs most counts.
    """
    ratios = []
    for line in lines[:: max(1, len(lines) // MOST_LINES)]:
        found = _ratios_of_average(line) + _ratios_of_same_unit(line)
        if found:
            ratios.append(max(found, key=lambda ratio: abs(math.log(ratio))))
    return statistics.median(ratios) if ratios else None


def _ratios_of_average(line: SeenLine) -> list[float]:
    """Return the average behind a number, as in "speed 512.3 (89.1)", by that number.

    For times it is the other way round: the ratio is always one of rates.
    """
    if line.span is None:
        return []
    match = _AVERAGE_BEHIND.match(line.text, line.span[1])
    value = _read(line.text[slice(*line.span)])
    average = _read(match[1]) if match else None
    if not value or not average:
        return []
    ratio = average / value if "rate" in line.texts else value / average
    return [ratio] if _LEAST_OF_AVERAGE < ratio < 1 / _LEAST_OF_AVERAGE else []


def _ratios_of_same_unit(line: SeenLine) -> list[float]:
    """Return the other rates of a line that count the same things, by the read one."""
    rate = _rate(line.texts)
    if line.span is None or rate is None or "rate" not in line.texts:
        return []
    start, end = line.span
    unit = printed_units.unit_of(line.text, start, end)
    if unit is None or not _items(unit):
        return []
    ratios = []
    for match in _NUMBER.finditer(line.text):
        if start < match.end() and match.start() < end:
            continue
        other = printed_units.unit_of(line.text, *match.span())
        value = _read(match[0])
        is_same = other and other.kind is Kind.RATE and _items(other) == _items(unit)
        if is_same and value:
            ratios.append(value / rate)
    return ratios


def _items(unit: PrintedUnit) -> str:
    """Return a name for the items of a rate; "" if it cannot be compared."""
    if unit.items:
        name = unit.items.split()[-1].rpartition("_")[2].lower()
        return name.replace("image", "img")[:_ITEM_LETTERS]
    if unit.text in ("/s", "/sec"):
        return "/s"
    if unit.text in _WORDS_OF_RATES:
        return _WORDS_OF_RATES[unit.text]
    return unit.text if unit.text in _RATES_BY_NAME else ""
