"""Rows of run records -> Curves with what their records know of the exchange, the jitter and the machine."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

from rnn_scaling import registry
from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.exchange import gradient
from rnn_scaling.analysis.machines import nodes
from rnn_scaling.analysis.prediction.curves import STRONG, WEAK, Curve, Knowledge, Link, MeasuredPoint
from rnn_scaling.analysis.rows import Row, measured_batches, row_key, series_key, without
from rnn_scaling.analysis.series_titles import by_series, titles
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps.parts import split_steps

# The algorithm of an exchange, by the all-reduce that ran, else by the mode.
ALGORITHM = {
    **dict.fromkeys(("nccl", "collective", "xring", "horovod", "multi_worker_mirrored"), "ring"),
    **{"rechd": "tree", "hierarchical": "hierarchical"},
    **dict.fromkeys(("pscpu", "psgpu"), "parameter_server"),
}
# What a record says of a network that was made for its run.
_MADE = re.compile(r"([\d.]+) Mbit/s(?: to ([\d.]+) Mbit/s)? of payload measured.*round trip ([\d.]+) ms")


@dataclasses.dataclass(frozen=True)
class Links:
    """What is known of links besides the records."""

    # Between devices of one machine, by the all-reduce that was measured; "": for any other.
    measured: Mapping[str, Link] = dataclasses.field(default_factory=dict)
    stated: Link | None = None  # by the user
    devices_per_machine: int | None = None  # stated by the user

    def used_by(self, row: Row) -> tuple[Link, ...]:
        """The links of a row's exchange, innermost first; empty where nothing is known."""
        size = self.devices_per_machine or _devices_per_machine(row)
        outer = self.stated or _made_link(row)
        if size is None and outer:
            return (outer,)
        inside = None
        if row.num_workers == 1 or row.config["num_devices"] > 1:  # else the exchange never is inside of a process
            inside = self.measured.get(_all_reduce(row)) or self.measured.get("")
        if size is None:
            return (inside,) if inside else ()
        first = dataclasses.replace(inside or Link(0.0, math.inf), devices=size)
        return (first, outer) if outer else (first,)


NO_LINKS = Links()


def curves(rows: Sequence[Row], links: Links = NO_LINKS) -> list[Curve]:
    """The curves of `series`."""
    return [curve for curve, _ in series(rows, links)]


def series(rows: Sequence[Row], links: Links = NO_LINKS) -> list[tuple[Curve, tuple[Row, ...]]]:
    """A curve for each series of one machine's rows, and the rows of its points.

    Series of a single number of devices are included; those without a good run are left out.
    """
    by_key = {row.key: row for row in rows if row.rate}
    made = [[row for row in members if row.rate] for members in by_series(rows)]
    kept = [members for members in made if members]
    return [_curve(members, title, by_key, links) for members, title in zip(kept, titles(kept))]


def _curve(
    members: Sequence[Row], title: str, by_key: Mapping[tuple, Row], links: Links
) -> tuple[Curve, tuple[Row, ...]]:
    first = members[0]
    if first.one_device:  # which may have no fact of the others, as the network between workers
        members = [first.one_device, *members]
    curve = Curve(
        name=title,
        unit=first.unit,
        scaling=STRONG if first.config["global_batch_size"] else WEAK,
        points=tuple(point(row) for row in members),
        knowledge=_knowledge(members, by_key, links),
    )
    return curve, tuple(members)


def refusals(made: Sequence[tuple[Curve, tuple[Row, ...]]], stated: Link | None) -> list[Statement | None]:
    """Why each of `series` cannot be predicted: mixed scalings, or unknown bytes for a stated link."""
    groups: dict[tuple, set[int]] = {}
    keys = [without(series_key(rows[-1]), ("batch_size", "global_batch_size")) for _, rows in made]
    for key, (curve, _) in zip(keys, made):
        if len(curve.points) == 1:
            groups.setdefault(key, set()).add(curve.points[0].devices)
    found: list[Statement | None] = []
    for key, (curve, _) in zip(keys, made):
        known, counts = curve.knowledge, groups.get(key, set())
        if len(curve.points) == 1 and len(counts) > 1:
            found.append(Statement("predict-mixed-scaling", curve.name, {"devices": sorted(counts)}))
        elif stated and known.summed_bytes is None and known.algorithm != "none":
            found.append(Statement("predict-unknown-bytes", curve.name))
        else:
            found.append(None)
    return found


def point(row: Row) -> MeasuredPoint:
    """The rate of a row that has one."""
    rate = row.rate
    assert rate is not None
    return MeasuredPoint(row.num_devices, rate.value, rate.relative_error, rate.degrees, row.rounding)


def _knowledge(members: Sequence[Row], by_key: Mapping[tuple, Row], links: Links) -> Knowledge:
    largest, base = members[-1], members[0].baseline
    runs = [run for run in (base.good if base else ()) if run.batches.seconds]
    steps = [measured_batches(run)[0] for run in runs]
    counts = [count for row in members for run in row.good if (count := gradient(run))]
    sent = counts[-1] if counts else None
    alone = [by_key[key] for row in members if (key := _alone(row)) in by_key] if _algorithm(largest) != "none" else []
    return Knowledge(
        step_s=math.fsum(map(math.fsum, steps)) / sum(map(len, steps)) if steps else None,
        summed_bytes=sent.summed if sent else None,
        gathered_bytes=sent.gathered if sent else None,
        algorithm=_algorithm(largest),
        links=links.used_by(largest),
        hidden=_hidden(members),
        step_times=max(steps, key=len, default=()),
        independent=tuple(point(row) for row in alone),
        cores=_cores(largest),
    )


def _algorithm(row: Row) -> str:
    mode = registry.VARIABLE_UPDATES.get(str(row.config["variable_update"])) if row.is_ours else None
    if mode is None:
        return ""
    if not mode.trains_one_model:
        return "none"
    return "parameter_server" if mode.has_one_copy else ALGORITHM.get(_all_reduce(row), "")


def _all_reduce(row: Row) -> str:
    """The all-reduce of a row's largest tensors, as its runs resolved it, else its mode."""
    ran = [segments[-1].algorithm for run in row.good if (segments := run.resolved.all_reduce)]
    return ran[-1] if ran else str(row.config["variable_update"])


def _alone(row: Row) -> tuple:
    """The key of the row that trains the same on as many devices without any exchange."""
    alone = registry.without_exchange(row.config["variable_update"])
    return row_key(row.config, row.unit, variable_update=alone) + row.facts


def _hidden(members: Sequence[Row]) -> float | None:
    """Share of the exchange that overlaps with computation, on the most devices that were traced."""
    for row in reversed(members):
        traced = split_steps(row.good) if row.num_devices > 1 else None
        if traced and traced.synchronous and traced.steps and (busy := traced.exchange("busy").mean):
            return min(1.0, traced.exchange("hidden").mean / busy)
    return None


def _cores(row: Row) -> int | None:
    """The cores of the machine whose CPU is the devices of all workers; None where they share none."""
    if shared := disturbance.shared_cores(row):
        return shared
    kinds = {run.resolved.device_type for run in row.good}
    counts = {run.environment.cpu_cores for run in row.good if nodes(run) == 1}
    return counts.pop() if kinds == {"CPU"} and len(counts) == 1 else None


def _devices_per_machine(row: Row) -> int | None:
    """The devices of each machine of runs on several machines; None where they are not known to have left one."""
    machines = {nodes(run) for run in row.good}
    count = machines.pop() if len(machines) == 1 else 1
    return row.num_devices // count if count > 1 and row.num_devices % count == 0 else None


def _made_link(row: Row) -> Link | None:
    """The measured link between workers whose network was made for the run."""
    texts = [run.workers.link for run in row.good if run.workers and run.workers.link]
    found = _MADE.search(texts[-1]) if texts else None
    if found is None:
        return None
    low, high, round_trip_ms = float(found[1]), float(found[2] or found[1]), float(found[3])
    return Link(1e-3 * round_trip_ms / 2, 1e6 * math.sqrt(low * high) / 8)
