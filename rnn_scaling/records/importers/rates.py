"""The measurements of one rank -> one rate, and the rates of all ranks -> one.

measurements -> running averages -> two kinds of lines -> start-up -> rate and rounding
"""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rnn_scaling.records.importers import cost_series
from rnn_scaling.records.importers.cost_series import RunningAverage
from rnn_scaling.records.importers.rank_tags import Ranks
from rnn_scaling.records.importers.reading import (
    LogLine,
    Measurement,
    Terms,
    integer_if_whole,
)
from rnn_scaling.records.parts import Batches, LogFinding, LogFindingKind

LARGEST_LOSS = 3e38  # largest loss that a float32 can hold
ARRIVAL = "arrival"  # name of the clock that timed the lines if the program did not
DELAY_S = 0.02  # delay of a line between program and sweep on a busy machine
TOGETHER_S = 0.01  # lines that arrive within this time were written together
BURST = 1.5  # mean number of lines per burst above which a program buffers its output
MOST_ERROR = 0.5  # largest relative error of a rate
REMEDY = (
    "let it print at once: flush=True, python -u, PYTHONUNBUFFERED=1, or stdbuf -oL "
    "before another program"
)
_UNITS_PER_S = {"seconds": 1, "ms": 1000}


class Stretch(NamedTuple):
    """Items that were timed together, and half a unit of their last printed digits."""

    items: float
    seconds: float
    half_s: float
    half_items: float = 0.0

    @property
    def cost(self) -> float:
        """Seconds per item."""
        return self.seconds / self.items


@dataclasses.dataclass(frozen=True)
class RankRate:
    """The rate of one rank according to its lines."""

    rate: float
    rounding: float = 0.0  # largest relative error
    batches: Batches = Batches()
    findings: tuple[LogFinding, ...] = ()
    notes: tuple[str, ...] = ()
    clock: str = ""


def make_finding(
    kind: LogFindingKind,
    count: int,
    total: int,
    taken: float,
    other: float | None = None,
) -> LogFinding:
    """Return another way to read a log: `other` items/s instead of `taken`."""
    return LogFinding(
        kind=kind.value, count=count, total=total, taken=taken, other=other
    )


def mean_rate(stretches: Iterable[Stretch]) -> float:
    """Return the items/s of several stretches together."""
    counted = list(stretches)
    items = math.fsum(stretch.items for stretch in counted)
    return items / math.fsum(stretch.seconds for stretch in counted)


def printed_stretch(measurement: Measurement, terms: Terms) -> Stretch:
    """Return the items and seconds of a line.

    A line with a rate covers as many items as steps, so that lines have equal weights
    per step. A time is that of one step if the user names the items of a step.
    """
    numbers = measurement.numbers
    rate = numbers.get("rate")
    if rate is not None:
        seconds = measurement.steps / rate.value
        longest_s = measurement.steps / (rate.value - 0.5 * rate.step)
        return Stretch(measurement.steps, seconds, longest_s - seconds)

    name = _time_group(measurement)
    time = numbers[name]
    num_times = 1.0 if terms.items_per_step is None else measurement.steps
    seconds = time.value / _UNITS_PER_S[name] * num_times
    half_s = 0.5 * time.step / _UNITS_PER_S[name] * num_times
    items = numbers.get("items")
    if items is None:
        per_step = terms.items_per_step or math.nan
        return Stretch(measurement.steps * per_step, seconds, half_s)
    return Stretch(items.value, seconds, half_s, 0.5 * items.step)


def measure_rank(
    measurements: Sequence[Measurement], terms: Terms, num_unusable: int = 0
) -> RankRate:
    """Return the rate of one rank.

    The rate of lines with rates is the harmonic mean after the start-up.

    Args:
      measurements: Lines with a usable number, all with the same groups.
      terms: How the log is read.
      num_unusable: Number of earlier lines without a usable number.
    """
    stretches = [printed_stretch(each, terms) for each in measurements]
    costs = [stretch.cost for stretch in stretches]
    average = _find_average(measurements, costs)
    if average is not None and average.is_certain:
        return _rate_between_averages(average, costs)

    clusters = cost_series.find_clusters(costs)
    if clusters is None:
        lines = list(measurements)
        training = stretches
    else:
        lines = [measurements[index] for index in clusters.training]
        training = [stretches[index] for index in clusters.training]
    start = cost_series.find_start(
        [stretch.cost for stretch in training], terms, num_unusable
    )
    has_rates = "rate" in lines[0].numbers
    if has_rates:
        found = _rate_of_rates(training, start.lines, num_unusable)
    else:
        found = _rate_of_times(training, start.lines, lines)

    findings: list[LogFinding] = []

    def add_finding(
        kind: LogFindingKind, count: int, total: int, others: Sequence[Stretch]
    ) -> None:
        other = mean_rate(others)
        findings.append(make_finding(kind, count, total, found.rate, other))

    total = len(measurements)
    num_training = len(training)
    if average is not None:
        kind = LogFindingKind.RISING
        findings.append(make_finding(kind, total, total, found.rate, average.rate))
    if clusters is not None:
        others = [stretches[index] for index in clusters.others]
        add_finding(LogFindingKind.TWO_CLUSTERS, len(others), total, others)
        other_lines = [measurements[index] for index in clusters.others]
        findings[-1] = dataclasses.replace(
            findings[-1], taken_ms=_mean_ms(lines), other_ms=_mean_ms(other_lines)
        )
    if terms.warmup is None and start.lines > cost_series.USUAL_START:
        add_finding(LogFindingKind.START_UP, start.lines, num_training, training)
    if has_rates and start.slower_from:
        first = start.slower_from
        add_finding(LogFindingKind.SLOWER, first, num_training, training[first:])
    elif has_rates and not start.is_steady and average is None:
        half = num_training // 2
        add_finding(LogFindingKind.UNSTEADY, half, num_training, training[half:])
    return dataclasses.replace(found, findings=tuple(findings))


def _rate_of_rates(
    stretches: Sequence[Stretch], start: int, num_unusable: int
) -> RankRate:
    counted = stretches[start:]
    seconds = math.fsum(stretch.seconds for stretch in counted)
    half_s = math.fsum(stretch.half_s for stretch in counted)
    mean = "the last printed rate"
    if len(counted) > 1:
        mean = f"the mean of {len(counted)} printed rates"
    notes: tuple[str, ...] = ()
    if len(stretches) + num_unusable > 1:
        notes = (f"{mean}, {start + num_unusable} left out",)
    rounding = half_s / (seconds + half_s)
    return RankRate(mean_rate(counted), rounding=rounding, notes=notes)


def _rate_of_times(
    stretches: Sequence[Stretch], start: int, lines: Sequence[Measurement]
) -> RankRate:
    counted = stretches[start:]
    seconds = math.fsum(stretch.seconds for stretch in counted)
    half_s = math.fsum(stretch.half_s for stretch in counted)
    items = math.fsum(stretch.items for stretch in counted)
    half_items = math.fsum(stretch.half_items for stretch in counted)
    return RankRate(
        items / seconds,
        rounding=1 - (1 - half_s / seconds) * items / (items + half_items),
        batches=_batches(stretches, lines, start),
        notes=(
            "each match of the pattern counts as a batch; its time is only as accurate "
            "as the printed digits",
        ),
    )


def _find_average(
    measurements: Sequence[Measurement], costs: Sequence[float]
) -> RunningAverage | None:
    """Return the rate between lines that print averages; None if they do not.

    Seconds next to items are those of a stretch, and not an average.
    """
    first = measurements[0].numbers
    if "items" in first:
        return None
    name = "rate" if "rate" in first else _time_group(measurements[0])
    halves = []
    for measurement, cost in zip(measurements, costs):
        number = measurement.numbers[name]
        halves.append(0.5 * number.step / number.value / cost)
    steps = None
    if all("step" in each.numbers for each in measurements):
        steps = [_step(each) for each in measurements]
    return cost_series.find_running_average([1 / cost for cost in costs], halves, steps)


def _rate_between_averages(average: RunningAverage, costs: Sequence[float]) -> RankRate:
    count = len(costs)
    kind = LogFindingKind.RUNNING_AVERAGE
    mean = count / math.fsum(costs)
    return RankRate(
        average.rate,
        rounding=average.half / average.rate,
        findings=(make_finding(kind, count, count, average.rate, mean),),
        notes=(f"the rate between {count} printed averages",),
    )


def combine_ranks(
    rates: Sequence[RankRate], terms: Terms, *, counts_items: bool
) -> RankRate:
    """Return one rate for all ranks that printed.

    Args:
      rates: The rate of each rank, the lowest rank first.
      terms: The ranks that count.
      counts_items: Whether each rank prints its items. The items of a step that the
        user names are those of all ranks, so that a sum would have no meaning.
    """
    first = rates[0]
    count = len(rates)
    if count == 1:
        if terms.ranks != Ranks.SUM:
            return first
        return _with_rank_finding(first, LogFindingKind.NO_RANKS, 1)
    if not counts_items:
        return _with_rank_finding(first, LogFindingKind.ONE_TIMED_RANK, count)
    total = math.fsum(each.rate for each in rates)
    if terms.ranks != Ranks.SUM:
        return _with_rank_finding(first, LogFindingKind.FIRST_RANK, count, total)

    # The sum has the batches of the first rank, with the items of all ranks.
    items = []
    for number in first.batches.items:
        items.append(integer_if_whole(number * total / first.rate))
    error = math.fsum(each.rate * each.rounding for each in rates)
    added = dataclasses.replace(
        first,
        rate=total,
        rounding=error / total,
        batches=dataclasses.replace(first.batches, items=tuple(items)),
    )
    return _with_rank_finding(added, LogFindingKind.SUM_OF_RANKS, count, first.rate)


def _with_rank_finding(
    found: RankRate, kind: LogFindingKind, count: int, other: float | None = None
) -> RankRate:
    finding = make_finding(kind, count, count, found.rate, other)
    return dataclasses.replace(found, findings=(finding, *found.findings))


def measure_arrivals(measurements: Sequence[Measurement], terms: Terms) -> RankRate:
    """Return the rate of steps according to the arrival of their lines.

    A program that buffers its output writes many lines at once. When such a burst
    arrives, its last line was printed and the next line was not, so that the step is
    known within one line, and the time exactly. Stretches in which the step grows
    count. If the step falls, a new epoch has begun: the time since the line before is
    left out, because its steps are unknown.

    Raises:
      ValueError: If there are too few stretches, or if they are too short.
    """
    if any(each.line.arrived_s is None for each in measurements):
        raise ValueError(
            "the pattern has no group rate, seconds or ms, and the arrival times of "
            "the lines are unknown"
        )
    epochs, num_new_steps = _split_epochs(measurements)
    num_stretches = sum(len(bursts) - 1 for bursts in epochs)
    is_buffered = num_new_steps > BURST * num_stretches
    if is_buffered:
        # The last burst of an epoch was written with later output, or at the end.
        epochs = [bursts[:-1] for bursts in epochs]
    pairs: list[tuple[Measurement, Measurement]] = []
    for bursts in epochs:
        pairs += itertools.pairwise(bursts)
    if not pairs:
        reason = "contain fewer than two steps"
        if num_new_steps:
            reason = f"arrived in {num_stretches + len(epochs)} bursts; {REMEDY}"
        num_lines = num_new_steps + len(epochs)
        raise ValueError(f"its {num_lines} lines that begin a new step {reason}")

    steps = [_step(end) - _step(begin) for begin, end in pairs]
    seconds = [_arrived_s(end.line) - _arrived_s(begin.line) for begin, end in pairs]
    costs = [took_s / count for took_s, count in zip(seconds, steps)]
    start = cost_series.find_start(costs, terms).lines
    counted_s = math.fsum(seconds[start:])

    error_s = DELAY_S
    if is_buffered:
        error_s += math.fsum(seconds) / num_new_steps
    # Half a unit of the last digit at both ends of each epoch.
    unit = max(each.numbers["step"].step for each in itertools.chain(*pairs))
    num_epochs = sum(len(bursts) > 1 for bursts in epochs)
    error = num_epochs * (error_s / counted_s + unit / math.fsum(steps[start:]))
    if error > MOST_ERROR:
        raise ValueError(
            f"its steps were printed within {counted_s:.2g} s, which is too short to "
            f"time; {REMEDY}, or make more steps"
        )
    per_step = terms.items_per_step or 1.0
    stretches = []
    for count, took_s in zip(steps, seconds):
        stretches.append(Stretch(count * per_step, took_s, 0.0))
    return RankRate(
        mean_rate(stretches[start:]),
        rounding=error,
        batches=_batches(stretches, [end for _, end in pairs], start),
        clock=ARRIVAL,
        notes=(
            "the arrival of the lines timed the steps; intervals hold the error of it",
        ),
    )


def is_new_epoch(step: float, last: float) -> bool:
    """Return whether steps count from 0 again; a late rank is only a little lower."""
    return step <= last / 2


def _split_epochs(
    measurements: Sequence[Measurement],
) -> tuple[list[list[Measurement]], int]:
    """Return the last line of each burst by epoch, and the number of new steps."""
    epochs: list[list[Measurement]] = []
    burst_s = 0.0
    num_new_steps = 0
    for each in measurements:
        arrived_s = _arrived_s(each.line)
        last = epochs[-1][-1] if epochs else each
        is_first = not epochs or each.epoch != last.epoch
        if is_first or is_new_epoch(_step(each), _step(last)):
            epochs.append([each])
            burst_s = arrived_s
        elif _step(each) > _step(last):
            num_new_steps += 1
            if arrived_s - burst_s < TOGETHER_S:
                epochs[-1][-1] = each
            else:
                epochs[-1].append(each)
                burst_s = arrived_s
    return epochs, num_new_steps


def _step(measurement: Measurement) -> float:
    return measurement.numbers["step"].value


def _arrived_s(line: LogLine) -> float:
    assert line.arrived_s is not None
    return line.arrived_s


def _batches(
    stretches: Sequence[Stretch], lines: Sequence[Measurement], warmup: int
) -> Batches:
    losses = [_loss(line) for line in lines]
    has_loss = any(value is not None for value in losses)
    return Batches(
        warmup=warmup,
        measured=len(stretches) - warmup,
        seconds=tuple(stretch.seconds for stretch in stretches),
        items=tuple(integer_if_whole(stretch.items) for stretch in stretches),
        loss=tuple(losses) if has_loss else (),
    )


def _loss(measurement: Measurement) -> float | None:
    """Return the loss of a line; None if a record cannot hold it."""
    value = measurement.value("loss")
    return value if value is not None and abs(value) <= LARGEST_LOSS else None


def _time_group(measurement: Measurement) -> str:
    return "seconds" if "seconds" in measurement.numbers else "ms"


def _mean_ms(lines: Sequence[Measurement]) -> float | None:
    """Return the mean of the printed times; None if the lines print rates or items."""
    if {"rate", "items"} & lines[0].numbers.keys():
        return None
    name = _time_group(lines[0])
    mean = statistics.fmean(line.numbers[name].value for line in lines)
    return 1000 * mean / _UNITS_PER_S[name]
