"""What the batch sizes of a series say: weak or strong scaling, and how many samples a step of all devices has.

Weak scaling keeps the batch size of a device, strong scaling that of all devices together.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from rnn_scaling.audit import rounding
from rnn_scaling.audit.having import WithDevices, having
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import ScalingRow, ScalingTable
from rnn_scaling.audit.whole_columns import SAYS_EACH
from rnn_scaling.audit.work_model import STEP_UNITS, STRONG, WEAK

_ONE_PASS = re.compile(r"\bmicro|\bmbs\b")


def size(row: ScalingRow) -> float:
    """The batch size, of all steps that are accumulated before an update; 0 where the row has none."""
    cell = row.global_batch_size or row.batch_size
    if row.global_batch_size or not cell:
        return cell.value if cell else 0.0
    steps = next((value.value for name, value in row.extra.items() if "accum" in name.lower()), 1.0)
    return cell.value * max(steps, 1.0)


def of_each(row: WithDevices) -> Bounds:
    """Samples of one device a step."""
    return rounding.point(size(row) / row.devices if row.global_batch_size else size(row))


def of_all(row: WithDevices) -> Bounds:
    """Samples of all devices a step; the size of one may be that of all, divided and rounded down or up."""
    if row.global_batch_size:
        return rounding.point(size(row))
    return Bounds(row.devices * (size(row) - 1) + 1, row.devices * (size(row) + 1) - 1)


def keeping(rows: Sequence[WithDevices]) -> tuple[list[int], list[int]]:
    """Places of the rows that share the batch size of a device, and of those that share that of all devices."""
    return rounding.consensus([of_each(row) for row in rows])[1], rounding.consensus([of_all(row) for row in rows])[1]


def scaling(table: ScalingTable, rows: Sequence[ScalingRow]) -> str | None:
    """WEAK or STRONG, "" where the sizes follow neither rule, None where not every row has one."""
    known = _sized(table, rows)
    if not known:
        return None
    if _is_of_all(table, known):
        return WEAK
    weak, strong = keeping(known)
    return WEAK if len(weak) == len(known) else STRONG if len(strong) == len(known) else ""


def _samples_a_step(table: ScalingTable, rows: Sequence[ScalingRow]) -> list[float] | None:
    """Samples of all devices in a step of each row, up to one factor; None where the table does not tell."""
    devices = [row.devices for row in having(rows, WithDevices)]
    if len(devices) < len(rows):
        return None
    known = _sized(table, rows)
    if known:
        together = bool(known[0].global_batch_size) or _is_of_all(table, known)
        of_one = _says_each(table) or len({size(row) for row in known}) > 1
        if together or (of_one and scaling(table, rows)):
            return [size(row) * (1 if together else row.devices) for row in known]
        if _says_each(table):
            return [size(row) * row.devices for row in known]
    stated = {row.scaling for row in rows}
    return [float(n) for n in devices] if stated == {WEAK} else [1.0] * len(rows) if stated == {STRONG} else None


def in_samples(table: ScalingTable, rows: Sequence[ScalingRow]) -> list[ScalingRow]:
    """The rows of one series with steps a second as samples a second, and without them where a step is not known."""
    if not any(row.rate and row.rate_unit in STEP_UNITS for row in rows):
        return list(rows)
    factors: Sequence[float | None] = _samples_a_step(table, rows) or [None] * len(rows)
    out = []
    for row, factor in zip(rows, factors):
        rate = row.rate
        if rate and row.rate_unit in STEP_UNITS:
            rate = dataclasses.replace(rate.times(factor), text=rate.text) if factor else None
        out.append(dataclasses.replace(row, rate=rate))
    return out


def _sized(table: ScalingTable, rows: Sequence[ScalingRow]) -> list[WithDevices]:
    """The rows, where every one has devices and a batch size of one meaning; else []."""
    known = [row for row in having(rows, WithDevices) if size(row)]
    mixed = len({bool(row.global_batch_size) for row in known}) > 1
    return [] if mixed or len(known) < len(rows) or "accumulation" in table.roles.values() else known


def _says_each(table: ScalingTable) -> bool:
    headers = [name.lower() for name, role in table.roles.items() if role == "batch_size"]
    return any(SAYS_EACH.search(name) or _ONE_PASS.search(name) for name in headers)


def _is_of_all(table: ScalingTable, rows: Sequence[WithDevices]) -> bool:
    """Whether a plain "batch size" grows as the devices do: then it is that of all together."""
    if rows[0].global_batch_size or _says_each(table) or len({size(row) for row in rows}) == 1:
        return False
    return len(rounding.consensus([rounding.point(size(row) / row.devices) for row in rows])[1]) == len(rows)
