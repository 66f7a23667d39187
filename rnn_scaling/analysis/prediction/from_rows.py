"""Curves from rows of run records, with the recorded exchange, jitter and machine.

All rates of a curve are measured in the same way. Rows that other programs slowed are
left out if they cannot be corrected; without two other rows, all rates contain the
load. Corrected rates have the error of the correction, so that rates of quiet runs
decide.

`make_measured_series` is called with the rows of one machine. What a record knows about
its links, cores and jitter becomes a `Knowledge` here; the models read nothing else.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.exchange import exchange_sizes
from rnn_scaling.analysis.load_correction import CORRECTION_DEGREES
from rnn_scaling.analysis.machines import count_nodes
from rnn_scaling.analysis.prediction import curves, predicting
from rnn_scaling.analysis.prediction.curves import (
    Curve,
    Knowledge,
    Link,
    MeasuredPoint,
    Prediction,
)
from rnn_scaling.analysis.rows import Row, count_all_batches
from rnn_scaling.analysis.series_titles import group_by_series, make_titles
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.analysis.steps.parts import split_steps
from rnn_scaling.config import registry
from rnn_scaling.system.machine import topology

PARAMETER_SERVER = "parameter_server"
_NO_EXCHANGE = "none"
_MIN_POINTS = 2  # fewest measured numbers of devices of a prediction
_MAX_SLOWING = 0.1  # largest share of a rate that load may have taken from a point
_DEFAULT_FACTOR = 2  # times the largest measured number, if the user names none
# The text in a record about a network that was created for its run.
_VIRTUAL_NETWORK = re.compile(
    r"([\d.]+) Mbit/s(?: to ([\d.]+) Mbit/s)? of payload measured"
    r".*round trip ([\d.]+) ms"
)


@dataclasses.dataclass(frozen=True)
class Links:
    """The links that the user provides in addition to the records.

    Attributes:
      measured: Link between devices of one machine, by all-reduce; "" for any other.
      stated: Link between the devices, or the machines, as stated by the user.
      devices_per_machine: Number of devices, as stated by the user.
    """

    measured: Mapping[str, Link] = dataclasses.field(default_factory=dict)
    stated: Link | None = None
    devices_per_machine: int | None = None

    def for_row(self, row: Row) -> tuple[Link, ...]:
        """Return the links of a row's exchange, innermost first; empty if unknown."""
        inside_machine = None
        # With one device per worker, no message stays inside of a process.
        if row.num_workers == 1 or row.options["num_devices"] > 1:
            any_link = self.measured.get("")
            inside_machine = self.measured.get(_find_all_reduce(row), any_link)
        between_machines = self.stated or _make_virtual_link(row)
        size = self.devices_per_machine or _list_connected_gpus(row)
        if size:
            inside_machine = inside_machine or Link(0.0, math.inf)
            inside_machine = dataclasses.replace(inside_machine, devices=size)
        elif between_machines:
            inside_machine = None
        return tuple(filter(None, (inside_machine, between_machines)))


NO_LINKS = Links()


@dataclasses.dataclass(frozen=True)
class MeasuredSeries:
    """A series to predict from: its curve, and the rows of the curve's points."""

    curve: Curve
    rows: tuple[Row, ...] = ()  # empty for a series of a table
    refusal: Statement | None = None  # why it cannot be predicted
    assumptions: tuple[Statement, ...] = ()
    # Machines that the question is about; None unless made by `on_equal_machines`.
    machines: int | None = None

    def predict(self, devices: Sequence[int], far: bool = False) -> Prediction:
        """Predict the rates on these numbers of devices.

        Args:
          devices: In rising order.
          far: Whether to predict more than predicting.FAR times the largest measured
            number. Otherwise these are left out, with a statement.

        Raises:
          CannotPredict: Also if nothing is left.
        """
        if self.refusal:
            raise curves.CannotPredict(self.refusal)
        largest = self.curve.points[-1].devices if self.curve.points else math.inf
        too_far = [
            n for n in devices if n > predicting.MAX_EXTRAPOLATION * largest and not far
        ]
        values = {
            "devices": too_far,
            "largest": largest,
            "is_device": not self.curve.counts_machines,
        }
        if too_far and len(too_far) == len(devices):
            refusal = state("prediction-too-far", self.curve.name, **values)
            raise curves.CannotPredict(refusal)
        accepted = [n for n in devices if n not in too_far]
        prediction = predicting.predict(self.curve, accepted)
        statements = [*self.assumptions, *prediction.statements]
        if too_far:
            left_out = state("prediction-left-out-far", self.curve.name, **values)
            statements.append(left_out)
        return dataclasses.replace(
            prediction, statements=tuple(statements), machines=self.machines
        )

    def on_equal_machines(self) -> MeasuredSeries:
        """Return the series for a question about more machines like the measured ones.

        Devices beyond the measured ones then have other cores and memory. Nothing
        changes if the user stated the devices of a machine, if the links show that the
        measured machine has more devices, or without run records.
        """
        knowledge = self.curve.knowledge
        if knowledge.devices_per_machine or not self.rows:
            return self
        num_machines = count_nodes(self.rows[-1].good_runs[-1])
        per_machine = math.ceil(self.curve.points[-1].devices / num_machines)
        links = knowledge.links
        if not links:
            links = (Link(0.0, math.inf, per_machine),)
        elif links[0].devices and links[0].devices > per_machine:
            return self
        elif len(links) == 1 and links[0].devices is None:
            links = (dataclasses.replace(links[0], devices=per_machine),)
        knowledge = dataclasses.replace(
            knowledge, devices_per_machine=per_machine, links=links
        )
        predicted_machines = _DEFAULT_FACTOR * num_machines
        assumption = state(
            "predict-machines",
            self.curve.name,
            machines=predicted_machines,
            devices=per_machine,
            measured=num_machines,
        )
        return dataclasses.replace(
            self,
            curve=dataclasses.replace(self.curve, knowledge=knowledge),
            assumptions=(*self.assumptions, assumption),
            machines=predicted_machines,
        )

    @property
    def default_devices(self) -> tuple[int, ...]:
        """The numbers of devices that are predicted if the user names none."""
        return (_DEFAULT_FACTOR * self.curve.points[-1].devices,)


def make_measured_series(
    rows: Sequence[Row], links: Links = NO_LINKS
) -> list[MeasuredSeries]:
    """Return the series of one machine's rows; rows without a good run are left out."""
    rows_by_key = {row.key: row for row in rows if row.rate}
    groups = group_by_series([row for row in rows if row.rate])
    all_series = []
    for members, title in zip(groups, make_titles(groups)):
        first = members[0]
        # The row on one device comes first; it may lack the network of the others.
        all_rows = (*filter(None, [first.one_device]), *members)
        series_rows, load_statements = _select_alike(title, all_rows)
        curve = Curve(
            title,
            first.unit,
            curves.STRONG if first.options["global_batch_size"] else curves.WEAK,
            tuple(map(make_measured_point, series_rows)),
            _collect_knowledge(series_rows, rows_by_key, links),
        )
        refusal = None
        if links.stated and curve.knowledge.summed_bytes is None:
            refusal = state("predict-unknown-bytes", title)
        all_series.append(MeasuredSeries(curve, series_rows, refusal, load_statements))
    return all_series


def _select_alike(
    title: str, rows: tuple[Row, ...]
) -> tuple[tuple[Row, ...], tuple[Statement, ...]]:
    """Return the rows of a series whose rates are measured in the same way.

    Returns:
      The rows, and a statement about load if it changed a rate or left out a row.
    """
    slowed = [row for row in rows if _is_much_slowed(row)]
    usable = tuple([row for row in rows if not _is_much_slowed(row)])
    statements = []

    def add(kind: str, affected: Sequence[Row]) -> None:
        if affected:
            devices = [row.num_devices for row in affected]
            statements.append(state(kind, title, devices=devices))

    if slowed and len(usable) < _MIN_POINTS:
        add("predict-with-load", slowed)
        return tuple(map(count_all_batches, rows)), tuple(statements)
    add("predict-left-out-load", slowed)
    add("predict-corrected", [row for row in usable if row.corrected is not None])
    return usable, tuple(statements)


def _is_much_slowed(row: Row) -> bool:
    """Return whether load that cannot be corrected changes a rate too much for a point."""
    return row.is_slowed and row.max_slowing > _MAX_SLOWING


def make_measured_point(row: Row) -> MeasuredPoint:
    """Return the point of a row, which must have a rate."""
    rate = row.rate
    assert rate is not None
    error = rate.relative_error
    degrees = rate.degrees
    if error is None and row.corrected is not None:
        # The scatter of a single run is unknown, but not the error of its correction.
        error = row.corrected.error
        degrees = CORRECTION_DEGREES
    return MeasuredPoint(
        row.num_devices,
        rate=rate.value,
        error=error,
        degrees=degrees,
        rounding=row.rounding,
        is_corrected=row.corrected is not None,
    )


def _collect_knowledge(
    rows: Sequence[Row], rows_by_key: Mapping[tuple, Row], links: Links
) -> Knowledge:
    """Return what the rows of a series, by rising number of devices, have recorded."""
    largest = rows[-1]
    algorithm = _find_algorithm(largest)
    baseline = rows[0].baseline
    step_times = list(_list_step_times(baseline))
    step_s = None
    if step_times:
        num_steps = sum(map(len, step_times))
        step_s = math.fsum(map(math.fsum, step_times)) / num_steps
    if baseline is not None and baseline.corrected is not None:
        step_s = _correct_step(baseline, step_s)
        # Their scatter is due to the other programs.
        step_times = []
    exchanged = exchange_sizes(largest.good_runs[-1], 2)
    independent = []
    if algorithm != _NO_EXCHANGE:
        keys = map(_make_key_without_exchange, rows)
        found = [rows_by_key[key] for key in keys if key in rows_by_key]
        independent = [row for row in found if not _is_much_slowed(row)]
    gradients_s = {row.num_devices: _estimate_gradients_s(row) for row in rows}
    has_own_servers = largest.is_distributed and algorithm == PARAMETER_SERVER
    return Knowledge(
        step_s=step_s,
        summed_bytes=exchanged[0] if exchanged else None,
        gathered_bytes=exchanged[1] if exchanged else None,
        algorithm=algorithm,
        servers=largest.options["num_ps"] if has_own_servers else 0,
        links=links.for_row(largest),
        hidden_share=_estimate_hidden_share(rows),
        step_times=max(step_times, key=len, default=()),
        independent=tuple(map(make_measured_point, independent)),
        cores=_count_cores(largest),
        devices_per_machine=links.devices_per_machine,
        gradients_s={count: s for count, s in gradients_s.items() if s},
    )


def _list_step_times(row: Row | None) -> Iterator[Sequence[float]]:
    """Yield the measured step times of each run."""
    runs = row.counted_runs if row else ()
    all_batches = disturbance.has_disturbed_run(runs)
    for run in runs:
        if run.batches.seconds:
            yield disturbance.select_counted_batches(run, all_batches)[0]


def _correct_step(row: Row, step_s: float | None) -> float | None:
    """Return the step time that belongs to the corrected rate of a row."""
    if step_s is None or row.measured_rate is None or row.rate is None:
        return None
    return step_s * row.measured_rate.value / row.rate.value


def _find_algorithm(row: Row) -> str:
    """Return the name in curves.ALGORITHMS; "" if unknown.

    Of the modes of other programs, only the one without an exchange is known.
    """
    mode = registry.VARIABLE_UPDATES.get(str(row.options["variable_update"]))
    algorithm = mode.describe_messages(_find_all_reduce(row)) if mode else ""
    return algorithm if row.is_ours or algorithm == _NO_EXCHANGE else ""


def _find_all_reduce(row: Row) -> str:
    """Return the all-reduce of a row's largest tensors, or its mode if not recorded."""
    resolved = row.good_runs[-1].resolved.all_reduce
    if resolved:
        return resolved[-1].algorithm
    return str(row.options["variable_update"])


def _make_key_without_exchange(row: Row) -> tuple:
    """Return the key of the row that trains the same without any exchange."""
    mode = registry.find_mode(row.options["variable_update"])
    return row.key_with(variable_update=mode.exchange_free_mode)


def _estimate_hidden_share(rows: Sequence[Row]) -> float | None:
    """Return the share of the exchange that overlaps with computation.

    Returns:
      The share on the most devices with a trace of synchronous steps; None if no row
      has one.
    """
    for row in reversed(rows):
        steps = split_steps(row.good_runs) if row.num_devices > 1 else None
        if steps and steps.is_synchronous and steps.steps:
            busy = steps.exchange("busy").mean
            if busy:
                return min(1.0, steps.exchange("hidden").mean / busy)
    return None


def _estimate_gradients_s(row: Row) -> float | None:
    """Return the mean seconds until the gradients of a worker are computed.

    Returns:
      None for a single worker, or if the times are not recorded.
    """
    if row.num_workers == 1:
        return None
    times: list[float] = []
    for run in row.good_runs:
        for rank in run.workers.workers if run.workers else ():
            times += rank.ready[run.batches.warmup :]
    return math.fsum(times) / len(times) if times else None


def _count_cores(row: Row) -> int | None:
    """Return the cores of the one machine whose CPU is the devices of all workers.

    Returns:
      None if devices do not share cores.
    """
    shared = disturbance.count_shared_cores(row.good_runs)
    if shared:
        return shared
    runs = [run for run in row.good_runs if run.resolved.device_type == "CPU"]
    counts = {run.environment.cpu_cores for run in runs if count_nodes(run) == 1}
    return counts.pop() if len(counts) == 1 else None


def _list_connected_gpus(row: Row) -> int | None:
    """Return how many GPUs are connected without the link between sockets.

    Returns:
      None for CPUs, and if the topology is unknown or groups of GPUs differ in size.
    """
    run = row.good_runs[-1]
    if run.resolved.device_type != "GPU":
        return None
    try:
        links = topology.parse(run.environment.topology or "").links
        sizes = set(map(len, topology.group_connected(links, "NODE")))
    except topology.TopologyError:
        return None
    return sizes.pop() if len(sizes) == 1 else None


def _make_virtual_link(row: Row) -> Link | None:
    """Return the measured link of workers whose network was created for the run."""
    workers = row.good_runs[-1].workers
    match = _VIRTUAL_NETWORK.search((workers and workers.link) or "")
    if match is None:
        return None
    low = float(match[1])
    high = float(match[2] or match[1])
    round_trip_ms = float(match[3])
    return Link(1e-3 * round_trip_ms / 2, 1e6 * math.sqrt(low * high) / 8)
