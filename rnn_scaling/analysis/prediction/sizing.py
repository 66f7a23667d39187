"""Memory, time and cost of some work on n devices, from runs, a prediction and a price.

`predict` adds the sizes to its answer.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from rnn_scaling.analysis.confidence import Interval, combine
from rnn_scaling.analysis.interval_kinds import Basis, IntervalKind
from rnn_scaling.analysis.keys import drop_options
from rnn_scaling.analysis.largest_batch import find_peak_bytes
from rnn_scaling.analysis.metrics import GIB
from rnn_scaling.analysis.prediction.curves import STRONG, Prediction
from rnn_scaling.analysis.prices import PricedMachine
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.config import scale

_FLOAT_BYTES = 4  # bytes of a number that an optimizer keeps
# Share of the memory by which a line is wrong, because memory is allocated in blocks.
_BLOCK_ERROR = 0.01
SECONDS = 3600  # seconds of an hour, the unit of prices


@dataclasses.dataclass(frozen=True)
class Size:
    """The resources that n devices need for some work."""

    devices: int
    memory_gib: Interval | None
    machines: int | None = None  # None if no work is stated
    seconds: Interval | None = None
    cost: Interval | None = None  # None without a price


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The needs of each number of devices, the best number, and assumptions."""

    sizes: tuple[Size, ...] = ()
    statements: tuple[Statement, ...] = ()
    currency: str = ""  # empty without costs


def _list_rows_of_same_work(row: Row, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that differ only in batch size and number of devices."""
    ignored = {*scale.AXES, "batch_size", "global_batch_size"}

    def work_key(row: Row) -> tuple:
        key = row.key[: len(row.key) - len(row.facts)]
        return bool(row.options["global_batch_size"]), drop_options(key, ignored)

    return [
        candidate
        for candidate in rows
        if candidate.good_runs and work_key(candidate) == work_key(row)
    ]


def _count_samples_per_device(row: Row) -> float:
    """Return the samples of one device in a step; 0 if unknown."""
    return (row.global_batch_size or 0) / row.num_devices


def find_fixed_share(row: Row, rows: Sequence[Row]) -> Interval | None:
    """Return the share of a step on one device that does not grow with its batch.

    Returns:
      None if one batch size was measured.
    """
    step_s = {}
    for candidate in _list_rows_of_same_work(row, rows):
        run = candidate.good_runs[0]
        if candidate.num_devices == 1 and candidate.rate and run.batches.items:
            items = float(np.mean(run.batches.items[run.batches.warmup :]))
            step_s[_count_samples_per_device(candidate)] = candidate.rate.inverse(items)
    size = _count_samples_per_device(row.baseline) if row.baseline else 0
    other_sizes = step_s.keys() - {size}
    if size not in step_s or not other_sizes:
        return None
    nearest = min(other_sizes, key=lambda n: (abs(math.log(n / size)), -n))
    growth = size / (nearest - size)
    return combine(
        lambda own_s, nearest_s: 1 - (nearest_s / own_s - 1) * growth,
        [step_s[size], step_s[nearest]],
    )


def estimate_memory_gib(
    row: Row,
    rows: Sequence[Row],
    devices: int,
    batch_factor: float = 1.0,
    per_machine: int | None = None,
) -> Interval | None:
    """Return the peak memory of a process on n devices, or of the fullest GPU.

    The memory is linear in the devices of a process and in their samples. The interval
    contains 95 % of further runs. If one batch size was measured, a different one needs
    between the same and growth of all but parameters, gradients and optimizer.

    Args:
      row: The series.
      rows: Also rows of other batch sizes.
      devices: n.
      batch_factor: The batch size over the measured one.
      per_machine: Devices of a process; by default all.

    Returns:
      None if the runs do not determine it.
    """
    on_gpus = row.good_runs[0].resolved.device_type == "GPU"

    def make_regressors(
        local_devices: int, samples: float
    ) -> tuple[float, float, float]:
        if on_gpus:
            return 1.0, 0.0, samples
        # The devices of a CPU share its memory.
        return 1.0, float(local_devices), samples * local_devices

    x_rows = []
    peaks = []
    for candidate in _list_rows_of_same_work(row, rows):
        samples = _count_samples_per_device(candidate)
        for run in candidate.good_runs:
            num_bytes = find_peak_bytes(run)
            if num_bytes:
                x_rows.append(
                    make_regressors(candidate.options["num_devices"], samples)
                )
                peaks.append(num_bytes / GIB)
    if not peaks:
        return None
    measured_devices = row.num_devices if row.options["global_batch_size"] else devices
    samples = (
        batch_factor * (measured_devices * _count_samples_per_device(row)) / devices
    )
    local_devices = min(devices, per_machine or devices)
    if row.is_distributed:
        local_devices = row.options["num_devices"]
    x = np.array(x_rows)
    y = np.array(peaks)
    scales = np.maximum(x.max(axis=0), 1.0)
    x = x / scales
    target = np.array(make_regressors(local_devices, samples)) / scales
    inverse = np.linalg.pinv(x, rcond=1e-9)
    weights = target @ inverse
    if not np.allclose(weights @ (x * scales), target * scales, rtol=1e-6):
        if batch_factor == 1:
            return None
        memory = estimate_memory_gib(
            row, rows=rows, devices=devices, batch_factor=1.0, per_machine=per_machine
        )
        return memory and _compute_bounds_for_batch(memory, row, batch_factor)
    value = float(weights @ y)
    degrees = len(y) - int(np.linalg.matrix_rank(x, tol=1e-9))
    if degrees < 1:
        return Interval(value, kind=IntervalKind(Basis.FEW_RUNS_FOR_FIT))
    deviation = math.sqrt(float(np.sum((y - x @ inverse @ y) ** 2)) / degrees)
    line_error = deviation * math.sqrt(1 + float(weights @ weights))
    error = math.hypot(line_error, _BLOCK_ERROR * value)
    margin = t_quantile(0.975, degrees) * error
    low = max(0.0, value - margin)
    return Interval(
        value,
        low=low,
        high=value + margin,
        kind=IntervalKind(Basis.FURTHER_RUN),
        standard_error=error,
    )


def _compute_bounds_for_batch(
    memory: Interval, row: Row, batch_factor: float
) -> Interval:
    """Return the memory of a batch size from the memory of the measured one.

    It is between no growth and growth of all activations.
    """
    parameters = row.good_runs[0].parameters
    fixed_gib = 0.0
    if parameters:
        gradients = 2 * parameters.bytes
        fixed_gib = (gradients + _FLOAT_BYTES * (parameters.optimizer or 0)) / GIB
    activations = max(0.0, memory.value - fixed_gib)
    grown = memory.value + (batch_factor - 1) * activations
    low, high = sorted((memory.value, grown))
    middle = math.fsum((low, high)) / 2
    return Interval(middle, low, high, IntervalKind(Basis.BATCH_SIZE))


def compute_sizes(
    prediction: Prediction,
    series_rows: Sequence[Row] = (),
    all_rows: Sequence[Row] = (),
    items: float | None = None,
    priced: PricedMachine | None = None,
    devices_per_machine: int | None = None,
    max_global_batch: int | None = None,
) -> Sizes:
    """Return the needs of each measured and predicted number of devices.

    Args:
      prediction: The rates.
      series_rows: Rows of the curve; empty for a curve of a table, whose memory and
        batch size are unknown.
      all_rows: Also rows of other batch sizes.
      items: Amount of work, whose time and cost are computed.
      priced: The machine.
      devices_per_machine: By default the GPUs of the priced machine, else the largest
        measured number of devices.
      max_global_batch: Samples of all devices in a step; numbers of devices with more
        are left out.
    """
    curve = prediction.curve
    machine = priced or PricedMachine(name="")
    # Rates of numbers that are measured and predicted are the measured ones.
    rates = {point.devices: point.rate for point in prediction.points}
    rates |= {point.devices: point.interval for point in curve.points}
    row = series_rows[-1] if series_rows else None
    # Samples per device in a step; 0 if unknown, or if the global batch is constant.
    samples = _count_samples_per_device(row) if row and curve.scaling != STRONG else 0.0
    per_machine = devices_per_machine or machine.gpus or curve.points[-1].devices
    needs = []
    for devices in sorted(rates):
        if max_global_batch and devices * samples > max_global_batch:
            continue
        memory = None
        if row:
            memory = estimate_memory_gib(
                row,
                rows=all_rows,
                devices=devices,
                batch_factor=1.0,
                per_machine=devices_per_machine,
            )
        size = Size(devices, memory)
        if items:
            num_machines = math.ceil(devices / per_machine)
            seconds = rates[devices].inverse(items)
            cost = _compute_cost(seconds, num_machines, machine)
            size = Size(
                devices,
                memory_gib=memory,
                machines=num_machines,
                seconds=seconds,
                cost=cost,
            )
        needs.append(size)
    statements = []
    if items and needs:
        statements.append(_state_best(needs, per_machine))
    largest_batch = samples * max(rates)
    statements += _state_batches(largest_batch, max_global_batch, bool(items))
    return Sizes(tuple(needs), tuple(statements), machine.currency if items else "")


def _state_batches(
    largest_batch: float, max_global_batch: int | None, has_work: bool
) -> list[Statement]:
    """State that device counts were left out, or how large the global batch gets."""
    if max_global_batch and largest_batch > max_global_batch:
        return [state("size-limit", limit=max_global_batch)]
    if largest_batch and has_work:
        return [state("size-batch", batch=round(largest_batch))]
    return []


def _compute_cost(
    seconds: Interval, num_machines: int, machine: PricedMachine
) -> Interval | None:
    """Return the cost of complete machines for a time; None without a price."""
    if not machine.price_per_hour:
        return None
    return seconds.scaled(num_machines * machine.price_per_hour / SECONDS)


def _state_best(needs: Sequence[Size], per_machine: int) -> Statement:
    """Return the numbers of devices with the least time, cost, and time x cost."""
    seconds = {size.devices: size.seconds.value for size in needs if size.seconds}
    costs = {size.devices: size.cost.value for size in needs if size.cost}
    values = {"fastest": min(seconds, key=seconds.__getitem__), "machine": per_machine}
    if not costs:
        return state("size-fastest", **values)
    values["cheapest"] = min(costs, key=lambda n: (costs[n], seconds[n]))
    values["both"] = min(costs, key=lambda n: costs[n] * seconds[n])
    return state("size-best", **values)
