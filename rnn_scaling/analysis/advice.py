"""What a search for settings found, as data: statements, the command to use, a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.statements import Statement

Cell = str | int | float | Interval | None


@dataclasses.dataclass(frozen=True)
class Advice:
    """The result of a search.

    Attributes:
      name: of its files, "recommend".
      schema: of its JSON.
      command: trains with the settings that were found; "": nothing was found.
      columns: title -> decimals at most.
      data: further fields of the JSON.
    """

    name: str
    schema: str
    statements: Sequence[Statement]
    command: str
    columns: Mapping[str, int]
    rows: Sequence[Sequence[Cell]]
    data: Mapping[str, Any]
