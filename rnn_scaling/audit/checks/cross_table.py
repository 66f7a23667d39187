"""Two tables that follow each other and measure the same devices: efficiency beside speedup, speedup beside speedup."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from rnn_scaling.audit import misprints, rounding
from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import IMPOSSIBLE, UNLIKELY, Finding, of_row
from rnn_scaling.audit.having import (
    DevicesAndEfficiency,
    DevicesAndRate,
    DevicesAndSpeedup,
    RateAndSpeedup,
    WithDevices,
    WithSeconds,
    having,
)
from rnn_scaling.audit.scaling_table import ScalingTable

NAME = "cross_table"


class _Timed(WithDevices, WithSeconds):
    pass


class _Compared(WithDevices, RateAndSpeedup):
    pass


_TimesAndRates = list[tuple[_Timed, DevicesAndRate]]


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each number that the table before contradicts; None for each that agrees."""
    before = context.previous
    if before is None or before.source != table.source or before.title != table.title:
        return
    first, second = _same_points(before, table)
    if len(first) < 3:
        return
    both_ways = ((first, second), (second, first))
    for speedups, efficiencies in both_ways:
        if all(a.speedup and not a.efficiency for a in speedups) and all(
            b.efficiency and not b.speedup for b in efficiencies
        ):
            pairs = zip(having(speedups, DevicesAndSpeedup), having(efficiencies, DevicesAndEfficiency))
            yield from _efficiency(table, list(pairs))
            return
    for times, rates in both_ways:
        if all(a.seconds and not a.rate for a in times) and all(b.rate and not b.seconds for b in rates):
            yield from _time_and_rate(table, list(zip(having(times, _Timed), having(rates, DevicesAndRate))))
            return


def _same_points(before: ScalingTable, table: ScalingTable) -> tuple[list[WithDevices], list[WithDevices]]:
    """The rows of both, each beside that of its series and devices; none when they do not cover the same points."""
    first, second = (
        {(row.series, row.devices): row for row in having(each.rows, WithDevices)} for each in (before, table)
    )
    same = first.keys() == second.keys() and len(first) == len(before.rows) and len(second) == len(table.rows)
    return (list(first.values()), [second[key] for key in first]) if same else ([], [])


def _efficiency(
    table: ScalingTable, pairs: Sequence[tuple[DevicesAndSpeedup, DevicesAndEfficiency]]
) -> Iterator[Finding | None]:
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
        yield of_row(NAME, IMPOSSIBLE, table, b, "efficiency", value, cause)


def _time_and_rate(table: ScalingTable, pairs: _TimesAndRates) -> Iterator[Finding | None]:
    """One finding for all: speedups by time and by rate differ, and which fixed cost would explain it."""
    differing = [
        ((time, time.speedup), (rate, rate.speedup)) for time, rate in pairs
        if time.speedup and rate.speedup and not rounding.of(time.speedup).meets(rounding.of(rate.speedup))
    ]  # fmt: skip
    if not differing:
        yield from (None for _ in pairs)
        return
    time, rate = max(differing, key=lambda pair: pair[0][0].devices)
    work, fixed, worst = _fixed_cost(pairs)
    cause = (
        f"{len(differing)} of {len(pairs)} speedups differ beyond rounding. Seconds = {work:.5g} items / total rate + "
        f"{fixed:.3g} s fits every row within {worst:.2g} s: the seconds hold a fixed part that the rate leaves out"
    )
    if fixed <= 0 or worst > 0.1 * max(t.seconds.value for t, _ in pairs):
        cause = f"{len(differing)} of {len(pairs)} speedups differ beyond rounding: they are not of the same work"
    in_this = rate[0].source == table.source and rate[0] in table.rows
    (row, _), (other, expected) = (rate, time) if in_this else (time, rate)
    said = f"{expected.text} (line {other.line}), if both are the speedup of one run"
    yield of_row(NAME, UNLIKELY, table, row, "speedup", said, cause)


def _fixed_cost(pairs: _TimesAndRates) -> tuple[float, float, float]:
    """Least squares of seconds against 1 / total rate: (items, fixed seconds, largest residual in seconds)."""
    one = next((rate for _, rate in pairs if rate.devices == 1), pairs[0][1])
    each = _is_each([rate for _, rate in pairs], one)
    x = [1 / (rate.rate.value * (rate.devices if each else 1)) for _, rate in pairs]
    y = [time.seconds.value for time, _ in pairs]
    work, fixed = statistics.linear_regression(x, y) if len(set(x)) > 1 else (0.0, statistics.fmean(y))
    return work, fixed, max(abs(b - work * a - fixed) for a, b in zip(x, y))


def _is_each(rows: Sequence[DevicesAndRate], one: DevicesAndRate) -> bool:
    """Whether the speedups say that the rates are a worker's."""
    rest = having((row for row in rows if row is not one), _Compared)
    implied = [rounding.of(row.rate) / rounding.of(row.speedup) * row.devices for row in rest]
    return bool(rest) and 2 * sum(value.meets(rounding.of(one.rate)) for value in implied) > len(rest)
