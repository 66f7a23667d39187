"""What holds of a report, a comparison or a check, as data that `reports/wording.py` turns into sentences."""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval


class Word(str, enum.Enum):
    """An enum whose values are texts in JSON."""

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return repr(self.value)


@dataclasses.dataclass(frozen=True)
class Statement:
    kind: str  # key of its template, as "fastest"; a different case is a different kind
    subject: str = ""  # what it is about, as the title of a series or the name of a check; "" is the whole report
    # Plain JSON data: strings, numbers, booleans, None, and lists and dictionaries of them.
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """The statement as JSON: `{"kind": ..., "subject": ..., "values": {...}}`."""
        return {"kind": self.kind, "subject": self.subject, "values": dict(self.values)}


def interval_values(interval: Interval) -> dict[str, Any]:
    """An interval as a value of a statement; `low` and `high` are None where the data cannot give them."""
    fields = ("value", "low", "high", "spread", "is_wide")
    return {field: getattr(interval, field) for field in fields}


Cell = str | int | float | Interval | None


@dataclasses.dataclass(frozen=True)
class Advice:
    """What a search for settings found."""

    name: str  # of its files
    schema: str
    statements: Sequence[Statement]
    command: str  # trains with the settings that were found, "": none
    columns: Mapping[str, int]  # title -> decimals at most
    rows: Sequence[Sequence[Cell]]
    data: Mapping[str, Any]  # further fields of the JSON
