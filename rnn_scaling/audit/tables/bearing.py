"""Columns that only the values can tell: a number in brackets, "scaling", "relative throughput"."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnn_scaling.audit import verdicts
from rnn_scaling.audit.scaling_table import ScalingRow
from rnn_scaling.audit.tables.layout import Layout


def borne_out(rows: Sequence[ScalingRow], plan: Layout) -> list[ScalingRow]:
    """The rows, without speedups and efficiencies that no header names and no numbers beside them bear out."""
    out = _as_shares(rows) if _is_share(rows) else list(rows)
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
    return _holds(_as_shares(rows), "efficiency") and not _holds(rows, "speedup")


def _as_shares(rows: Sequence[ScalingRow]) -> list[ScalingRow]:
    return [dataclasses.replace(row, speedup=None, efficiency=row.speedup) for row in rows]


def _holds(rows: Sequence[ScalingRow], field: str) -> bool:
    """Whether two numbers at least are compared, and half of them are those that the rates, times or speedups give."""
    by_series: dict[str, list[ScalingRow]] = {}
    for row in rows:
        by_series.setdefault(row.series, []).append(row)
    hits = compared = 0
    for members in by_series.values():
        verdict = verdicts.judge(members)
        related = verdict.by_speedup if field == "speedup" else verdict.by_efficiency
        fit = related.fit if related else verdict.within if field == "efficiency" else None
        hits, compared = hits + (fit.hits if fit else 0), compared + (fit.rest if fit else 0)
    return compared > 1 and 2 * hits >= compared
