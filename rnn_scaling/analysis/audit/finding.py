"""Findings: wrong cells of a table, the numbers that fit, and the broken relation.

Programs of users read findings as JSON: never rename a field.
"""

import dataclasses

# The numbers contradict each other by more than their rounding.
IMPOSSIBLE = "impossible"
# A number is possible but unusual, or the relation is not certain.
UNLIKELY = "unlikely"


@dataclasses.dataclass(frozen=True)
class Place:
    """A cell."""

    line: int
    row: str
    column: str
    printed: str
    low: float  # bounds of the right number, in the unit of the cell
    high: float
    hint: str = ""  # the kind of slip that it may be


@dataclasses.dataclass(frozen=True)
class Finding:
    """Cells that contradict others."""

    # "number", "one-of", "column", "swapped-headings", "record", or a kind of limits.py
    kind: str
    strength: str
    source: str
    places: tuple[Place, ...]  # repairing any place of "one-of" suffices
    relation: str  # the formula that does not hold
    bits: float = 0.0  # evidence for the relation in this table
    # (line, texts) of the header and some rows and columns
    excerpt: tuple[tuple[int, tuple[str, ...]], ...] = ()
