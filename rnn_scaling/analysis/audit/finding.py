"""What the audit reports: places in a table, what would fit there, by which relation."""

import dataclasses

IMPOSSIBLE = (
    "impossible"  # contradicts other numbers of the table by more than their rounding
)
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
    # "number", "one-of", "exchange", "column", "swapped-headings", "record", or a kind
    # of patterns.py or limits.py
    kind: str
    strength: str
    source: str
    places: tuple[
        Place, ...
    ]  # the cells that are wrong; of "one-of" each mends all by itself
    relation: str  # the formula that does not hold
    bits: float = 0.0  # evidence for the relation in this table
    excerpt: tuple[
        tuple[int, tuple[str, ...]], ...
    ] = ()  # (line, texts) of the header and some rows and columns
