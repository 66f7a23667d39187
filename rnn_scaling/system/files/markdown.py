"""Tables as data, and their cells in Markdown and in CSV.

Importers, links and traces make a `Table`; whoever prints it chooses the form.
"""

import dataclasses
import re
from collections.abc import Sequence

from rnn_scaling.system import entry

Value = str | int | float | None
# Spreadsheets take these for the beginning of a formula, full-width signs included
# (OWASP, "CSV Injection").
_FORMULA = re.compile(r"\s*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of values: column headers have units, and None is an empty cell."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def list_column(self, name: str) -> tuple[Value, ...]:
        return tuple(row[self.columns.index(name)] for row in self.rows)


def format_table(
    head: Sequence[str], rows: Sequence[Sequence[Value]], padded: bool = True
) -> str:
    """Return a Markdown table.

    Args:
      head: The column headers.
      rows: The values; None is shown as "n/a", a number with 6 digits.
      padded: Whether all cells of a column have the same width.
    """
    cells = [list(map(format_cell, row)) for row in (head, *rows)]
    if not padded:
        lines = [cells[0], ["---"] * len(head), *cells[1:]]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)
    widths = [max(map(len, column)) for column in zip(*cells)]
    first = " | ".join(map(str.ljust, cells[0], widths))
    rule = "|".join("-" * (width + 1) + ":" for width in widths)
    text = f"| {first} |\n|{rule}|\n"
    for row in cells[1:]:
        text += f"| {' | '.join(map(str.rjust, row, widths))} |\n"
    return text


def escape(text: str) -> str:
    """Escape HTML, links and addresses in Markdown; existing escapes do not change."""
    text = re.sub(r"\](?=[(:])", "]\\\\", text)
    return re.sub(r":(?=//)", "&#58;", re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text))


def format_cell(value: Value) -> str:
    """Return a value as the text of a cell, without terminal controls or cell ends."""
    if value is None:
        return "n/a"
    if isinstance(value, float):
        is_whole = value.is_integer() and abs(value) < 1e16
        return f"{value:.0f}" if is_whole else f"{value:.6g}"
    return escape(entry.make_printable(str(value))).replace("|", "\\|")


def format_csv_cell(value: object) -> object:
    """Return a value as a cell of CSV, without control characters and formulas.

    >>> csv_cell("=1+1"), csv_cell("-3.5e2"), csv_cell(None)
    ("'=1+1", '-3.5e2', '')
    """
    if value is None or value == "":
        return ""
    if isinstance(value, (int, float)):
        return value
    text = str(value)
    is_formula = bool(_FORMULA.match(text)) and not _NUMBER.fullmatch(text)
    return ("'" if is_formula else "") + entry.make_printable(text)
