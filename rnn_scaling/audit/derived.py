"""What a table implies and may not print: speedup, efficiency, each step's gain, knee, collapse, a fixed part."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence

from rnn_scaling.audit import batches, relations, work_model
from rnn_scaling.audit.having import DevicesAndSeconds, having
from rnn_scaling.audit.relations import EACH, GROWN, STATED_EACH, TIME, TOTAL, Reading
from rnn_scaling.audit.scaling_table import ScalingRow, ScalingTable
from rnn_scaling.audit.tables import columns
from rnn_scaling.audit.verdicts import Verdict
from rnn_scaling.audit.whole_columns import SAYS_EACH
from rnn_scaling.audit.work_model import STRONG, WEAK

# A further device that adds less than this share of the first: the knee. A step that keeps less than this: a fall.
_KNEE, _FALL = 0.5, 0.9
_MAX_POINTS = 200
_CONFLICT = 1.1  # repeats whose speeds differ by more than this factor are none
_IN_STEPS = dataclasses.replace(TOTAL)  # of a rate in steps, times the batch of all devices


@dataclasses.dataclass(frozen=True)
class Point:
    """One number of devices.

    speedup, efficiency: by the measured numbers where there are any, else as printed; efficiency as a fraction.
    step: how many times the point before it, None for the first.
    rows: that measured it; of several, measured and speedup are the geometric mean, and line is that of the first.
    """

    devices: int
    line: int
    measured: float | None
    speedup: float
    efficiency: float
    step: float | None
    rows: int = 1


@dataclasses.dataclass(frozen=True)
class FixedPart:
    """Seconds = scaled / devices + fixed, by least squares; residual: the largest, as a share of its time."""

    scaled: float
    fixed: float
    residual: float


@dataclasses.dataclass(frozen=True)
class Series:
    """What one series implies.

    scaling: "weak", "strong", "" where the table does not say.
    rates: "total", "a worker's", "steps" (times the batch of all devices), "" for none.
    baseline_devices: of the point that the speedups are against; its efficiency is 1.
    best_devices: of the fastest point; knee: from this point on a further device adds less than half of the first.
    collapse: numbers of devices between which the speed falls most, [] where it never does by more than a tenth.
    time: the fixed part of the times, where the work is the same in all rows; phases: speedup of each time column from
      the first point to the last.
    """

    source: str
    line: int
    series: str
    scaling: str
    rates: str
    baseline_devices: int
    points: tuple[Point, ...]
    best_devices: int
    knee: int | None
    collapse: tuple[int, ...]
    time: FixedPart | None
    phases: Mapping[str, float]


def derive(table: ScalingTable, verdicts: Sequence[Verdict], notes: list[str] | None = None) -> Iterator[Series]:
    """Yields what each series of two numbers of devices or more implies.

    Args:
      table: whose rows these are.
      verdicts: on its rows.
      notes: takes a line for each series whose rows conflict.
    """
    for verdict in verdicts:
        by_series: dict[str, list[ScalingRow]] = {}
        for row in verdict.rows:
            by_series.setdefault(row.series, []).append(row)
        single = all(len(members) == 1 for members in by_series.values())
        for members in [verdict.rows] if single else _by_batch(table, list(by_series.values())):
            rows = [row for repeats in _by_count(members) for row in repeats]
            counts = {row.devices for row in rows}
            if len(counts) < 2 or (single and len(counts) < len(rows)):
                continue  # rows of other names on as many devices are no repeats
            scaling = _scaling(table, verdict, rows)
            reading, speeds = _speeds(table, verdict, rows, scaling)
            known = [(row, speed) for row, speed in zip(rows, speeds) if speed]
            if conflict := _conflict(known):
                notes = [] if notes is None else notes
                notes.append(conflict)
                continue
            if len({row.devices for row, _ in known}) >= 2:
                yield _series(table, reading, scaling, known)


def _by_batch(table: ScalingTable, groups: Sequence[list[ScalingRow]]) -> Iterator[list[ScalingRow]]:
    """The rows of each series; those of several batch sizes on as many devices as weak and as strong scaling."""
    for rows in groups:
        sizes = {(row.devices, batches.size(row)) for row in rows if row.global_batch_size}
        kinds: dict[tuple[str, float], list[ScalingRow]] = {}
        for row in rows if len(sizes) > len({devices for devices, _ in sizes}) else ():
            kinds.setdefault((WEAK, batches.size(row) / (row.devices or 1)), []).append(row)
            kinds.setdefault((STRONG, batches.size(row)), []).append(row)
        yield from kinds.values() or [rows]


def _conflict(known: Sequence[tuple[ScalingRow, float]]) -> str:
    """Which lines of one configuration say what no repeats do; "" where none. Records tell their configurations."""
    speeds: dict[int | None, list[tuple[float, int]]] = {}
    for row, speed in known:
        speeds.setdefault(row.devices, []).append((speed, row.line))
    for devices, several in speeds.items():
        (low, first), (high, second) = min(several), max(several)
        if first and high > _CONFLICT * low:
            lines = f"lines {min(first, second)} and {max(first, second)}, both on {devices} devices,"
            return f"{lines} differ by a factor of {high / low:.3g}, but no column explains it: nothing is derived"
    return ""


def _by_count(rows: Sequence[ScalingRow]) -> list[list[ScalingRow]]:
    """The rows of each number of devices, in their order."""
    of: dict[int, list[ScalingRow]] = {}
    for row in rows:
        if row.devices:
            of.setdefault(row.devices, []).append(row)
    return [of[devices] for devices in sorted(of)][:_MAX_POINTS]


def _speeds(
    table: ScalingTable, verdict: Verdict, rows: Sequence[ScalingRow], scaling: str
) -> tuple[Reading | None, list[float | None]]:
    reading = verdict.reading
    steps = any(row.rate and row.rate_unit in work_model.STEP_UNITS for row in rows)
    related = verdict.by_speedup or verdict.by_efficiency
    if steps and not (related and related.fit.hits):
        rows = batches.in_samples(table, rows)
        reading = None
    if reading is None and any(row.rate for row in rows):
        reading = _IN_STEPS if steps else TOTAL
    elif reading is None and any(row.rate_each for row in rows):
        reading = STATED_EACH
    elif reading is None and not steps and not any(row.speedup or row.efficiency for row in rows):
        reading = _of_times(table, rows, scaling)
    if reading is not None:
        speeds = [reading.speed(row) for row in rows]
        if sum(speed is not None for speed in speeds) >= 2:
            return reading, [speed.middle if speed else None for speed in speeds]
    printed = relations.speedups(rows) if any(row.speedup for row in rows) else relations.speedups_of_efficiencies(rows)
    return None, [speed.middle if speed else None for speed in printed]


def _of_times(table: ScalingTable, rows: Sequence[ScalingRow], scaling: str) -> Reading | None:
    """How times without any speedup beside them are read; None where nothing tells how much work each is of."""
    timed = having(rows, DevicesAndSeconds)
    if len(timed) < 2:
        return None
    if scaling:
        return GROWN if scaling == WEAK and not work_model.falls(timed) else TIME
    of_steps = len({row.batches.value for row in timed if row.batches}) == 1
    return None if of_steps or batches.scaling(table, rows) is not None else TIME


def _series(
    table: ScalingTable, reading: Reading | None, scaling: str, known: Sequence[tuple[ScalingRow, float]]
) -> Series:
    speed_of = {id(row): speed for row, speed in known}
    rows = [row for row, _ in known]
    points: list[Point] = []
    one, before, fewest = 1.0, 1.0, 1
    for repeats in _by_count(rows):
        devices = repeats[0].devices or 1
        speed = _mean([speed_of[id(row)] for row in repeats])
        if not points:
            fewest, one = devices, speed if reading is not None else 1.0
        speedup = speed / one
        efficiency = speedup * fewest / devices if reading is not None else speedup / devices
        values = [cell.value for row in repeats if reading and (cell := getattr(row, reading.field))]
        step = speed / before if points else None
        points.append(
            Point(devices, repeats[0].line, _mean(values) if values else None, speedup, efficiency, step, len(repeats))
        )
        before = speed
    best = max(points, key=lambda point: point.speedup)
    first = rows[0]
    strong_times = scaling == STRONG and all(row.seconds for row in rows)
    return Series(
        table.source, table.line or first.line, first.series, scaling, _rates(table, reading, rows), points[0].devices,
        tuple(points), best.devices, _knee(points), _collapse(points),
        fixed_part([(row.devices or 1, row.seconds.value) for row in rows if row.seconds]) if strong_times else None,
        dict(_phases(rows)) if table.grid else {},
    )  # fmt: skip


def _mean(values: Sequence[float]) -> float:
    """The geometric mean; a single value to its last digit."""
    return statistics.geometric_mean(values) if len(values) > 1 else values[0]


def _rates(table: ScalingTable, reading: Reading | None, rows: Sequence[ScalingRow]) -> str:
    if reading is _IN_STEPS:
        return "steps"
    if not any(row.rate for row in rows):
        return "a worker's" if any(row.rate_each for row in rows) else ""
    header = next((name.lower() for name, role in table.roles.items() if role == "rate"), "")
    return "a worker's" if reading is EACH or SAYS_EACH.search(header) else "total"


def _knee(points: Sequence[Point]) -> int | None:
    first = points[0].speedup / points[0].devices
    for left, right in zip(points, points[1:]):
        if (right.speedup - left.speedup) / (right.devices - left.devices) < _KNEE * first:
            return left.devices
    return None


def _collapse(points: Sequence[Point]) -> tuple[int, ...]:
    steps = [(right.step, left.devices, right.devices) for left, right in zip(points, points[1:]) if right.step]
    worst = min(steps, default=(1.0, 0, 0))
    return (worst[1], worst[2]) if worst[0] < _FALL else ()


def _scaling(table: ScalingTable, verdict: Verdict, rows: Sequence[ScalingRow]) -> str:
    """Weak or strong, by the batch sizes, the work, the words of the table, or the times that the speedups are of."""
    stated = {row.scaling for row in rows if row.scaling}
    if len(stated) == 1:
        return stated.pop()
    by_batches = batches.scaling(table, rows)
    if by_batches is not None:
        return by_batches
    headers = " ".join(table.columns[:_MAX_POINTS])
    said = re.findall(r"\b(weak|strong)(?= |-)scal", f"{table.title} {headers} {rows[0].series}".lower())
    said += re.findall(r"\b(weak|strong) scal", f"{table.title} {headers}".lower())
    if len(set(said)) == 1:
        return str(said[0])
    models = work_model.models(rows)
    kinds = {model.kind for model in models} & {WEAK, STRONG}
    if len(kinds) == 1 and all(any(model.fits) for model in models):
        return str(kinds.pop())
    borne_out = verdict.by_speedup and verdict.by_speedup.fit.hits
    return verdict.reading.scaling if verdict.reading and borne_out else ""


def _phases(rows: Sequence[ScalingRow]) -> Iterator[tuple[str, float]]:
    """Each other column of times: how many times faster it is on the most devices than on the fewest."""
    for name, cell in rows[0].extra.items():
        last = rows[-1].extra.get(name)
        if last and cell.value > 0 and last.value > 0 and columns.recognise(name).role == "seconds":
            yield name, cell.value / last.value


def fixed_part(times: Sequence[tuple[int, float]]) -> FixedPart | None:
    """Least squares of seconds against 1 / devices, each row by its share: scaled / n + fixed.

    Args:
      times: (devices, seconds) of each row.

    Returns:
      None for fewer than three rows, for a negative part, or where it leaves more than a tenth of a time unexplained.
    """
    if len({devices for devices, _ in times}) < 3:
        return None
    x, y = [1 / devices for devices, _ in times], [seconds for _, seconds in times]
    weight = [(min(y) / seconds) ** 2 for seconds in y]
    total = sum(weight)
    mean_x, mean_y = (sum(w * v for w, v in zip(weight, values)) / total for values in (x, y))
    spread = sum(w * (a - mean_x) ** 2 for w, a in zip(weight, x))
    if not spread:
        return None  # beside the shortest time the others weigh nothing
    scaled = sum(w * (a - mean_x) * (b - mean_y) for w, a, b in zip(weight, x, y)) / spread
    fixed = mean_y - scaled * mean_x
    residual = max(abs(b - scaled * a - fixed) / b for a, b in zip(x, y))
    return FixedPart(scaled, fixed, residual) if scaled > 0 and fixed >= 0 and residual <= 0.1 else None
