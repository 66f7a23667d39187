"""Our run records: what is derived in them against the raw values beside it."""

from __future__ import annotations

from collections.abc import Iterator

from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import IMPOSSIBLE, Finding, name_row
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import ScalingRow, ScalingTable
from rnn_scaling.audit.tables.records import EQUAL

NAME = "record_parts"


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields None for each derived number that its raw values give; for those off by one factor together a finding."""
    off: dict[tuple[str, str, str], list[ScalingRow]] = {}
    for row in table.rows:
        for derived, raw in EQUAL:
            stands, expected = row.extra.get(derived), row.extra.get(raw)
            if stands is None or expected is None:
                continue
            if Bounds(stands.low, stands.high).meets(Bounds(expected.low, expected.high)):
                yield None
            else:
                off.setdefault((derived, raw, f"{stands.value / expected.value:.6g}"), []).append(row)
    for (derived, raw, _), rows in off.items():
        others = f" and {len(rows) - 1} other run{'s' if len(rows) > 2 else ''}" if len(rows) > 1 else ""
        yield Finding(
            NAME, IMPOSSIBLE, rows[0].source, rows[0].line, name_row(rows[0]) + others, derived,
            rows[0].extra[derived].text, f"{rows[0].extra[raw].text} ({raw})",
            "the record was edited, or what wrote it counts otherwise",
        )  # fmt: skip
