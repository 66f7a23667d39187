"""What the audit reports: places in a table, what would fit there, by which relation."""

import dataclasses

IMPOSSIBLE = "impossible"  # contradicts other numbers of the table by more than their rounding
UNLIKELY = "unlikely"  # possible, but out of line, or the relation is not certain


@dataclasses.dataclass(frozen=True)
class Place:
    """A cell. printed: its text; low, high: bounds of what fits, in its unit; hint: what kind of slip it may be."""

    line: int
    row: str
    column: str
    printed: str
    low: float
    high: float
    hint: str = ""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One fault.

    kind: "number", "one-of", "exchange", "numbers", "column", "superlinear", "below", "copy" or "record".
    places: the cells that are wrong; of "one-of" each mends all by itself. relation: the formula that does not hold.
    bits: evidence for the relation in this table. excerpt: (line, texts) of the header and some rows of the table, of
    the columns that the relation connects.
    """

    kind: str
    strength: str
    source: str
    places: tuple[Place, ...]
    relation: str
    bits: float = 0.0
    excerpt: tuple[tuple[int, tuple[str, ...]], ...] = ()
