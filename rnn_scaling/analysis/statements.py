"""Facts about a report, a comparison or a check.

`reports/wording.py` turns statements into sentences.

A new kind of statement needs a template with the same name.
"""

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
    """A fact.

    Attributes:
      kind: Key of the template, such as "fastest". Each case has its own kind.
      subject: The title of a series, the name of a check, or "" for the whole report.
      values: Plain JSON data: strings, numbers, booleans, None, and lists and
        dictionaries of them.
    """

    kind: str
    subject: str = ""
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """Return the statement for JSON."""
        return {"kind": self.kind, "subject": self.subject, "values": dict(self.values)}


def list_interval_values(interval: Interval) -> dict[str, Any]:
    """Return an interval as a value of a statement; its ends may be None."""
    fields = ("value", "low", "high", "spread", "is_wide")
    return {field: getattr(interval, field) for field in fields}


def state(kind: str, subject: str = "", /, **values: Any) -> Statement:
    """Return a statement; intervals among its values become data."""
    data = {}
    for name, value in values.items():
        data[name] = (
            list_interval_values(value) if isinstance(value, Interval) else value
        )
    return Statement(kind, subject, data)


Cell = str | int | float | Interval | None


@dataclasses.dataclass(frozen=True)
class Advice:
    """The result of a search for settings.

    Attributes:
      name: Name of its files.
      command: Trains with the settings that were found; "" if none were found.
      columns: Title -> most decimals.
      data: Further fields of the JSON.
    """

    name: str
    schema: str
    statements: Sequence[Statement]
    command: str
    columns: Mapping[str, int]
    rows: Sequence[Sequence[Cell]]
    data: Mapping[str, Any]
