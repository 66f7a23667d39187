"""What a check sees beside its table: the one before it, what its series say of themselves, which columns are near."""

from __future__ import annotations

import dataclasses
import re

from rnn_scaling.audit import verdicts, whole_columns, work_model
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import GridRow, ScalingTable
from rnn_scaling.audit.verdicts import Verdict
from rnn_scaling.audit.whole_columns import WrongColumn
from rnn_scaling.audit.work_model import Timed, WorkModel

MANY_COLUMNS = 256  # of which the work for one column must not grow with the width
_AROUND = 32
_SUMMARY = re.compile(
    r"average|mean|median|\bavg|total|\bsum|overall|\ball\b|best|worst|\bmin\b|\bmax\b|range", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True)
class Judged:
    """One series: its verdict, the columns that are wrong as such, honest readings in words, and what they leave."""

    verdict: Verdict
    columns: list[WrongColumn]
    readings: list[str]
    rest: Verdict


@dataclasses.dataclass(frozen=True)
class Works:
    """Items a sample by rate x seconds of one table's rows."""

    table: ScalingTable
    items: list[tuple[Timed, Bounds]]


@dataclasses.dataclass(frozen=True)
class Context:
    """previous: the table before this one in the same file; items_per_sample: words a sentence pair, where known.

    works: what the tables of the file so far say of rate x seconds; each adds its own.
    """

    previous: ScalingTable | None = None
    items_per_sample: float | None = None
    works: list[Works] = dataclasses.field(default_factory=list)
    _known: dict[int, list[Judged]] = dataclasses.field(default_factory=dict, repr=False)
    _models: dict[int, list[WorkModel]] = dataclasses.field(default_factory=dict, repr=False)

    def judged(self, table: ScalingTable) -> list[Judged]:
        """What each series of the table says of itself; made once, several checks read it."""
        if id(table) not in self._known:
            made = [(verdict, *whole_columns.examine(table, verdict)) for verdict in verdicts.verdicts(table.rows)]
            self._known[id(table)] = [Judged(*each) for each in made]
        return self._known[id(table)]

    def models(self, table: ScalingTable) -> list[WorkModel]:
        """What the rows of the table agree on; made once, too."""
        if id(table) not in self._models:
            self._models[id(table)] = work_model.models(table.rows)
        return self._models[id(table)]


def near(table: ScalingTable, k: int) -> range:
    """The columns that one may be compared with: all of them, of a table of many the ones around it."""
    width = len(table.columns)
    return range(width) if width <= MANY_COLUMNS else range(max(0, k - _AROUND), min(width, k + _AROUND))


def is_summary(line: GridRow) -> bool:
    """Whether a line sums up the others: its ratio may be the mean of theirs."""
    return bool(line.texts and _SUMMARY.search(line.texts[0]))
