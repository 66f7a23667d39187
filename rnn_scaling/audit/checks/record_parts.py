"""Our run records: what is derived in them against the raw values beside it."""

from __future__ import annotations

from collections.abc import Iterator

from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import IMPOSSIBLE, Finding, name_row
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import ScalingTable
from rnn_scaling.audit.tables.records import EQUAL

NAME = "record_parts"


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each derived number that its raw values do not give; None for each that they do."""
    for row in table.rows:
        for derived, raw in EQUAL:
            stands, expected = row.extra.get(derived), row.extra.get(raw)
            if stands is None or expected is None:
                continue
            if Bounds(stands.low, stands.high).meets(Bounds(expected.low, expected.high)):
                yield None
            else:
                yield Finding(
                    NAME, IMPOSSIBLE, row.source, row.line, name_row(row), derived, stands.text,
                    f"{expected.text} ({raw})", "the record was edited, or what wrote it counts otherwise",
                )  # fmt: skip
