"""The measurements of one rank -> one rate, and the rates of all ranks -> one.

measurements -> running averages -> two kinds of lines -> start-up -> rate and rounding

Formats with several rates per run call these functions; a format with one rate per run
does not.
"""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rnn_scaling.records.importers import cost_series
from rnn_scaling.records.importers.cost_series import PrintedAverage, RunningAverage
from rnn_scaling.records.importers.rank_tags import Ranks
from rnn_scaling.records.importers.reading import (
    LogLine,
    Measurement,
    Terms,
    convert_whole_to_integer,
)
from rnn_scaling.records.parts import Batches, LogFinding, LogFindingKind

_MAX_LOSS = 3e38  # largest loss that a float32 can hold
_ARRIVAL = "arrival"  # name of the clock that timed the lines if the program did not
DELAY_S = 0.02  # delay of a line between program and sweep on a busy machine
_TOGETHER_S = 0.01  # lines that arrive within this time were written together
_BURST = 1.5  # mean number of lines per burst above which a program buffers its output
MAX_ERROR = 0.5  # largest relative error of a rate
REMEDY = (
    "turn off the buffering of its output: flush=True, python -u, PYTHONUNBUFFERED=1, "
    "or stdbuf -oL for other programs"
)


class Stretch(NamedTuple):
    """Items that were timed together, and half a unit of their last printed digits."""

    items: float
    seconds: float
    half_s: float = 0.0
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

    def scaled(self, factor: float) -> "RankRate":
        """Return the rate of all devices or items of what it counts."""
        findings = []
        for finding in self.findings:
            other = None if finding.other is None else factor * finding.other
            taken = factor * finding.taken
            findings.append(dataclasses.replace(finding, taken=taken, other=other))
        rate = factor * self.rate
        return dataclasses.replace(self, rate=rate, findings=tuple(findings))


def make_finding(
    kind: LogFindingKind,
    count: int,
    total: int,
    rate: float,
    other_rate: float | None = None,
) -> LogFinding:
    """Return a finding about a second way to read a log.

    Args:
      kind: The kind of the finding.
      count: The number of ranks, or of lines that were left out or differ.
      total: The number of all lines, of which `count` is a part.
      rate: The items/s that the record contains.
      other_rate: The items/s by the other way; None if unknown.
    """
    return LogFinding(
        kind=kind.value, count=count, total=total, taken=rate, other=other_rate
    )


def compute_mean_rate(stretches: Iterable[Stretch]) -> float:
    """Return the items/s of several stretches together."""
    counted_stretches = list(stretches)
    items = math.fsum(stretch.items for stretch in counted_stretches)
    return items / math.fsum(stretch.seconds for stretch in counted_stretches)


def find_printed_stretch(measurement: Measurement, terms: Terms) -> Stretch:
    """Return the items and seconds of a line.

    A line with a rate counts one item per step, so that lines have equal weights per
    step. If the user names the items of a step, a time is that of one step.
    """
    numbers = measurement.numbers
    rate = numbers.get("rate")
    if rate is not None:
        seconds = measurement.steps / rate.value
        longest_s = measurement.steps / (rate.value - 0.5 * rate.resolution)
        return Stretch(measurement.steps, seconds, longest_s - seconds)

    time = numbers["seconds"]
    num_times = 1.0 if terms.items_per_step is None else measurement.steps
    seconds = time.value * num_times
    half_s = 0.5 * time.resolution * num_times
    items = numbers.get("items")
    if items is None:
        per_step = terms.items_per_step or math.nan
        return Stretch(measurement.steps * per_step, seconds, half_s)
    return Stretch(items.value, seconds, half_s, 0.5 * items.resolution)


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
    stretches = [find_printed_stretch(line, terms) for line in measurements]
    costs = [stretch.cost for stretch in stretches]
    average = _find_average(measurements, costs, terms)
    if average is not None and average.is_certain:
        return _make_average_rate(average, costs)

    kinds = cost_series.find_kinds(costs)
    lines = [measurements[index] for index in kinds.training]
    training = [stretches[index] for index in kinds.training]
    start = cost_series.find_start(
        [stretch.cost for stretch in training], terms, num_unusable
    )
    result = _measure_lines(lines, training, start.lines, num_unusable)

    total = len(measurements)
    has_rates = "rate" in lines[0].numbers
    # The other rates and their kinds, with the lines that are counted and all lines.
    other_findings: list[tuple[LogFindingKind, int, int, float]] = []
    if average is not None:
        other_findings.append((LogFindingKind.RISING, total, total, average.rate))
    if kinds.rarer:
        rate = compute_mean_rate(stretches[index] for index in kinds.rarer)
        other_findings.append(
            (LogFindingKind.TWO_CLUSTERS, len(kinds.rarer), total, rate)
        )
    if terms.warmup is None and start.lines > cost_series.USUAL_START:
        rate = compute_mean_rate(training)
        other_findings.append(
            (LogFindingKind.START_UP, start.lines, len(training), rate)
        )
    if has_rates and start.slower_from:
        rate = compute_mean_rate(training[start.slower_from :])
        count = start.slower_from
        other_findings.append((LogFindingKind.SLOWER, count, len(training), rate))

    findings = []
    for kind, count, all_lines, other_rate in other_findings:
        finding = make_finding(kind, count, all_lines, result.rate, other_rate)
        if kind is LogFindingKind.TWO_CLUSTERS:
            rarer = [measurements[index] for index in kinds.rarer]
            finding = dataclasses.replace(
                finding,
                taken_ms=_compute_mean_ms(lines),
                other_ms=_compute_mean_ms(rarer),
            )
        findings.append(finding)
    return dataclasses.replace(result, findings=tuple(findings))


def _measure_lines(
    lines: Sequence[Measurement],
    stretches: Sequence[Stretch],
    start: int,
    num_unusable: int,
) -> RankRate:
    """Return the rate of lines after a start-up; times become batches, rates do not."""
    counted_stretches = stretches[start:]
    seconds = math.fsum(stretch.seconds for stretch in counted_stretches)
    half_s = math.fsum(stretch.half_s for stretch in counted_stretches)
    rate = compute_mean_rate(counted_stretches)
    if "rate" in lines[0].numbers:
        mean = "the last printed rate"
        if len(counted_stretches) > 1:
            mean = f"the mean of {len(counted_stretches)} printed rates"
        note = f"{mean}, {start + num_unusable} left out"
        notes = (note,) if len(stretches) + num_unusable > 1 else ()
        return RankRate(rate, half_s / (seconds + half_s), notes=notes)
    items = math.fsum(stretch.items for stretch in counted_stretches)
    half_items = math.fsum(stretch.half_items for stretch in counted_stretches)
    return RankRate(
        rate,
        rounding=1 - (1 - half_s / seconds) * items / (items + half_items),
        batches=_make_batches(stretches, lines, start),
        notes=(
            "each match of the pattern counts as a batch; its time is only as accurate "
            "as the printed digits",
        ),
    )


def _find_average(
    measurements: Sequence[Measurement], costs: Sequence[float], terms: Terms
) -> RunningAverage | None:
    """Return the rate between lines that print averages; None if they do not.

    Seconds next to items belong to a stretch; they are not an average.
    """
    first = measurements[0].numbers
    if "items" in first:
        return None
    name = "rate" if "rate" in first else "seconds"
    has_steps = all("step" in line.numbers for line in measurements)
    lines = []
    for count, (measurement, cost) in enumerate(zip(measurements, costs), 1):
        number = measurement.numbers[name]
        step = _step(measurement) if has_steps else count
        half = 0.5 * number.resolution / number.value / cost
        lines.append(PrintedAverage(step, 1 / cost, half))
    return cost_series.find_running_average(lines, terms)


def _make_average_rate(average: RunningAverage, costs: Sequence[float]) -> RankRate:
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
      counts_items: Whether each rank prints its items. If the user names the items of
        a step, these are the items of all ranks, and a sum would have no meaning.
    """
    first = rates[0]
    count = len(rates)
    total = math.fsum(rank.rate for rank in rates)
    other_rate: float | None = None
    if count == 1:
        if terms.ranks != Ranks.SUM:
            return first
        kind = LogFindingKind.NO_RANKS
    elif not counts_items:
        kind = LogFindingKind.ONE_TIMED_RANK
    elif terms.ranks != Ranks.SUM:
        kind = LogFindingKind.FIRST_RANK
        other_rate = total
    else:
        kind = LogFindingKind.SUM_OF_RANKS
        other_rate = first.rate
        # The sum has the batches of the first rank, with the items of all ranks.
        items = []
        for number in first.batches.items:
            items.append(convert_whole_to_integer(number * total / first.rate))
        error = math.fsum(rank.rate * rank.rounding for rank in rates)
        first = dataclasses.replace(
            first,
            rate=total,
            rounding=error / total,
            batches=dataclasses.replace(first.batches, items=tuple(items)),
        )
    finding = make_finding(kind, count, count, first.rate, other_rate)
    return dataclasses.replace(first, findings=(finding, *first.findings))


def find_rate_of_all_devices(device: RankRate, num_devices: int) -> RankRate:
    """Return the rate of all devices from the rate of one, with a finding about it."""
    if num_devices == 1:
        return device
    total = device.scaled(num_devices)
    kind = LogFindingKind.PER_DEVICE
    finding = make_finding(kind, num_devices, num_devices, total.rate, device.rate)
    others = [f for f in total.findings if f.kind != LogFindingKind.FIRST_RANK]
    return dataclasses.replace(total, findings=(finding, *others))


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
    if any(line.line.arrived_s is None for line in measurements):
        raise ValueError(
            "the pattern has no group rate, seconds or ms, and the arrival "
            "times of the lines are unknown; add one of these groups"
        )
    epochs, num_new_steps = _split_epochs(measurements)
    num_stretches = sum(len(bursts) - 1 for bursts in epochs)
    is_buffered = num_new_steps > _BURST * num_stretches
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
        raise ValueError(f"its lines that begin a new step ({num_lines}) {reason}")

    per_step = terms.items_per_step or 1.0
    stretches = []
    for begin, end in pairs:
        items = (_step(end) - _step(begin)) * per_step
        stretches.append(
            Stretch(items, _require_arrival(end.line) - _require_arrival(begin.line))
        )
    costs = [stretch.cost for stretch in stretches]
    start = cost_series.find_start(costs, terms).lines
    counted_s = math.fsum(stretch.seconds for stretch in stretches[start:])
    counted_steps = math.fsum(stretch.items for stretch in stretches[start:]) / per_step

    error_s = DELAY_S
    if is_buffered:
        error_s += math.fsum(stretch.seconds for stretch in stretches) / num_new_steps
    # Half a unit of the last digit at both ends of each epoch.
    unit = max(line.numbers["step"].resolution for line in itertools.chain(*pairs))
    num_epochs = sum(len(bursts) > 1 for bursts in epochs)
    error = num_epochs * (error_s / counted_s + unit / counted_steps)
    if error > MAX_ERROR:
        raise ValueError(
            f"its steps were printed within {counted_s:.2g} s, which is too short to "
            f"time; {REMEDY}, or run more steps"
        )
    return RankRate(
        compute_mean_rate(stretches[start:]),
        rounding=error,
        batches=_make_batches(stretches, [end for _, end in pairs], start),
        clock=_ARRIVAL,
        notes=(
            (
                "the steps are timed by the arrival of their lines; intervals "
                "include the error of these times"
            ),
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
    for line in measurements:
        arrived_s = _require_arrival(line.line)
        last = epochs[-1][-1] if epochs else line
        is_first = not epochs or line.epoch != last.epoch
        if is_first or is_new_epoch(_step(line), _step(last)):
            epochs.append([line])
            burst_s = arrived_s
        elif _step(line) > _step(last):
            num_new_steps += 1
            if arrived_s - burst_s < _TOGETHER_S:
                epochs[-1][-1] = line
            else:
                epochs[-1].append(line)
                burst_s = arrived_s
    return epochs, num_new_steps


def _step(measurement: Measurement) -> float:
    return measurement.numbers["step"].value


def _require_arrival(line: LogLine) -> float:
    assert line.arrived_s is not None
    return line.arrived_s


def _make_batches(
    stretches: Sequence[Stretch], lines: Sequence[Measurement], warmup: int
) -> Batches:
    losses = [_find_recordable_loss(line) for line in lines]
    has_loss = any(value is not None for value in losses)
    return Batches(
        warmup=warmup,
        measured=len(stretches) - warmup,
        seconds=tuple(stretch.seconds for stretch in stretches),
        items=tuple(convert_whole_to_integer(stretch.items) for stretch in stretches),
        loss=tuple(losses) if has_loss else (),
    )


def _find_recordable_loss(measurement: Measurement) -> float | None:
    """Return the loss of a line; None if a record cannot hold it."""
    value = measurement.value("loss")
    return value if value is not None and abs(value) <= _MAX_LOSS else None


def _compute_mean_ms(lines: Sequence[Measurement]) -> float | None:
    """Return the mean of the printed times; None if the lines print rates or items."""
    if {"rate", "items"} & lines[0].numbers.keys():
        return None
    return 1000 * statistics.fmean(line.numbers["seconds"].value for line in lines)
