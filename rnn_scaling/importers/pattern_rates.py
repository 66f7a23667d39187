"""Compute one rate from the matches of a pattern in the log of one rank.

matches -> running averages -> two kinds of lines -> start-up -> rate and rounding
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from rnn_scaling.importers import line_kinds, running_average, start_up
from rnn_scaling.importers.log_formats import REGEX, LogReading, Terms
from rnn_scaling.importers.running_average import RunningAverage
from rnn_scaling.records.parts import LogFinding, LogFindingKind

LARGEST_SINGLE = 3e38  # largest loss that a float32 can hold


@dataclasses.dataclass(frozen=True)
class Match:
    """One match of the pattern."""

    numbers: Mapping[str, float]  # by group
    halves: Mapping[str, float]  # half a unit of the last digit of each number
    steps: float  # steps that this match covers


def read(matches: Sequence[Match], terms: Terms, left_out: int = 0) -> LogReading:
    """Return the rate of matches that all have the same groups.

    The format of the reading is empty.

    Args:
      matches: The matches that have a usable number.
      terms: How the log is read.
      left_out: Number of earlier matches without a usable number.
    """
    costs = [cost(match, terms.items_per_step) for match in matches]
    average = _running_average(matches, costs)
    if average is not None and average.is_certain:
        return _reading_of_average(average, costs)
    kinds = line_kinds.clusters(costs)
    training = matches if kinds is None else [matches[i] for i in kinds.training]
    training_costs = [cost(match, terms.items_per_step) for match in training]
    start = start_up.find(training_costs, terms.warmup, left_out)
    has_rates = "rate" in training[0].numbers
    reading = (
        _of_rates(training, start.lines, left_out)
        if has_rates
        else _of_seconds(training, start.lines, terms.items_per_step)
    )
    findings: list[LogFinding] = []

    def add(kind: LogFindingKind, count: int, total: int, other: float) -> None:
        findings.append(
            LogFinding(
                kind=kind.value,
                count=count,
                total=total,
                taken=reading.rate,
                other=other,
            )
        )

    def later_rate(first: int) -> float:
        return mean_rate(training[first:], terms.items_per_step)

    if average is not None:
        add(LogFindingKind.RISING, len(matches), len(matches), average.rate)
    if kinds is not None:
        others = [matches[i] for i in kinds.others]
        other_rate = mean_rate(others, terms.items_per_step)
        add(LogFindingKind.TWO_CLUSTERS, len(others), len(matches), other_rate)
        findings[-1] = dataclasses.replace(
            findings[-1],
            taken_ms=_printed_ms(training),
            other_ms=_printed_ms(others),
        )
    if terms.warmup is None and start.lines > start_up.USUAL:
        add(LogFindingKind.START_UP, start.lines, len(training), later_rate(0))
    if has_rates and start.slower_from:
        later = later_rate(start.slower_from)
        add(LogFindingKind.SLOWER, start.slower_from, len(training), later)
    elif has_rates and not start.is_steady and average is None:
        half = len(training) // 2
        add(LogFindingKind.UNSTEADY, half, len(training), later_rate(half))
    return dataclasses.replace(reading, findings=tuple(findings))


def of_one_rank(reading: LogReading, count: int) -> LogReading:
    """Add the finding that `count` ranks printed times, if there are several."""
    if count <= 1:
        return reading
    finding = LogFinding(
        kind=LogFindingKind.ONE_TIMED_RANK.value,
        count=count,
        total=count,
        taken=reading.rate,
    )
    return dataclasses.replace(reading, findings=(finding, *reading.findings))


def cost(match: Match, items_per_step: float | None) -> float:
    """Return the seconds per item that a match prints."""
    if "rate" in match.numbers:
        return 1 / match.numbers["rate"]
    return _seconds(match, items_per_step) / _items(match, items_per_step)


def mean_rate(matches: Sequence[Match], items_per_step: float | None) -> float:
    """Return the rate over all items of several matches, in items/s."""
    items = [_items(match, items_per_step) for match in matches]
    seconds = [
        count * cost(match, items_per_step) for match, count in zip(matches, items)
    ]
    return math.fsum(items) / math.fsum(seconds)


def finite_loss(value: float | None) -> float | None:
    """Return a loss that a record can hold, None for any other."""
    return value if value is not None and abs(value) <= LARGEST_SINGLE else None


def _running_average(
    matches: Sequence[Match], costs: Sequence[float]
) -> RunningAverage | None:
    """Return what the rates mean as averages since the start; None if they do not rise.

    Seconds next to items are those of a stretch, and no average.
    """
    if "items" in matches[0].numbers:
        return None
    name = next(name for name in ("rate", "seconds", "ms") if name in matches[0].halves)
    steps = [match.numbers.get("step", math.nan) for match in matches]
    grow = all(before < after for before, after in zip(steps, steps[1:]))
    rates = [1 / each for each in costs]
    halves = [
        rate * match.halves[name] / match.numbers[name]
        for rate, match in zip(rates, matches)
    ]
    ends = running_average.ends_of_lines(steps if grow else None, len(matches))
    return running_average.find(ends, rates, halves)


def _reading_of_average(average: RunningAverage, costs: Sequence[float]) -> LogReading:
    finding = LogFinding(
        kind=LogFindingKind.RUNNING_AVERAGE.value,
        count=len(costs),
        total=len(costs),
        taken=average.rate,
        other=len(costs) / math.fsum(costs),
    )
    return LogReading(
        "",
        average.rate,
        rounding=average.half / average.rate,
        findings=(finding,),
        notes=(f"{REGEX} the rate between {len(costs)} printed averages",),
    )


def _of_rates(matches: Sequence[Match], first: int, left_out: int) -> LogReading:
    counted = matches[first:]
    steps = math.fsum(match.steps for match in counted)
    seconds = math.fsum(match.steps / match.numbers["rate"] for match in counted)
    most_seconds = math.fsum(
        match.steps / (match.numbers["rate"] - match.halves["rate"])
        for match in counted
    )
    mean = (
        f"the mean of {len(counted)} printed rates"
        if len(counted) > 1
        else "the last printed rate"
    )
    how = f"{REGEX} {mean}, {first + left_out} left out"
    notes = (how,) if len(matches) + left_out > 1 else ()
    return LogReading(
        "", steps / seconds, rounding=1 - seconds / most_seconds, notes=notes
    )


def _of_seconds(
    matches: Sequence[Match], first: int, items_per_step: float | None
) -> LogReading:
    seconds = tuple(_seconds(match, items_per_step) for match in matches)
    items = tuple(_items(match, items_per_step) for match in matches)
    loss = tuple(finite_loss(match.numbers.get("loss")) for match in matches)
    has_loss = any(value is not None for value in loss)
    note = (
        f"{REGEX} each match of the pattern counts as a batch; its time is only as "
        "accurate as the printed digits"
    )
    return LogReading(
        "",
        math.fsum(items[first:]) / math.fsum(seconds[first:]),
        seconds=seconds,
        items=items,
        loss=loss if has_loss else (),
        warmup=first,
        rounding=_rounding(matches[first:], items_per_step),
        notes=(note,),
    )


def _items(match: Match, items_per_step: float | None) -> float:
    """Return the items of a match; steps if the match prints a rate."""
    if "rate" in match.numbers:
        return match.steps
    return match.numbers.get("items") or match.steps * (items_per_step or math.nan)


def _seconds(match: Match, items_per_step: float | None) -> float:
    """Return the seconds of the steps that a match covers."""
    return _stretch_s(match.numbers, match.steps, items_per_step)


def _stretch_s(
    numbers: Mapping[str, float], steps: float, items_per_step: float | None
) -> float:
    seconds = numbers["seconds"] if "seconds" in numbers else numbers["ms"] / 1000
    return seconds if items_per_step is None else seconds * steps


def _printed_ms(matches: Sequence[Match]) -> float | None:
    """Return the mean of the printed times; None if the matches print rates."""
    if "rate" in matches[0].numbers or "items" in matches[0].numbers:
        return None
    return (
        1000
        * math.fsum(_stretch_s(match.numbers, 1.0, None) for match in matches)
        / len(matches)
    )


def _rounding(matches: Sequence[Match], items_per_step: float | None) -> float:
    """Return the largest relative error of the rate due to rounded digits."""
    seconds = math.fsum(_seconds(match, items_per_step) for match in matches)
    off_s = math.fsum(
        _stretch_s(match.halves, match.steps, items_per_step) for match in matches
    )
    items = math.fsum(match.numbers.get("items", 0.0) for match in matches)
    more = math.fsum(match.halves.get("items", 0.0) for match in matches)
    return 1 - (1 - off_s / seconds) * (items / (items + more) if items else 1.0)
