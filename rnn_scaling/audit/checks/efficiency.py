"""Efficiency = speedup / devices; where no column says the devices, the number that all rows imply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rnn_scaling.audit import misprints, rounding
from rnn_scaling.audit.checks import speedup
from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import IMPOSSIBLE, Finding, of_row
from rnn_scaling.audit.having import WithEfficiency, WithSpeedup, having
from rnn_scaling.audit.scaling_table import ScalingTable

NAME = "efficiency"


class _SpeedupAndEfficiency(WithSpeedup, WithEfficiency):
    pass


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each efficiency that does not fit; what holds is counted by the check of speedups."""
    for judged in context.judged(table):
        yield from (finding for field, finding in speedup.findings(table, judged) if field == NAME)
    yield from _without_devices(table, having((r for r in table.rows if not r.devices), _SpeedupAndEfficiency))


def _without_devices(table: ScalingTable, rows: Sequence[_SpeedupAndEfficiency]) -> Iterator[Finding | None]:
    """The devices are speedup / efficiency: a whole number, and in one table the same for most rows."""
    implied = [rounding.of(row.speedup) / rounding.of(row.efficiency) for row in rows]
    devices = rounding.common_whole(implied)
    if devices is None:
        return
    for row, value in zip(rows, implied):
        if value.meets(rounding.point(devices)):
            yield None
            continue
        expected = rounding.of(row.speedup) / devices
        yield of_row(NAME, IMPOSSIBLE, table, row, NAME, expected, misprints.guess(row.efficiency, expected))
