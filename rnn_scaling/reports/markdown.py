"""Tables as data, and as Markdown."""

from __future__ import annotations

import dataclasses

Value = str | int | float | None


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that is no scaling measurement: column headers carry units, None is an empty cell."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def column(self, name: str) -> tuple[Value, ...]:
        """One column."""
        return tuple(row[self.columns.index(name)] for row in self.rows)
