"""The same many digits in two rows of other devices: one row was copied from the other."""

from __future__ import annotations

from collections.abc import Iterator

from rnn_scaling.audit import baselines
from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import UNLIKELY, Finding, name_row, of_row
from rnn_scaling.audit.having import DevicesAndRate, having
from rnn_scaling.audit.scaling_table import Cell, ScalingTable

NAME = "copies"
_DIGITS = 6  # equal by chance in one pair of a million; for rate and seconds together
_MAX_ROWS = 64  # in a long series equal digits do occur by chance


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each row whose rate and seconds are those of another number of devices."""
    for group in baselines.groups(table.rows):
        rows = having(group.rows, DevicesAndRate)
        if not 1 < len(rows) <= _MAX_ROWS:
            continue
        seen: dict[tuple[str, str], DevicesAndRate] = {}
        for row in rows:
            seconds = row.seconds.text if row.seconds else ""
            first = seen.setdefault((row.rate.text, seconds), row)
            enough = _significant(row.rate) + (_significant(row.seconds) if row.seconds else 0) >= _DIGITS
            if first.devices == row.devices or not enough:
                yield None
                continue
            expected = f"another number than in the row of {name_row(first)}"
            cause = f"every digit as in the row of {first.devices} devices: one of the two was copied"
            yield of_row(NAME, UNLIKELY, table, row, "rate", expected, cause)


def _significant(cell: Cell) -> int:
    """Digits that say something: not the zeros of a round number."""
    digits = "".join(c for c in cell.text if c.isdigit())
    return len(digits if "." in cell.text else digits.rstrip("0"))
