"""How much memory, time and money some work takes on n devices, from runs, a prediction and a price. Pure."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from rnn_scaling.analysis.confidence import Interval, combine
from rnn_scaling.analysis.keys import drop_options
from rnn_scaling.analysis.largest_batch import peak
from rnn_scaling.analysis.metrics import GIB
from rnn_scaling.analysis.prediction.curves import STRONG, Prediction
from rnn_scaling.analysis.prices import PricedMachine
from rnn_scaling.analysis.rows import Row, measured_batches
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.config import scale

FLOAT_BYTES = 4  # of a number that an optimizer keeps
BLOCKS = 0.01  # of the memory, by which allocation in blocks makes a line wrong
SECONDS = 3600  # of an hour, for which a price is


@dataclasses.dataclass(frozen=True)
class Size:
    """What n devices need for some work."""

    devices: int
    memory_gib: Interval | None
    machines: int | None = None  # None if no work is stated
    seconds: Interval | None = None
    cost: Interval | None = None  # None without a price


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What each number of devices needs; statements: the best of them, and assumptions."""

    sizes: tuple[Size, ...] = ()
    statements: tuple[Statement, ...] = ()
    currency: str = ""  # empty without costs


def _alike(row: Row, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that differ from this one only in batch size and number of devices."""
    ignored = {*scale.AXES, "batch_size", "global_batch_size"}

    def work(row: Row) -> tuple:
        key = row.key[: len(row.key) - len(row.facts)]
        return bool(row.options["global_batch_size"]), drop_options(key, ignored)

    return [other for other in rows if other.good_runs and work(other) == work(row)]


def samples(row: Row) -> float:
    """Return the samples of one device in a step; 0 if unknown."""
    return (row.global_batch_size or 0) / row.num_devices


def fixed_share(row: Row, rows: Sequence[Row]) -> Interval | None:
    """Return the share of a step on one device that does not grow with its batch.

    Returns:
      None if one batch size was measured.
    """
    steps = {}
    for other in _alike(row, rows):
        run = other.good_runs[0]
        if other.num_devices == 1 and other.rate and run.batches.items:
            items = float(np.mean(measured_batches(run)[1]))
            steps[samples(other)] = other.rate.inverse(items)
    size = samples(row.baseline) if row.baseline else 0
    others = steps.keys() - {size}
    if size not in steps or not others:
        return None
    nearest = min(others, key=lambda other: (abs(math.log(other / size)), -other))
    growth = size / (nearest - size)
    return combine(
        lambda now, then: 1 - (then / now - 1) * growth, [steps[size], steps[nearest]]
    )


def memory_gib(
    row: Row,
    rows: Sequence[Row],
    devices: int,
    batch_factor: float = 1.0,
    per_machine: int | None = None,
) -> Interval | None:
    """Return the peak memory of a process on n devices, or of the fullest GPU.

    It is linear in the devices of a process and in their samples, with the 95 % interval of a further run. If one
    batch size was measured, another one needs between the same and growth of all but parameters, gradients and
    optimizer.

    Args:
      row: The series.
      rows: Also rows of other batch sizes.
      devices: n.
      batch_factor: The batch size over the measured one.
      per_machine: Devices of a process; None: all.

    Returns:
      None if the runs do not determine it.
    """
    on_gpus = row.good_runs[0].resolved.device_type == "GPU"

    def terms(own: int, each: float) -> tuple[float, float, float]:
        # The devices of a CPU share its memory.
        return (1.0, 0.0, each) if on_gpus else (1.0, float(own), each * own)

    x_rows = []
    peaks = []
    for other in _alike(row, rows):
        for run in other.good_runs:
            most = peak(run)
            if most:
                x_rows.append(terms(other.options["num_devices"], samples(other)))
                peaks.append(most / GIB)
    if not peaks:
        return None
    measured = row.num_devices if row.options["global_batch_size"] else devices
    each = batch_factor * (measured * samples(row)) / devices
    own = min(devices, per_machine or devices)
    if row.is_distributed:
        own = row.options["num_devices"]
    x = np.array(x_rows)
    y = np.array(peaks)
    scales = np.maximum(x.max(axis=0), 1.0)
    x = x / scales
    target = np.array(terms(own, each)) / scales
    inverse = np.linalg.pinv(x, rcond=1e-9)
    weights = target @ inverse
    if not np.allclose(weights @ (x * scales), target * scales, rtol=1e-6):
        if batch_factor == 1:
            return None
        now = memory_gib(row, rows, devices, 1.0, per_machine)
        return now and _bounds(now, row, batch_factor)
    value = float(weights @ y)
    degrees = len(y) - int(np.linalg.matrix_rank(x, tol=1e-9))
    if degrees < 1:
        return Interval(value, kind="as many runs as unknowns")
    deviation = math.sqrt(float(np.sum((y - x @ inverse @ y) ** 2)) / degrees)
    of_line = deviation * math.sqrt(1 + float(weights @ weights))
    error = math.hypot(of_line, BLOCKS * value)
    margin = t_quantile(0.975, degrees) * error
    low = max(0.0, value - margin)
    return Interval(value, low, value + margin, "a further run", error)


def _bounds(now: Interval, row: Row, batch_factor: float) -> Interval:
    """Return the memory of another batch size, between no growth and growth of all activations."""
    parameters = row.good_runs[0].parameters
    fixed = 0.0
    if parameters:
        gradients = 2 * parameters.bytes
        fixed = (gradients + FLOAT_BYTES * (parameters.optimizer or 0)) / GIB
    grown = now.value + (batch_factor - 1) * max(0.0, now.value - fixed)
    low, high = sorted((now.value, grown))
    return Interval(math.fsum((low, high)) / 2, low, high, "one batch size")


def sizes(
    prediction: Prediction,
    rows: Sequence[Row] = (),
    every: Sequence[Row] = (),
    items: float | None = None,
    priced: PricedMachine | None = None,
    devices_per_machine: int | None = None,
    max_global_batch: int | None = None,
) -> Sizes:
    """Return what each measured and predicted number of devices needs.

    Args:
      prediction: The rates.
      rows: Of the curve; none for a curve of a table, whose memory and batch size are unknown.
      every: Rows of other batch sizes too.
      items: Amount of work, whose time and cost are asked for.
      priced: The machine.
      devices_per_machine: By default the GPUs of the priced machine, else the most measured devices.
      max_global_batch: Samples of all devices in a step, beyond which nothing is claimed.
    """
    curve = prediction.curve
    machine = priced or PricedMachine(name="")
    rates = {point.devices: point.rate for point in prediction.points}
    rates |= {point.devices: point.interval for point in curve.points}
    batch = samples(rows[-1]) if rows and curve.scaling != STRONG else 0.0
    per_machine = devices_per_machine or machine.gpus or curve.points[-1].devices
    made = []
    for n in sorted(rates):
        if max_global_batch and n * batch > max_global_batch:
            continue
        memory = None
        if rows:
            memory = memory_gib(rows[-1], every, n, 1.0, devices_per_machine)
        size = Size(n, memory)
        if items:
            machines = math.ceil(n / per_machine)
            seconds = rates[n].inverse(items)
            cost = None
            if machine.price_per_hour:
                hourly = machines * machine.price_per_hour
                cost = seconds.scaled(hourly / SECONDS)
            size = Size(n, memory, machines, seconds, cost)
        made.append(size)
    statements = []
    if items and made:
        statements.append(_best(made, per_machine))
    statements += _limit(batch * max(rates), max_global_batch, bool(items))
    return Sizes(tuple(made), tuple(statements), machine.currency if items else "")


def _limit(batch: float, most: int | None, has_work: bool) -> list[Statement]:
    """Return what is assumed of the largest batch of all devices; nothing if it is constant or unknown."""
    if most and batch > most:
        return [Statement("size-limit", values={"limit": most})]
    if batch and has_work:
        return [Statement("size-batch", values={"batch": round(batch)})]
    return []


def _best(sizes: Sequence[Size], per_machine: int) -> Statement:
    """Return the numbers of devices that need least time, least money, and least time x money."""
    seconds = {size.devices: size.seconds.value for size in sizes if size.seconds}
    costs = {size.devices: size.cost.value for size in sizes if size.cost}
    values = {"fastest": min(seconds, key=seconds.__getitem__), "machine": per_machine}
    if not costs:
        return Statement("size-fastest", values=values)
    values["cheapest"] = min(costs, key=lambda n: (costs[n], seconds[n]))
    values["both"] = min(costs, key=lambda n: costs[n] * seconds[n])
    return Statement("size-best", values=values)
