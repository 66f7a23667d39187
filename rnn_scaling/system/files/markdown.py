"""Tables as data, and their cells in Markdown and in CSV."""

import dataclasses
import re
from collections.abc import Sequence

from rnn_scaling.system import entry

Value = str | int | float | None
# What a spreadsheet takes for the beginning of a formula (OWASP, "CSV Injection"); the full-width signs as well.
_FORMULA = re.compile(r"\s*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that is no scaling measurement: column headers carry units, None is an empty cell."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def column(self, name: str) -> tuple[Value, ...]:
        return tuple(row[self.columns.index(name)] for row in self.rows)


def markdown_table(
    head: Sequence[str], rows: Sequence[Sequence[Value]], padded: bool = True
) -> str:
    """A Markdown table; None is shown as "n/a", a number with 6 digits, a text whatever is in it."""
    cells = [[shown(value) for value in row] for row in (head, *rows)]
    if not padded:
        return "".join(
            f"| {' | '.join(row)} |\n"
            for row in (cells[0], ["---"] * len(head), *cells[1:])
        )
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = [
        "| "
        + " | ".join(text.ljust(width) for text, width in zip(cells[0], widths))
        + " |"
    ]
    lines.append("|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    lines += [
        "| " + " | ".join(text.rjust(width) for text, width in zip(row, widths)) + " |"
        for row in cells[1:]
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text without HTML, links and addresses, as Markdown; what is escaped already stays as it is."""
    text = re.sub(r"\](?=[(:])", "]\\\\", text)
    return re.sub(r":(?=//)", "&#58;", re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text))


def shown(value: Value) -> str:
    """A value as the text of a cell, without what ends a cell or a line, or drives a terminal."""
    if value is None:
        return "n/a"
    if isinstance(value, float):
        return (
            f"{value:.0f}"
            if value.is_integer() and abs(value) < 1e16
            else f"{value:.6g}"
        )
    return escaped(entry.printable(str(value))).replace("|", "\\|")


def csv_cell(value: object) -> object:
    """A value as a cell: nothing for None, numbers as they are, texts without control characters and formulas.

    >>> csv_cell("=1+1"), csv_cell("-3.5e2"), csv_cell(None)
    ("'=1+1", '-3.5e2', '')
    """
    if value is None or value == "":
        return ""
    if isinstance(value, (int, float)):
        return value
    text = str(value)
    is_formula = bool(_FORMULA.match(text)) and not _NUMBER.fullmatch(text)
    return ("'" if is_formula else "") + entry.printable(text)
