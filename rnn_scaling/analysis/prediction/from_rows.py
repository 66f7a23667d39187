"""Rows of run records -> Curves with what their records know of the exchange, the jitter and the machine."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.exchange import exchanged_bytes
from rnn_scaling.analysis.machines import nodes
from rnn_scaling.analysis.prediction import curves, predicting
from rnn_scaling.analysis.prediction.curves import (
    Curve,
    Knowledge,
    Link,
    MeasuredPoint,
    Prediction,
)
from rnn_scaling.analysis.rows import Row, measured_batches
from rnn_scaling.analysis.series_titles import group_by_series, titles
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps.parts import split_steps
from rnn_scaling.config import registry
from rnn_scaling.system.machine import topology

SERVER = "parameter_server"
DEFAULT_FACTOR = 2  # times the largest measured number, if the user names none
# What a record says of a network that was made for its run.
_MADE = re.compile(
    r"([\d.]+) Mbit/s(?: to ([\d.]+) Mbit/s)? of payload measured.*round trip ([\d.]+) ms"
)


@dataclasses.dataclass(frozen=True)
class Links:
    """What is known of links besides the records."""

    # Between devices of one machine, by the all-reduce that was measured; "": for any other.
    measured: Mapping[str, Link] = dataclasses.field(default_factory=dict)
    stated: Link | None = None  # by the user, as the devices of a machine
    devices_per_machine: int | None = None

    def used_by(self, row: Row) -> tuple[Link, ...]:
        """The links of a row's exchange, innermost first; empty where nothing is known."""
        is_inside = (
            row.num_workers == 1 or row.options["num_devices"] > 1
        )  # else it never is inside of a process
        inside = (
            self.measured.get(_all_reduce(row), self.measured.get(""))
            if is_inside
            else None
        )
        outside = self.stated or _made_link(row)
        if size := self.devices_per_machine or _joined_devices(row):
            inside = dataclasses.replace(inside or Link(0.0, math.inf), devices=size)
        elif outside:
            inside = None
        return tuple(link for link in (inside, outside) if link)


NO_LINKS = Links()


@dataclasses.dataclass(frozen=True)
class MeasuredSeries:
    """A series to predict from: its curve, and the rows of the curve's points; none for a table."""

    curve: Curve
    rows: tuple[Row, ...] = ()
    refusal: Statement | None = None  # why it cannot be predicted
    assumed: tuple[Statement, ...] = ()  # by the reading of its table

    def predict(self, devices: Sequence[int], far: bool = False) -> Prediction:
        """Predict the rates on these numbers of devices.

        Args:
          devices: In rising order.
          far: Whether to predict more than predicting.FAR times the largest measured
            number; otherwise those are left out, which a statement says.

        Raises:
          CannotPredict: Also if nothing is left.
        """
        if self.refusal:
            raise curves.CannotPredict(self.refusal)
        largest = self.curve.points[-1].devices if self.curve.points else math.inf
        too_far = [n for n in devices if n > predicting.FAR * largest and not far]
        values = {
            "devices": too_far,
            "largest": largest,
            "is_device": not self.curve.counts_machines,
        }
        if too_far and len(too_far) == len(devices):
            refusal = Statement("prediction-too-far", self.curve.name, values)
            raise curves.CannotPredict(refusal)
        found = predicting.predict(self.curve, [n for n in devices if n not in too_far])
        statements = [*self.assumed, *found.statements]
        if too_far:
            left_out = Statement("prediction-left-out-far", self.curve.name, values)
            statements.append(left_out)
        return dataclasses.replace(found, statements=tuple(statements))

    def as_machines(self) -> MeasuredSeries:
        """Return the series for a question about further machines like the measured ones.

        Devices beyond the measured ones then have cores and memory of their own. Nothing
        changes if the user stated the devices of a machine, if the links show that the
        measured machine has more devices, or without run records.
        """
        known = self.curve.knowledge
        if known.devices_per_machine or not self.rows:
            return self
        measured = nodes(self.rows[-1].good_runs[-1])
        per_machine = math.ceil(self.curve.points[-1].devices / measured)
        links = known.links
        if not links:
            links = (Link(0.0, math.inf, per_machine),)
        elif links[0].devices and links[0].devices > per_machine:
            return self
        elif len(links) == 1 and links[0].devices is None:
            links = (dataclasses.replace(links[0], devices=per_machine),)
        knowledge = dataclasses.replace(
            known, devices_per_machine=per_machine, links=links
        )
        assumed = Statement(
            "predict-machines",
            self.curve.name,
            {
                "machines": DEFAULT_FACTOR * measured,
                "devices": per_machine,
                "measured": measured,
            },
        )
        return dataclasses.replace(
            self,
            curve=dataclasses.replace(self.curve, knowledge=knowledge),
            assumed=(*self.assumed, assumed),
        )

    @property
    def default_devices(self) -> tuple[int, ...]:
        """The question if the user asks none: as many machines again."""
        return (DEFAULT_FACTOR * self.curve.points[-1].devices,)


def series(rows: Sequence[Row], links: Links = NO_LINKS) -> list[MeasuredSeries]:
    """The series of one machine's rows; rows without a good run are left out."""
    by_key = {row.key: row for row in rows if row.rate}
    kept = [
        good
        for members in group_by_series(rows)
        if (good := [row for row in members if row.rate])
    ]
    made = []
    for members, title in zip(kept, titles(kept)):
        first = members[0]
        every = (
            *filter(None, [first.one_device]),
            *members,
        )  # which may lack a fact of the others, as their network
        scaling = curves.STRONG if first.options["global_batch_size"] else curves.WEAK
        curve = Curve(
            title,
            first.unit,
            scaling,
            tuple(map(point, every)),
            _knowledge(every, by_key, links),
        )
        is_unknown = links.stated and curve.knowledge.summed_bytes is None
        made.append(
            MeasuredSeries(
                curve,
                every,
                Statement("predict-unknown-bytes", title) if is_unknown else None,
            )
        )
    return made


def point(row: Row) -> MeasuredPoint:
    """The rate of a row that has one."""
    rate = row.rate
    assert rate is not None
    return MeasuredPoint(
        row.num_devices, rate.value, rate.relative_error, rate.degrees, row.rounding
    )


def _knowledge(
    members: Sequence[Row], by_key: Mapping[tuple, Row], links: Links
) -> Knowledge:
    largest = members[-1]
    base = members[0].baseline
    runs = [run for run in (base.counted_runs if base else ()) if run.batches.seconds]
    steps = [measured_batches(run)[0] for run in runs]
    summed, gathered = _exchanged(largest)
    alone = (
        [by_key[key] for row in members if (key := _alone(row)) in by_key]
        if _algorithm(largest) != "none"
        else []
    )
    return Knowledge(
        step_s=math.fsum(map(math.fsum, steps)) / sum(map(len, steps))
        if steps
        else None,
        summed_bytes=summed,
        gathered_bytes=gathered,
        algorithm=_algorithm(largest),
        servers=largest.options["num_ps"]
        if largest.is_distributed and _algorithm(largest) == SERVER
        else 0,
        links=links.used_by(largest),
        hidden=_hidden(members),
        step_times=max(steps, key=len, default=()),
        independent=tuple(point(row) for row in alone),
        cores=_cores(largest),
        devices_per_machine=links.devices_per_machine,
        gradients_s={
            row.num_devices: mean for row in members if (mean := _gradients_s(row))
        },
    )


def _exchanged(row: Row) -> tuple[float | None, float | None]:
    """(bytes that are summed, bytes that every other device gets): twice the first, and n times the second, cross."""
    two, three = (exchanged_bytes(row.good_runs[-1], devices) for devices in (2, 3))
    return (
        (None, None)
        if two is None or three is None
        else (two - three + two / 2, three - two)
    )


def _algorithm(row: Row) -> str:
    mode = (
        registry.VARIABLE_UPDATES.get(str(row.options["variable_update"]))
        if row.is_ours
        else None
    )
    if mode is None:
        return ""
    return mode.messages(_all_reduce(row))


def _all_reduce(row: Row) -> str:
    """The all-reduce of a row's largest tensors, as its runs resolved it, else its mode."""
    ran = row.good_runs[-1].resolved.all_reduce
    return ran[-1].algorithm if ran else str(row.options["variable_update"])


def _alone(row: Row) -> tuple:
    """The key of the row that trains the same on as many devices without any exchange."""
    alone = registry.mode_of(row.options["variable_update"]).without_exchange
    return row.key_with(variable_update=alone)


def _hidden(members: Sequence[Row]) -> float | None:
    """Share of the exchange that overlaps with computation, on the most devices that were traced."""
    for row in reversed(members):
        traced = split_steps(row.good_runs) if row.num_devices > 1 else None
        if (
            traced
            and traced.synchronous
            and traced.steps
            and (busy := traced.exchange("busy").mean)
        ):
            return min(1.0, traced.exchange("hidden").mean / busy)
    return None


def _gradients_s(row: Row) -> float | None:
    """Mean seconds until the gradients of a worker are computed; None of one worker and where it is not recorded."""
    workers = [
        (run.batches.warmup, rank)
        for run in row.good_runs
        if run.workers
        for rank in run.workers.workers
    ]
    ready = [seconds for warmup, rank in workers for seconds in rank.ready[warmup:]]
    return math.fsum(ready) / len(ready) if ready and row.num_workers > 1 else None


def _cores(row: Row) -> int | None:
    """The cores of the machine whose CPU is the devices of all workers; None where they share none."""
    counts = {
        run.environment.cpu_cores
        for run in row.good_runs
        if run.resolved.device_type == "CPU" and nodes(run) == 1
    }
    return disturbance.shared_cores(row.good_runs) or (
        counts.pop() if len(counts) == 1 else None
    )


def _joined_devices(row: Row) -> int | None:
    """The GPUs that messages reach without the link between sockets, or without leaving the machine; None: unknown."""
    run = row.good_runs[-1]
    if run.resolved.device_type != "GPU":
        return None
    try:
        links = topology.parse(run.environment.topology or "").links
        sizes = {*map(len, topology.connected(links, "NODE"))}
    except topology.TopologyError:
        return None
    return sizes.pop() if len(sizes) == 1 else None


def _made_link(row: Row) -> Link | None:
    """The measured link between workers whose network was made for the run."""
    workers = row.good_runs[-1].workers
    if not (found := _MADE.search((workers and workers.link) or "")):
        return None
    low = float(found[1])
    high = float(found[2] or found[1])
    round_trip_ms = float(found[3])
    return Link(1e-3 * round_trip_ms / 2, 1e6 * math.sqrt(low * high) / 8)
