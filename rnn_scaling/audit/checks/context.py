"""What a check sees beside its table, and the names of lines in its findings."""

from __future__ import annotations

import dataclasses

from rnn_scaling.audit import verdicts
from rnn_scaling.audit.scaling_table import GridRow, ScalingTable
from rnn_scaling.audit.verdicts import Verdict


@dataclasses.dataclass(frozen=True)
class Context:
    """previous: the table before this one in the same file; items_per_sample: words a sentence pair, where known."""

    previous: ScalingTable | None = None
    items_per_sample: float | None = None
    _known: dict[int, list[Verdict]] = dataclasses.field(default_factory=dict, repr=False)

    def verdicts(self, table: ScalingTable) -> list[Verdict]:
        """What each series of the table says of itself; made once, several checks read it."""
        if id(table) not in self._known:
            self._known[id(table)] = list(verdicts.verdicts(table.rows))
        return self._known[id(table)]


def name_line(table: ScalingTable, line: GridRow) -> str:
    """A line of a table by its first cell, or its first two where the first repeats."""
    first = line.texts[0] if line.texts else ""
    if not first:
        return f"line {line.line}"
    repeated = sum(row.texts[0] == first for row in table.grid[:1000]) > 1 and len(line.texts) > 1
    column = table.columns[0]
    return ", ".join([f"{column} {first}", *([f"{table.columns[1]} {line.texts[1]}"] if repeated else [])])
