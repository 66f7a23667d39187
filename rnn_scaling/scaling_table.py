"""The rows that every parser and importer makes and every check reads: one point of a scaling measurement each.

A number is a `Cell`: its value and how many decimals were printed, so that a check knows between which bounds the
unrounded number lay. A value within those bounds is never a fault.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping

# A relative slack for the arithmetic itself: records keep 17 digits, and their sums are not exact either.
FLOAT_SLACK = 1e-9

_MULTIPLIERS = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9}
_THING = (
    r"(?:word|token|image|img|sample|example|sequence|seq|sentence|pair|item|record|step|batch|batche|iteration|it"
    r"|epoch)s?"
)
_UNIT = (  # a closed list: "7gforce" and "4x4" are names
    rf"%|[xX×]|n?s|[mµμu]s|secs?|seconds?|mins?|minutes?|h|hours?|[KkMGT]?i?B(?:/s(?:ec)?)?|[MG]Hz|W|J"
    rf"|(?:GPU|CPU|device|worker|node|card|core|tower|replica)s?|{_THING}(?:\s?(?:/|per)\s?(?:s|secs?|second))?"
    r"|[A-Za-z]{0,12}\s?/\s?(?:s|sec|second)"
)
_NUMBER = re.compile(
    rf"""[~≈]?\s*[$€]?\s*
    (?P<number>[-+−]?(?:\d{{1,3}}(?:[,' \u2009\u202f_]\d{{3}})+|\d+)(?:\.\d*)?|[-+−]?\.\d+)
    (?P<exponent>[eE][-+]?\d+)?
    \s*(?P<multiplier>[kKMG](?![A-Za-z]))?
    \s*(?P<unit>{_UNIT})?""",
    re.VERBOSE,
)
_PLAIN = re.compile(r"-?\d{1,18}(?:\.\d{0,18})?", re.ASCII)
_MARKS = re.compile(r"[<*`_]|\s\s|[^\S ]")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One number as printed.

    value: in the unit of its column; "88 %" is 0.88.
    digits: decimals of `value` that were printed, negative where the last printed digit is tens ("55k": -3).
    text: what stands in the source.
    unit: what follows the number in the cell ("%", "x", "s", ...), "" for none.
    """

    value: float
    digits: int
    text: str
    unit: str = ""

    @property
    def half_ulp(self) -> float:
        """Half a unit of the last printed digit, and the slack of floating point."""
        return 0.5 * 10.0**-self.digits + abs(self.value) * FLOAT_SLACK

    @property
    def low(self) -> float:
        """The smallest number that prints as this cell."""
        return self.value - self.half_ulp

    @property
    def high(self) -> float:
        """The largest number that prints as this cell."""
        return self.value + self.half_ulp


@dataclasses.dataclass(frozen=True)
class ScalingRow:
    """One measured point. What the source does not say is None.

    source: file or stream that it comes from, as the user named it.
    line: line in the source, from 1; 0 where lines mean nothing.
    series: what points that may be compared share (machine, model, mode, ...); "" when there is only one.
    devices: devices, workers or GPUs together.
    batch_size: samples a device a step; global_batch_size: of all devices together.
    batches: steps that `seconds` covers; work: items (words, images) that it covers.
    rate: items a second, in `rate_unit` ("words/s", "images/s", ...).
    speedup: against one device; efficiency: speedup / devices, as a fraction.
    extra: numbers of columns that have no field here, by column name.
    """

    source: str
    line: int
    series: str = ""
    devices: int | None = None
    batch_size: Cell | None = None
    global_batch_size: Cell | None = None
    batches: Cell | None = None
    seconds: Cell | None = None
    rate: Cell | None = None
    rate_unit: str = ""
    speedup: Cell | None = None
    efficiency: Cell | None = None
    work: Cell | None = None
    extra: Mapping[str, Cell] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class GridRow:
    """One line of a table as it stands: its texts, and the number of each (None where there is none)."""

    line: int
    texts: tuple[str, ...]
    cells: tuple[Cell | None, ...]


@dataclasses.dataclass(frozen=True)
class ScalingTable:
    """One table.

    source, line: the file and the line of its header; title: the heading above it, "" for none.
    columns: header texts, unique.
    rows: its points; empty when no column says devices, rate, speedup or the like.
    grid: the lines as they stand, one cell a column; empty for sources that are not tables.
    notes: what was not understood or left out, one sentence each.
    roles: column -> the ScalingRow field that it was read as; columns that are not in it went to `extra`.
    """

    source: str
    line: int
    title: str
    columns: tuple[str, ...]
    rows: tuple[ScalingRow, ...]
    grid: tuple[GridRow, ...] = ()
    notes: tuple[str, ...] = ()
    roles: Mapping[str, str] = dataclasses.field(default_factory=dict)


def parse_cell(text: str) -> Cell | None:
    """The number that a cell prints; None when it prints none ("n/a", "", "error", "0,1", "inf").

    Understands bold and code marks, thousands separators, signs, exponents, k/M/G and a unit behind the number;
    per cent becomes a fraction.

    >>> parse_cell("**88 %**").value
    0.88
    """
    bare = strip_marks(text)
    if _PLAIN.fullmatch(bare):  # most cells
        return Cell(float(bare), len(bare.partition(".")[2]), bare)
    match = _NUMBER.fullmatch(bare) if bare and len(bare) < 80 else None
    if match is None:
        return None
    number = re.sub(r"[,' \u2009\u202f_]", "", match["number"]).replace("−", "-")
    shift = int(match["exponent"][1:]) if match["exponent"] else 0
    shift += _MULTIPLIERS[match["multiplier"] or ""]
    unit = (match["unit"] or "").strip()
    if unit == "%":
        shift -= 2
    if abs(shift) > 300:
        return None
    value = float(f"{number}e{shift}")
    digits = len(number.partition(".")[2]) - shift
    return Cell(value, digits, bare, unit) if math.isfinite(value) else None


def strip_marks(text: str) -> str:
    """A cell without Markdown's emphasis, code marks, line breaks and footnote marks."""
    text = text.strip()
    if not _MARKS.search(text):
        return text
    text = re.sub(r"<br\s*/?>", " ", text)
    text = re.sub(r"</?(?:b|i|em|strong|code|sup|sub|del)>", "", text)
    return re.sub(r"\s+", " ", re.sub(r"\*+|`|(?<![A-Za-z0-9])_+|_+(?![A-Za-z0-9])", "", text)).strip()


def exact(value: float, text: str = "") -> Cell:
    """The cell of a number that was not rounded for print, as in JSON: every decimal that it has counts."""
    if float(value).is_integer() and abs(value) < 1e15:
        return Cell(float(value), 9, text or str(int(value)))
    shown = repr(float(value))
    mantissa, _, exponent = shown.partition("e")
    return Cell(float(value), len(mantissa.partition(".")[2]) - int(exponent or 0), text or shown)
