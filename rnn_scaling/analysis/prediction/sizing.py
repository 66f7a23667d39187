"""How much memory, time and money some work takes on n devices, from runs, a prediction and a price. Pure."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from rnn_scaling.analysis.confidence import Interval, combine
from rnn_scaling.analysis.largest_batch import peak
from rnn_scaling.analysis.metrics import GIB
from rnn_scaling.analysis.prediction.curves import STRONG, Prediction
from rnn_scaling.analysis.prices import PricedMachine
from rnn_scaling.analysis.rows import Row, measured_batches, without
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.config import scale

FLOAT_BYTES = 4  # of a number that an optimizer keeps
BLOCKS = 0.01  # of the memory, by which allocation in blocks makes a line wrong
SECONDS = 3600  # of an hour, for which a price is


@dataclasses.dataclass(frozen=True)
class Size:
    """What n devices need. machines, seconds: for the work; None if none is stated. cost: None without a price."""

    devices: int
    memory_gib: Interval | None
    machines: int | None = None
    seconds: Interval | None = None
    cost: Interval | None = None


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What each number of devices needs; statements: the best of them, and assumptions."""

    sizes: tuple[Size, ...] = ()
    statements: tuple[Statement, ...] = ()
    currency: str = ""  # empty without costs


def _alike(row: Row, rows: Sequence[Row]) -> list[Row]:
    """The rows that differ from this one in batch size and number of devices alone, itself included."""

    def work(row: Row) -> tuple:
        names = {*scale.AXES, "batch_size", "global_batch_size"}
        return bool(row.config["global_batch_size"]), without(
            row.key[: len(row.key) - len(row.facts)], names
        )

    return [other for other in rows if other.good and work(other) == work(row)]


def samples(row: Row) -> float:
    """Samples of one device in a step; 0 if unknown."""
    return (row.global_batch_size or 0) / row.num_devices


def fixed_share(row: Row, rows: Sequence[Row]) -> Interval | None:
    """Of a step on one device, the share that does not grow with its batch; None if one batch size was measured."""
    steps = {
        samples(other): other.rate.inverse(
            float(np.mean(measured_batches(other.good[0])[1]))
        )
        for other in _alike(row, rows)
        if other.num_devices == 1 and other.rate and other.good[0].batches.items
    }
    size = samples(row.baseline) if row.baseline else 0
    if size not in steps or len(steps) < 2:
        return None
    nearest = min(
        steps.keys() - {size}, key=lambda other: (abs(math.log(other / size)), -other)
    )
    return combine(
        lambda now, then: 1 - (then / now - 1) * size / (nearest - size),
        [steps[size], steps[nearest]],
    )


def memory_gib(
    row: Row,
    rows: Sequence[Row],
    devices: int,
    batch_factor: float = 1.0,
    per_machine: int | None = None,
) -> Interval | None:
    """Peak memory on n devices, of a process or on GPUs of the fullest one; None where the runs do not determine it.

    A process has all devices, or those `per_machine`.

    Linear in the devices of a process and in their samples, with the 95 % interval of a further run. Where one batch
    size was measured, another one needs between the same and growth of all but parameters, gradients and optimizer.
    """

    shares = (
        0 if row.good[0].resolved.device_type == "GPU" else 1
    )  # whether devices share the memory

    def terms(own: int, each: float) -> tuple[float, float, float]:
        return (1.0, float(own * shares), each * own**shares)

    known = [
        (other, most)
        for other in _alike(row, rows)
        for run in other.good
        if (most := peak(run))
    ]
    if not known:
        return None
    total = (row.num_devices if row.config["global_batch_size"] else devices) * samples(
        row
    )
    own = (
        row.config["num_devices"]
        if row.is_distributed
        else min(devices, per_machine or devices)
    )
    x = np.array(
        [terms(other.config["num_devices"], samples(other)) for other, _ in known]
    )
    y, target = (
        np.array([most for _, most in known]) / GIB,
        np.array(terms(own, batch_factor * total / devices)),
    )
    scales = np.maximum(x.max(axis=0), 1.0)
    inverse = np.linalg.pinv(x / scales, rcond=1e-9)
    if not np.allclose(target / scales @ inverse @ x, target, rtol=1e-6):
        now = (
            memory_gib(row, rows, devices, 1.0, per_machine)
            if batch_factor != 1
            else None
        )
        if now is None:
            return None
        parameters = row.good[0].parameters  # and their gradients
        fixed = (
            (2 * parameters.bytes + FLOAT_BYTES * (parameters.optimizer or 0)) / GIB
            if parameters
            else 0.0
        )
        ends = (now.value, now.value + (batch_factor - 1) * max(0.0, now.value - fixed))
        return Interval(math.fsum(ends) / 2, min(ends), max(ends), "one batch size")
    weights = target / scales @ inverse
    value, degrees = (
        float(weights @ y),
        len(y) - int(np.linalg.matrix_rank(x / scales, tol=1e-9)),
    )
    if degrees < 1:
        return Interval(value, kind="as many runs as unknowns")
    deviation = math.sqrt(float(np.sum((y - x / scales @ inverse @ y) ** 2)) / degrees)
    error = math.hypot(
        deviation * math.sqrt(1 + float(weights @ weights)), BLOCKS * value
    )
    margin = t_quantile(0.975, degrees) * error
    return Interval(
        value, max(0.0, value - margin), value + margin, "a further run", error
    )


def sizes(
    prediction: Prediction,
    rows: Sequence[Row] = (),
    every: Sequence[Row] = (),
    items: float | None = None,
    priced: PricedMachine | None = None,
    devices_per_machine: int | None = None,
    max_global_batch: int | None = None,
) -> Sizes:
    """What each measured and predicted number of devices needs, the best of them, and assumptions.

    Args:
      rows: of the curve; none for a curve of a table, whose memory and batch size are unknown.
      every: rows of other batch sizes too.
      items: amount of work, whose time and cost are asked for.
      devices_per_machine: by default the GPUs of the priced machine, else the most measured devices.
      max_global_batch: samples of all devices in a step, beyond which nothing is claimed.
    """
    curve, machine = prediction.curve, priced or PricedMachine(name="")
    rates = {point.devices: point.rate for point in prediction.points}
    rates |= {point.devices: point.interval for point in curve.points}
    batch = samples(rows[-1]) if rows and curve.scaling != STRONG else 0.0
    fits = [
        n
        for n in sorted(rates)
        if not max_global_batch or n * batch <= max_global_batch
    ]
    made = [
        Size(
            n,
            memory_gib(rows[-1], every, n, 1.0, devices_per_machine) if rows else None,
        )
        for n in fits
    ]
    statements = []
    if items and made:
        per_machine = devices_per_machine or machine.gpus or curve.points[-1].devices
        for i, size in enumerate(made):
            machines, seconds = (
                math.ceil(size.devices / per_machine),
                rates[size.devices].inverse(items),
            )
            cost = (
                seconds.scaled(machines * machine.price_per_hour / SECONDS)
                if machine.price_per_hour
                else None
            )
            made[i] = dataclasses.replace(
                size, machines=machines, seconds=seconds, cost=cost
            )
        statements.append(_best(made, per_machine))
    statements += _limit(batch * max(rates), max_global_batch, bool(items))
    return Sizes(tuple(made), tuple(statements), machine.currency if items else "")


def _limit(batch: float, most: int | None, has_work: bool) -> list[Statement]:
    """What is assumed of the largest batch of all devices; nothing where it is constant or unknown."""
    if most and batch > most:
        return [Statement("size-limit", values={"limit": most})]
    return (
        [Statement("size-batch", values={"batch": round(batch)})]
        if batch and has_work
        else []
    )


def _best(sizes: Sequence[Size], per_machine: int) -> Statement:
    """The numbers of devices that need least time, least money, and least time x money."""
    seconds = {size.devices: size.seconds.value for size in sizes if size.seconds}
    costs = {size.devices: size.cost.value for size in sizes if size.cost}
    values = {"fastest": min(seconds, key=seconds.__getitem__), "machine": per_machine}
    if not costs:
        return Statement("size-fastest", values=values)
    values["cheapest"] = min(costs, key=lambda n: (costs[n], seconds[n]))
    values["both"] = min(costs, key=lambda n: costs[n] * seconds[n])
    return Statement("size-best", values=values)
