"""What the audit reports: places in a table, what would fit there, by which relation."""

import dataclasses

# Contradicts other numbers of the table by more than their rounding.
IMPOSSIBLE = "impossible"
UNLIKELY = "unlikely"  # possible, but out of line, or the relation is not certain


@dataclasses.dataclass(frozen=True)
class Place:
    """A cell."""

    line: int
    row: str
    column: str
    printed: str
    low: float  # bounds of what fits, in the unit of the cell
    high: float
    hint: str = ""  # what kind of slip it may be


@dataclasses.dataclass(frozen=True)
class Finding:
    """Cells that contradict others."""

    # "number", "one-of", "exchange", "column", "swapped-headings", "record", a pattern
    # of readings.py, or a kind of limits.py
    kind: str
    strength: str
    source: str
    places: tuple[Place, ...]  # of "one-of" each repairs the fault by itself
    relation: str  # the formula that does not hold
    bits: float = 0.0  # evidence for the relation in this table
    # (line, texts) of the header and some rows and columns
    excerpt: tuple[tuple[int, tuple[str, ...]], ...] = ()
