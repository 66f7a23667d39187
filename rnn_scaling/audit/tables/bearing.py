"""Columns that only the values can tell: a number in brackets, "scaling", "relative throughput"."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnn_scaling.audit import rounding
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import ScalingRow
from rnn_scaling.audit.tables.layout import Layout


def borne_out(rows: Sequence[ScalingRow], plan: Layout) -> list[ScalingRow]:
    """The rows, without speedups and efficiencies that no header names and no numbers beside them bear out."""
    out = (
        [dataclasses.replace(row, speedup=None, efficiency=row.speedup) for row in rows]
        if _is_share(rows)
        else list(rows)
    )
    unsure = {kind.role for kind in plan.kinds if not kind.sure and kind.role}
    for field in ("speedup", "efficiency"):
        if field in unsure and not _holds(out, field):
            out = [dataclasses.replace(row, **{field: None}) for row in out]  # type: ignore[arg-type]
    return out


def _is_share(rows: Sequence[ScalingRow]) -> bool:
    """Whether what is printed as a speedup is one divided by the devices: at most 1, and as the rates give it."""
    gains = [row for row in rows if row.speedup and (row.devices or 0) > 1]
    if len(gains) < 2 or any(row.efficiency or (row.speedup and row.speedup.value > 1.05) for row in rows):
        return False
    swapped = [dataclasses.replace(row, speedup=None, efficiency=row.speedup) for row in rows]
    return _holds(swapped, "efficiency") and not _holds(rows, "speedup")


def _holds(rows: Sequence[ScalingRow], field: str) -> bool:
    """Whether at least half of the numbers, and two, are those that the rates, times or speedups give."""
    first: dict[str, ScalingRow] = {}
    for row in rows:
        if row.devices and row.devices < (first.setdefault(row.series, row).devices or 0):
            first[row.series] = row
    compared = [(row, first[row.series]) for row in rows if row.devices and getattr(row, field)]
    compared = [(row, base) for row, base in compared if row.devices != base.devices]
    fits = [
        any(rounding.of(getattr(row, field)).meets(value) for value in _values(row, base, field))
        for row, base in compared
    ]
    return len(fits) > 1 and 2 * sum(fits) >= len(fits)


def _values(row: ScalingRow, base: ScalingRow, field: str) -> list[Bounds]:
    """What the field may be by the numbers beside it, against the fewest devices of the series."""
    assert row.devices and base.devices
    gains = []
    if row.rate and base.rate:
        gains.append(rounding.of(row.rate) / rounding.of(base.rate))
    if row.rate_each and base.rate_each:
        gains.append(rounding.of(row.rate_each) / rounding.of(base.rate_each) * (row.devices / base.devices))
    if row.seconds and base.seconds:
        gains.append(rounding.of(base.seconds) / rounding.of(row.seconds))
    if field == "efficiency":
        by_speedup = [rounding.of(row.speedup) / row.devices] if row.speedup else []
        return [*by_speedup, *(gain * (base.devices / row.devices) for gain in gains)]
    unit = [gain * base.devices for gain in gains] if base.devices > 1 else []
    return [*gains, *unit]
