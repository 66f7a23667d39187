"""Two tables that follow each other and measure the same devices: efficiency beside speedup, speedup beside speedup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rnn_scaling.audit import baselines, misprints, rounding
from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import IMPOSSIBLE, UNLIKELY, Finding, column_of, expect, name_row
from rnn_scaling.audit.scaling_table import ScalingRow, ScalingTable

NAME = "cross_table"
_Pairs = list[tuple[ScalingRow, ScalingRow]]


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each number that the table before contradicts; None for each that agrees."""
    before = context.previous
    if before is None or before.source != table.source or before.title != table.title:
        return
    pairs = _pairs(before, table)
    if len(pairs) < 3:
        return
    if all(a.speedup and b.efficiency and not b.speedup and not a.efficiency for a, b in pairs):
        yield from _efficiency(table, before, pairs)
    elif all(a.efficiency and b.speedup and not b.efficiency and not a.speedup for a, b in pairs):
        yield from _efficiency(table, before, [(b, a) for a, b in pairs])
    elif all(a.seconds and not a.rate and b.rate and not b.seconds for a, b in pairs):
        yield from _time_and_rate(table, pairs)
    elif all(b.seconds and not b.rate and a.rate and not a.seconds for a, b in pairs):
        yield from _time_and_rate(table, [(b, a) for a, b in pairs])


def _pairs(before: ScalingTable, table: ScalingTable) -> _Pairs:
    """Rows of one series and one number of devices; nothing when the tables do not cover the same points."""
    first = {(row.series, row.devices): row for row in before.rows if row.devices}
    second = {(row.series, row.devices): row for row in table.rows if row.devices}
    same = first.keys() == second.keys() and len(first) == len(before.rows) and len(second) == len(table.rows)
    return [(first[key], second[key]) for key in first] if same else []


def _efficiency(table: ScalingTable, before: ScalingTable, pairs: _Pairs) -> Iterator[Finding | None]:
    values = [rounding.of(a.speedup) / a.devices for a, _ in pairs]
    holds = [rounding.of(b.efficiency).meets(value) for (_, b), value in zip(pairs, values)]
    if 2 * sum(holds) < len(pairs):
        return  # tables of other runs
    for (a, b), value, good in zip(pairs, values, holds):
        if good:
            yield None
            continue
        need = rounding.of(b.efficiency) * b.devices
        cause = (
            f"the speedup of this point is {a.speedup.text} at line {a.line}, where {need.low:.4g} to {need.high:.4g} "
            f"would fit: {misprints.guess(b.efficiency, value)}"
        )
        yield Finding(
            NAME, IMPOSSIBLE, b.source, b.line, name_row(b), column_of(table, "efficiency"), b.efficiency.text,
            expect(value, b.efficiency), cause,
        )  # fmt: skip


def _time_and_rate(table: ScalingTable, pairs: _Pairs) -> Iterator[Finding | None]:
    """One finding for all: speedups by time and by rate differ, and which fixed cost would explain it."""
    differing = [
        (time, rate) for time, rate in pairs
        if time.speedup and rate.speedup and not rounding.of(time.speedup).meets(rounding.of(rate.speedup))
    ]  # fmt: skip
    if not differing:
        yield from (None for _ in pairs)
        return
    time, rate = max(differing, key=lambda pair: pair[0].devices)
    work, fixed, worst = _fixed_cost(pairs)
    cause = (
        f"{len(differing)} of {len(pairs)} speedups differ beyond rounding. Seconds = {work:.5g} items / total rate + "
        f"{fixed:.3g} s fits every row within {worst:.2g} s: the seconds hold a fixed part that the rate leaves out"
    )
    if fixed <= 0 or worst > 0.1 * max(t.seconds.value for t, _ in pairs):
        cause = f"{len(differing)} of {len(pairs)} speedups differ beyond rounding: they are not of the same work"
    row = rate if rate.source == table.source and rate in table.rows else time
    other = time if row is rate else rate
    yield Finding(
        NAME, UNLIKELY, row.source, row.line, name_row(row), column_of(table, "speedup"), row.speedup.text,
        f"{other.speedup.text} (line {other.line}), if both are the speedup of one run", cause,
    )  # fmt: skip


def _fixed_cost(pairs: _Pairs) -> tuple[float, float, float]:
    """Least squares of seconds against 1 / total rate: (items, fixed seconds, largest residual in seconds)."""
    one = next((rate for _, rate in pairs if rate.devices == 1), pairs[0][1])
    each = _is_each([rate for _, rate in pairs], one)
    x = [1 / (rate.rate.value * (rate.devices if each else 1)) for _, rate in pairs]
    y = [time.seconds.value for time, _ in pairs]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    work = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) / spread if spread else 0.0
    fixed = mean_y - work * mean_x
    return work, fixed, max(abs(b - work * a - fixed) for a, b in zip(x, y))


def _is_each(rows: Sequence[ScalingRow], one: ScalingRow) -> bool:
    """Whether the speedups say that the rates are a worker's."""
    rest = [row for row in rows if row is not one and row.speedup]
    implied = [baselines.implied_by_speedup(row) * row.devices for row in rest]
    return bool(rest) and 2 * sum(value.meets(rounding.of(one.rate)) for value in implied) > len(rest)
