"""Which row the numbers of a series are against."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnn_scaling.audit import rounding
from rnn_scaling.audit.scaling_table import ScalingRow

# What a header or a label calls the run that the others are compared with; a pattern.
SERIAL = (
    r"sequential|serial|single[ -](?:gpu|thread(?:ed)?|core|process|node|device|cpu)|non-?parallel"
    r"|one (?:gpu|thread|core|process|device)"
)


@dataclasses.dataclass(frozen=True)
class Group:
    """Rows that are compared with one baseline, in the order of the table.

    baseline: the row on one device; None when the table has none.
    inferred: the baseline has other labels than the rows ("PS: GPU" against "PS: CPU").
    """

    rows: tuple[ScalingRow, ...]
    baseline: ScalingRow | None
    inferred: bool = False


def groups(rows: Sequence[ScalingRow]) -> list[Group]:
    """The rows by series, each with its baseline.

    The baseline is the series' first row on one device. A series without one takes that of the series whose labels
    agree with its own the most; whether the numbers bear that out is for the checks to say (`inferred`).
    """
    series: dict[str, list[ScalingRow]] = {}
    for row in rows:
        series.setdefault(row.series, []).append(row)
    first = {name: next(filter(_may_be_baseline, members), None) for name, members in series.items()}
    out = []
    for name, members in series.items():
        baseline, inferred = first[name], False
        if baseline is None and any(r.devices for r in members):
            others = {other: row for other, row in first.items() if row}
            near = _nearest(name, others) if len(series) <= 1000 else None
            baseline, inferred = (others[near], True) if near is not None else (None, False)
        out.append(Group(tuple(members), baseline, inferred))
    return out


def _may_be_baseline(row: ScalingRow) -> bool:
    """Whether a row is on one device, and does not say that it is so many times as fast as another."""
    return row.devices == 1 and (row.speedup is None or rounding.of(row.speedup).meets(rounding.point(1.0)))


def _nearest(name: str, others: dict[str, ScalingRow]) -> str | None:
    """The series that shares most labels, or the only one; None when two are as near."""
    own = name.split(" / ")
    shared = {other: sum(a == b for a, b in zip(own, other.split(" / "))) for other in others}
    best = max(shared.values(), default=0)
    nearest = [other for other, count in shared.items() if count == best]
    return nearest[0] if len(nearest) == 1 and (best > 0 or len(others) == 1) else None
