"""The measurements of one rank -> one rate, and the rates of all ranks -> one.

measurements -> running averages -> two kinds of lines -> start-up -> rate and rounding
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from rnn_scaling.records.importers import cost_series
from rnn_scaling.records.importers.cost_series import RunningAverage
from rnn_scaling.records.importers.rank_tags import Ranks
from rnn_scaling.records.importers.reading import LogLine, Measurement, Terms, whole
from rnn_scaling.records.parts import Batches, LogFinding, LogFindingKind

LARGEST_LOSS = 3e38  # that a float32 can hold
ARRIVAL = "arrival"  # the clock that timed the lines, if the program did not
DELAY_S = 0.02  # that a line may take from the program to the sweep on a busy machine
TOGETHER_S = 0.01  # lines that arrive within it came at once
BURST = 1.5  # mean number of lines that come at once if a program buffers its output
MOST_ERROR = 0.5  # share of a rate
REMEDY = (
    "let it print at once: flush=True, python -u, PYTHONUNBUFFERED=1, or stdbuf -oL "
    "before another program"
)


@dataclasses.dataclass(frozen=True)
class RankRate:
    """The rate that the lines of one rank give."""

    rate: float
    rounding: float = 0.0  # by what share of itself it may be off
    batches: Batches = Batches()
    findings: tuple[LogFinding, ...] = ()
    notes: tuple[str, ...] = ()
    clock: str = ""


def finding(
    kind: LogFindingKind,
    count: int,
    total: int,
    taken: float,
    other: float | None = None,
) -> LogFinding:
    """Return a second way to read a log: `other` items/s instead of `taken`."""
    return LogFinding(
        kind=kind.value, count=count, total=total, taken=taken, other=other
    )


def of_rank(
    measurements: Sequence[Measurement], terms: Terms, left_out: int = 0
) -> RankRate:
    """Return the rate of measurements that all have the same groups.

    With the group `rate` alone, it is the harmonic mean of the lines after the
    start-up, each of which counts as many items: in all, or per step if the pattern has
    the group `step`.

    Args:
      measurements: Those of one rank that have a usable number.
      terms: How the log is read.
      left_out: Number of earlier lines without a usable number.
    """
    costs = [cost(each, terms) for each in measurements]
    average = _running_average(measurements, costs)
    if average is not None and average.is_certain:
        return _between_averages(average, costs)
    clusters = cost_series.find_clusters(costs)
    training = measurements
    if clusters is not None:
        training = [measurements[index] for index in clusters.training]
    start = cost_series.find_start(
        [cost(each, terms) for each in training], terms, left_out
    )
    has_rates = "rate" in training[0].numbers
    reading = (
        _of_rates(training, start.lines, left_out)
        if has_rates
        else _of_seconds(training, start.lines, terms)
    )
    findings: list[LogFinding] = []

    def add(kind: LogFindingKind, count: int, total: int, other: float) -> None:
        findings.append(finding(kind, count, total, reading.rate, other))

    if average is not None:
        count = len(measurements)
        add(LogFindingKind.RISING, count, count, average.rate)
    if clusters is not None:
        others = [measurements[index] for index in clusters.others]
        other_rate = mean_rate(others, terms)
        add(LogFindingKind.TWO_CLUSTERS, len(others), len(measurements), other_rate)
        findings[-1] = dataclasses.replace(
            findings[-1], taken_ms=_mean_ms(training), other_ms=_mean_ms(others)
        )
    if terms.warmup is None and start.lines > cost_series.USUAL_START:
        all_lines = mean_rate(training, terms)
        add(LogFindingKind.START_UP, start.lines, len(training), all_lines)
    if has_rates and start.slower_from:
        later = mean_rate(training[start.slower_from :], terms)
        add(LogFindingKind.SLOWER, start.slower_from, len(training), later)
    elif has_rates and not start.is_steady and average is None:
        half = len(training) // 2
        later = mean_rate(training[half:], terms)
        add(LogFindingKind.UNSTEADY, half, len(training), later)
    return dataclasses.replace(reading, findings=tuple(findings))


def of_ranks(
    rates: Sequence[RankRate], terms: Terms, *, counts_items: bool
) -> RankRate:
    """Return one rate of the ranks that printed, the lowest rank first.

    Args:
      rates: The rate of each rank.
      terms: Which ranks count.
      counts_items: Whether each rank prints items; the items of a step that the user
        names are those of all ranks, so that their sum has no meaning.
    """
    first = rates[0]
    count = len(rates)
    if count == 1:
        if terms.ranks == Ranks.SUM:
            return _with_finding(first, LogFindingKind.NO_RANKS, 1)
        return first
    if not counts_items:
        return _with_finding(first, LogFindingKind.ONE_TIMED_RANK, count)
    total = math.fsum(each.rate for each in rates)
    if terms.ranks != Ranks.SUM:
        return _with_finding(first, LogFindingKind.FIRST_RANK, count, total)
    off = math.fsum(each.rate * each.rounding for each in rates)
    # The batches of the first rank, with the items of all.
    items = tuple(whole(number * total / first.rate) for number in first.batches.items)
    added = dataclasses.replace(
        first,
        rate=total,
        rounding=off / total,
        batches=dataclasses.replace(first.batches, items=items),
    )
    return _with_finding(added, LogFindingKind.SUM_OF_RANKS, count, first.rate)


def _with_finding(
    reading: RankRate, kind: LogFindingKind, ranks: int, other: float | None = None
) -> RankRate:
    added = finding(kind, ranks, ranks, reading.rate, other)
    return dataclasses.replace(reading, findings=(added, *reading.findings))


def of_arrivals(measurements: Sequence[Measurement], terms: Terms) -> RankRate:
    """Return the rate of steps whose lines tell no time, by the arrival of the lines.

    A program that keeps its output back writes many lines at once. When such a burst
    arrives, its last line was the last that was printed and the next was not printed
    yet, so the step is known to one line, and the time exactly. Stretches from line to
    line count in which the step grows. If it falls, a new epoch has begun: the time
    since the line before is left out, since its steps are unknown.

    Raises:
      ValueError: If there are too few stretches, or if they are too short.
    """
    if any(each.line.arrived_s is None for each in measurements):
        raise ValueError(
            "the pattern has no group rate, seconds or ms, and the arrival times of "
            "the lines are unknown"
        )
    epochs, lines = _epochs(measurements)
    stretches = sum(len(bursts) - 1 for bursts in epochs)
    is_buffered = lines > BURST * stretches
    if is_buffered:
        # The last burst of an epoch came when something else was printed, or at the end.
        epochs = [bursts[:-1] for bursts in epochs]
    pairs = [pair for bursts in epochs for pair in itertools.pairwise(bursts)]
    if not pairs:
        reason = "tell fewer than two steps"
        if lines:
            reason = f"arrived in {stretches + len(epochs)} bursts; {REMEDY}"
        raise ValueError(
            f"its {lines + len(epochs)} lines that tell a new step {reason}"
        )
    seconds = [_arrived_s(end.line) - _arrived_s(begin.line) for begin, end in pairs]
    steps = [_step(end) - _step(begin) for begin, end in pairs]
    costs = [taken_s / count for taken_s, count in zip(seconds, steps)]
    first = cost_series.find_start(costs, terms).lines
    counted_s = math.fsum(seconds[first:])
    counted_steps = math.fsum(steps[first:])
    error_s = DELAY_S
    if is_buffered:
        error_s += math.fsum(seconds) / lines
    # Half of the last digit at both ends of a stretch.
    digit = max(each.numbers["step"].step for pair in pairs for each in pair)
    num_epochs = sum(len(bursts) > 1 for bursts in epochs)
    error = num_epochs * (error_s / counted_s + digit / counted_steps)
    if error > MOST_ERROR:
        raise ValueError(
            f"its steps were printed within {counted_s:.2g} s, which is too short to "
            f"time; {REMEDY}, or make more steps"
        )
    items = [step * (terms.items_per_step or 1.0) for step in steps]
    return RankRate(
        math.fsum(items[first:]) / counted_s,
        rounding=error,
        batches=_batches(seconds, items, [end for _, end in pairs], first),
        clock=ARRIVAL,
        notes=(
            "the arrival of the lines timed the steps; intervals hold the error of it",
        ),
    )


def is_new_epoch(step: float, last: float) -> bool:
    """Return whether steps have begun again; a rank that lags is only a little lower."""
    return step <= last / 2


def _epochs(measurements: Sequence[Measurement]) -> tuple[list[list[Measurement]], int]:
    """Return the last line of each burst by epoch, and the number of new steps."""
    epochs: list[list[Measurement]] = []
    opened_s = 0.0
    new_steps = 0
    for each in measurements:
        last = epochs[-1][-1] if epochs else None
        has_begun = last is None or each.epoch != last.epoch
        if last is None or has_begun or is_new_epoch(_step(each), _step(last)):
            epochs.append([each])
            opened_s = _arrived_s(each.line)
        elif _step(each) > _step(last):
            new_steps += 1
            if _arrived_s(each.line) - opened_s < TOGETHER_S:
                epochs[-1][-1] = each
            else:
                epochs[-1].append(each)
                opened_s = _arrived_s(each.line)
    return epochs, new_steps


def _step(measurement: Measurement) -> float:
    return measurement.numbers["step"].value


def _arrived_s(line: LogLine) -> float:
    assert line.arrived_s is not None
    return line.arrived_s


def cost(measurement: Measurement, terms: Terms) -> float:
    """Return the seconds per item that a line prints."""
    rate = measurement.value("rate")
    if rate is not None:
        return 1 / rate
    return _seconds(measurement, terms) / _items(measurement, terms)


def mean_rate(measurements: Sequence[Measurement], terms: Terms) -> float:
    """Return the rate over all items of several lines, in items/s."""
    items = [_items(each, terms) for each in measurements]
    seconds = [count * cost(each, terms) for each, count in zip(measurements, items)]
    return math.fsum(items) / math.fsum(seconds)


def _running_average(
    measurements: Sequence[Measurement], costs: Sequence[float]
) -> RunningAverage | None:
    """Return what the rates mean as averages since the start; None if they do not rise.

    Seconds next to items are those of a stretch, and no average.
    """
    first = measurements[0].numbers
    if "items" in first:
        return None
    name = next(name for name in ("rate", "seconds", "ms") if name in first)
    rates = [1 / each for each in costs]
    halves = []
    for rate, each in zip(rates, measurements):
        cell = each.numbers[name]
        halves.append(0.5 * rate * cell.step / cell.value)
    steps = None
    if all("step" in each.numbers for each in measurements):
        steps = [_step(each) for each in measurements]
    return cost_series.find_running_average(rates, halves, steps)


def _between_averages(average: RunningAverage, costs: Sequence[float]) -> RankRate:
    count = len(costs)
    mean = count / math.fsum(costs)
    found = finding(LogFindingKind.RUNNING_AVERAGE, count, count, average.rate, mean)
    return RankRate(
        average.rate,
        rounding=average.half / average.rate,
        findings=(found,),
        notes=(f"the rate between {count} printed averages",),
    )


def _of_rates(
    measurements: Sequence[Measurement], first: int, left_out: int
) -> RankRate:
    counted = measurements[first:]
    steps = math.fsum(each.steps for each in counted)
    seconds = 0.0
    most_seconds = 0.0
    for each in counted:
        cell = each.numbers["rate"]
        seconds += each.steps / cell.value
        most_seconds += each.steps / (cell.value - 0.5 * cell.step)
    mean = "the last printed rate"
    if len(counted) > 1:
        mean = f"the mean of {len(counted)} printed rates"
    notes: tuple[str, ...] = ()
    if len(measurements) + left_out > 1:
        notes = (f"{mean}, {first + left_out} left out",)
    return RankRate(steps / seconds, rounding=1 - seconds / most_seconds, notes=notes)


def _of_seconds(
    measurements: Sequence[Measurement], first: int, terms: Terms
) -> RankRate:
    seconds = [_seconds(each, terms) for each in measurements]
    items = [_items(each, terms) for each in measurements]
    return RankRate(
        math.fsum(items[first:]) / math.fsum(seconds[first:]),
        rounding=_rounding(measurements[first:], terms),
        batches=_batches(seconds, items, measurements, first),
        notes=(
            "each match of the pattern counts as a batch; its time is only as accurate "
            "as the printed digits",
        ),
    )


def _batches(
    seconds: Sequence[float],
    items: Sequence[float],
    measurements: Sequence[Measurement],
    warmup: int,
) -> Batches:
    losses = [_loss(each) for each in measurements]
    has_loss = any(value is not None for value in losses)
    return Batches(
        warmup=warmup,
        measured=len(seconds) - warmup,
        seconds=tuple(seconds),
        items=tuple(whole(count) for count in items),
        loss=tuple(losses) if has_loss else (),
    )


def _loss(measurement: Measurement) -> float | None:
    """Return a loss that a record can hold, None for any other."""
    value = measurement.value("loss")
    return value if value is not None and abs(value) <= LARGEST_LOSS else None


def _items(measurement: Measurement, terms: Terms) -> float:
    """Return the items of a line; steps if it prints a rate."""
    if "rate" in measurement.numbers:
        return measurement.steps
    per_step = terms.items_per_step or math.nan
    return measurement.value("items") or measurement.steps * per_step


def _seconds(measurement: Measurement, terms: Terms) -> float:
    """Return the seconds of the steps that a line covers."""
    return _stretch_s(measurement, terms, measurement.numbers[_time(measurement)].value)


def _stretch_s(measurement: Measurement, terms: Terms, printed: float) -> float:
    """Return printed seconds or milliseconds, of one step or of a stretch, in seconds."""
    seconds = printed / 1000 if _time(measurement) == "ms" else printed
    return seconds if terms.items_per_step is None else seconds * measurement.steps


def _time(measurement: Measurement) -> str:
    return "seconds" if "seconds" in measurement.numbers else "ms"


def _mean_ms(measurements: Sequence[Measurement]) -> float | None:
    """Return the mean of the printed times; None if the lines print rates or items."""
    if {"rate", "items"} & measurements[0].numbers.keys():
        return None
    one_step = Terms()
    seconds = math.fsum(_seconds(each, one_step) for each in measurements)
    return 1000 * seconds / len(measurements)


def _rounding(measurements: Sequence[Measurement], terms: Terms) -> float:
    """Return the largest relative error of the rate due to rounded digits."""
    seconds = 0.0
    off_s = 0.0
    items = 0.0
    more = 0.0
    for each in measurements:
        seconds += _seconds(each, terms)
        off_s += _stretch_s(each, terms, 0.5 * each.numbers[_time(each)].step)
        if "items" in each.numbers:
            items += each.numbers["items"].value
            more += 0.5 * each.numbers["items"].step
    return 1 - (1 - off_s / seconds) * (items / (items + more) if items else 1.0)
