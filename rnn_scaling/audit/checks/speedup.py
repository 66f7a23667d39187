"""Speedup = rate / rate on one device; by time where there are no rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rnn_scaling.audit import baselines, misprints, rounding
from rnn_scaling.audit.baselines import Group
from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import IMPOSSIBLE, Finding, column_of, expect, name_row
from rnn_scaling.audit.having import DevicesAndSpeedup, RateAndSpeedup, WithDevices, WithSeconds, WithSpeedup, having
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import Cell, ScalingRow, ScalingTable

NAME = "speedup"


class _Timed(DevicesAndSpeedup, WithSeconds):
    pass


class _Counted(RateAndSpeedup, WithDevices):
    pass


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each speedup, or baseline, that does not fit; None for each comparison that holds."""
    for group in baselines.merged(baselines.groups(table.rows)):
        rows = having(group.rows, WithSpeedup)
        if any(row.rate for row in rows):
            yield from _by_rate(table, group, having(rows, RateAndSpeedup))
        elif any(row.seconds for row in rows):
            yield from _by_time(table, group, having(rows, _Timed))


def _by_rate(table: ScalingTable, group: Group, rows: Sequence[RateAndSpeedup]) -> Iterator[Finding | None]:
    base = group.baseline
    if base is None or base.rate is None or (base.speedup and not rounding.of(base.speedup).meets(rounding.point(1))):
        yield from _by_agreement(table, base, rows)
        return
    rest = [row for row in rows if row is not base]
    one = rounding.of(base.rate)
    total = [rounding.of(row.rate) / one for row in rest]
    each = [value * (row.devices or 1) for row, value in zip(rest, total)]
    ones = [rounding.of(row.rate) for row in group.rows if row.devices == 1 and row.rate]  # repeats: any of them
    holds = [
        any(rounding.of(row.speedup).meets(rounding.of(row.rate) / other) for other in ones[:64] or [one])
        for row in rest
    ]
    holds_each = [rounding.of(row.speedup).meets(value) for row, value in zip(rest, each)]
    if group.inferred and not 2 * sum(holds) >= max(len(rest), 3):
        return  # the numbers do not bear out that this row is the baseline
    if sum(holds_each) > max(sum(holds), 1) and 2 * sum(holds_each) >= len(rest):
        yield _each_finding(table, base.rate, rest)
        total, holds = each, holds_each
    elif len(rest) >= 3 and 2 * sum(holds) < len(rest):
        implied, members = rounding.consensus([baselines.implied_by_speedup(row) for row in rest])
        if len(members) >= 3 and 2 * len(members) > len(rest) and not implied.meets(one):
            yield _baseline_finding(table, base, base.rate, implied, len(members))
            total = [rounding.of(row.rate) / implied for row in rest]
            holds = [k in members for k in range(len(rest))]
    for row, value, good in zip(rest, total, holds):
        yield None if good else _finding(table, row, value, _others(rest, total, row), group)


def _others(rows: Sequence[ScalingRow], values: Sequence[Bounds], row: ScalingRow) -> dict[str, Bounds]:
    near = [(other, value) for other, value in zip(rows, values) if other is not row and other.series == row.series]
    return {f"the row of {name_row(other)}": value for other, value in near[:64]}


def _by_agreement(
    table: ScalingTable, base: ScalingRow | None, rows: Sequence[RateAndSpeedup]
) -> Iterator[Finding | None]:
    """Without a baseline of speedup 1: the rate on one device that the rows imply must be the same in most."""
    shared, members = rounding.consensus([baselines.implied_by_speedup(row) for row in rows])
    if len(members) < 3 or 2 * len(members) <= len(rows):
        for one in having([base] if base else [], WithSpeedup):
            if not rounding.of(one.speedup).meets(rounding.point(1.0)):
                yield _finding(table, one, rounding.point(1.0), {}, None)
        return
    for k, row in enumerate(rows):
        value = rounding.of(row.rate) / shared
        yield None if k in members else _finding(table, row, value, {}, None)


def _by_time(table: ScalingTable, group: Group, rows: Sequence[_Timed]) -> Iterator[Finding | None]:
    base = group.baseline
    if base is None or base.seconds is None:
        return
    rest = [row for row in rows if row is not base]
    same = [rounding.of(base.seconds) / rounding.of(row.seconds) for row in rest]
    grown = [value * row.devices for row, value in zip(rest, same)]  # every device does the work of the one
    holds = [rounding.of(row.speedup).meets(value) for row, value in zip(rest, same)]
    holds_grown = [rounding.of(row.speedup).meets(value) for row, value in zip(rest, grown)]
    if sum(holds_grown) > sum(holds):
        same, holds = grown, holds_grown
    if group.inferred and not 2 * sum(holds) >= max(len(rest), 3):
        return
    if len(rest) > 1 and not any(holds):
        return  # the speedup is of another time than the one that was read
    for row, value, good in zip(rest, same, holds):
        yield None if good else _finding(table, row, value, _others(rest, same, row), group)


def _finding(
    table: ScalingTable, row: WithSpeedup, value: Bounds, others: dict[str, Bounds], group: Group | None
) -> Finding:
    base = group.baseline if group else None
    cause = misprints.guess(row.speedup, value, others)
    if base is not None and base.rate and row.rate and row.devices and row.devices > 1:
        if rounding.of(row.speedup).meets(rounding.of(row.rate) / rounding.of(base.rate) * row.devices):
            cause = f"the rate is one worker's, not the total of {row.devices}"
    elif base is not None and base.seconds and row.seconds:
        need = rounding.of(base.seconds) / rounding.of(row.speedup)
        cause += f"; {row.speedup.text} would need {need.low:.4g} to {need.high:.4g} s here"
    return Finding(
        NAME, IMPOSSIBLE, row.source, row.line, name_row(row), column_of(table, "speedup"), row.speedup.text,
        expect(value, row.speedup), cause,
    )  # fmt: skip


def _baseline_finding(table: ScalingTable, base: ScalingRow, rate: Cell, implied: Bounds, count: int) -> Finding:
    cause = f"the speedups of {count} rows are against this other rate: the baseline was mistyped, or measured again"
    return Finding(
        NAME, IMPOSSIBLE, base.source, base.line, name_row(base), column_of(table, "rate"), rate.text,
        expect(implied, rate), cause,
    )  # fmt: skip


def _each_finding(table: ScalingTable, one: Cell, rows: Sequence[RateAndSpeedup]) -> Finding:
    counted = having(rows, _Counted)
    row, last = next(row for row in counted if row.devices > 1), counted[-1]
    cause = (
        f"a worker's rate printed as if it were the total: the speedups are devices x rate / {one.text} in "
        f"{len(rows)} rows (the last: {last.devices} x {last.rate.text} = {last.devices * last.rate.value:.6g})"
    )
    expected = expect(rounding.of(row.rate) * row.devices, row.rate)
    return Finding(
        NAME, IMPOSSIBLE, row.source, row.line, f"{name_row(row)} and the rows below", column_of(table, "rate"),
        row.rate.text, expected, cause,
    )  # fmt: skip
