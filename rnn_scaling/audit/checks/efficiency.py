"""Efficiency = speedup / devices; where no column says the devices, the number that all rows imply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rnn_scaling.audit import baselines, misprints, rounding
from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import IMPOSSIBLE, Finding, column_of, expect, name_row
from rnn_scaling.audit.having import (
    DevicesAndEfficiency,
    DevicesAndRate,
    DevicesAndSpeedup,
    WithDevices,
    WithEfficiency,
    WithSpeedup,
    having,
)
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import ScalingRow, ScalingTable

NAME = "efficiency"


class _SpeedupAndEfficiency(WithSpeedup, WithEfficiency):
    pass


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each efficiency that does not fit; None for each comparison that holds."""
    for group in baselines.groups(table.rows):
        rows = having(group.rows, DevicesAndEfficiency)
        by_rate_known = group.baseline is not None and not group.inferred and group.baseline.rate is not None
        base = group.baseline if by_rate_known and not any(row.speedup for row in rows) else None
        unit = _unit_devices(group.rows)
        values = [_expected(row, base, unit) for row in rows]
        known = [(row, value) for row, value in zip(rows, values) if value]
        each = [(row, value * row.devices) for row, value in known if base and row.devices > 1]
        as_each = sum(rounding.of(row.efficiency).meets(value) for row, value in each)
        as_total = sum(rounding.of(row.efficiency).meets(value) for row, value in known if row.devices > 1)
        if as_each > max(as_total, 1) and 2 * as_each >= len(each):
            yield _each_finding(table, having((row for row, _ in each), DevicesAndRate)[0], len(each))
            known = each
        for row, value in known:
            printed = rounding.of(row.efficiency)
            by_rate = baselines.efficiency_of(row, group.baseline) if by_rate_known else None
            # Where it fits the rates, a speedup that it does not fit is the wrong one, and another check says so.
            good = printed.meets(value) or (by_rate is not None and printed.meets(by_rate))
            yield None if good else _finding(table, row, value, _others(row, value, rows))
    yield from _without_devices(table, having((r for r in table.rows if not r.devices), _SpeedupAndEfficiency))


def _unit_devices(rows: Sequence[ScalingRow]) -> int:
    """The devices that a speedup of 1 stands for: 1, or the fewest of a series that starts with a whole machine."""
    fewest = min(having(rows, DevicesAndSpeedup), key=lambda row: row.devices, default=None)
    if fewest is None or not rounding.of(fewest.speedup).meets(rounding.point(1.0)):
        return 1
    of_one = rounding.of(fewest.speedup) / fewest.devices
    says_one = fewest.efficiency is not None and rounding.of(fewest.efficiency).meets(of_one)
    return 1 if says_one else fewest.devices


def _expected(row: WithDevices, base: ScalingRow | None, unit: int) -> Bounds | None:
    if row.speedup:
        return rounding.of(row.speedup) * unit / row.devices
    return baselines.efficiency_of(row, base)


def _others(row: WithDevices, value: Bounds, rows: Sequence[WithDevices]) -> dict[str, Bounds]:
    """What the row's efficiency would be if it was divided by another row's devices."""
    counts = sorted({other.devices for other in rows} - {row.devices})
    return {f"{count} devices": value * row.devices / count for count in counts}


def _finding(table: ScalingTable, row: WithEfficiency, value: Bounds, others: dict[str, Bounds]) -> Finding:
    return Finding(
        NAME, IMPOSSIBLE, row.source, row.line, name_row(row), column_of(table, "efficiency"), row.efficiency.text,
        expect(value, row.efficiency), misprints.guess(row.efficiency, value, others),
    )  # fmt: skip


def _each_finding(table: ScalingTable, row: DevicesAndRate, count: int) -> Finding:
    expected = expect(rounding.of(row.rate) * row.devices, row.rate)
    cause = f"a worker's rate printed as if it were the total: {count} efficiencies are not divided by devices"
    return Finding(
        NAME, IMPOSSIBLE, row.source, row.line, f"{name_row(row)} and the rows below", column_of(table, "rate"),
        row.rate.text, expected, cause,
    )  # fmt: skip


def _without_devices(table: ScalingTable, rows: Sequence[_SpeedupAndEfficiency]) -> Iterator[Finding | None]:
    """The devices are speedup / efficiency: a whole number, and in one table the same for most rows."""
    implied = [rounding.of(row.speedup) / rounding.of(row.efficiency) for row in rows]
    counts = Counter(n for value in implied for n in list(value.integers())[:16])
    shared, number = max(((count, -n) for n, count in counts.items()), default=(0, 0))
    if shared < 3 or 2 * shared <= len(rows):
        return
    for row, value in zip(rows, implied):
        if value.meets(rounding.point(-number)):
            yield None
        else:
            yield _finding(table, row, rounding.of(row.speedup) / -number, {})
