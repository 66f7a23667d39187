"""A progress bar, and tables that fit the width of the terminal.

In a pipe or a file there are plain lines instead of the bar, and tables stay Markdown.

Commands print all text for people with `print_fitted`.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

# The environment variable by which a sweep asks a user's program for lines of progress.
PROGRESS = "RNN_SCALING_PROGRESS"
# The variable with the path of the record that a sweep reads.
RESULT_VARIABLE = "RNN_SCALING_RESULT_FILE"
DEFAULT_COLUMNS = 80
_GAP = 2  # between columns
# Escapes of Markdown, which a terminal does not render.
_ESCAPES = {"&lt;": "<", "&#58;": ":", "\\": ""}
_ESCAPED = re.compile(r"&lt;|&#58;|(?<=\])\\(?=[(:])")
_COMMAND = re.compile(r"`[^`]+`")
_CELL_END = re.compile(r"(?<!\\)\|")


def print_fitted(text: str, stream: TextIO | None = None) -> None:
    """Print a text with Markdown tables.

    On a terminal, tables are drawn to fit its width and long lines of prose are
    wrapped. In a pipe or a file the text is unchanged.
    """
    stream = stream or sys.stdout
    stream.write(_fit_to_width(text, find_width(stream)) if stream.isatty() else text)
    stream.flush()


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun, as in "1 run" and "3 runs".

    Args:
      count: The number.
      noun: The singular, or "process|processes" if the plural is irregular.
    """
    singular, _, plural = noun.partition("|")
    if count == 1:
        return f"1 {singular}"
    return f"{count:,} {plural or singular + 's'}"


def find_width(stream: TextIO) -> int:
    """Return the width of the terminal behind a stream.

    `shutil.get_terminal_size` cannot be used: it asks the stream that the interpreter
    opened, and every command replaces that stream (see entry.py).

    Returns:
      COLUMNS if it is a positive number, else the columns of the terminal; 80 if
      the stream is not a terminal, or the terminal does not report its size.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns[:9]) > 0:
        return int(columns[:9])
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_COLUMNS
    except (OSError, ValueError):
        return DEFAULT_COLUMNS


def format_three_digits(value: float) -> str:
    """Format a number with at least three significant digits: "2.40", "14,342"."""
    rounded = float(f"{value:.3g}") if math.isfinite(value) else 0.0
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded)))) if rounded else 0
    return f"{value:,.{decimals}f}"


def format_bytes(num_bytes: float) -> str:
    """Return bytes as text: "0", "512 B", "31.2 KiB", "8.25 MiB"."""
    if num_bytes < 1024:
        return f"{num_bytes:.0f} B" if num_bytes else "0"
    for unit in ("KiB", "MiB"):
        num_bytes /= 1024
        if num_bytes < 1024:
            digits = ".3g" if num_bytes < 999.5 else ".0f"
            return f"{num_bytes:{digits}} {unit}"
    return f"{num_bytes / 1024:.3g} GiB"


def _fit_to_width(text: str, width: int) -> str:
    """Draw the tables of a text for a width, and wrap its other lines."""
    text = _ESCAPED.sub(lambda match: _ESCAPES[match[0]], text)
    fitted: list[str] = []
    groups = itertools.groupby(text.split("\n"), key=lambda line: line.startswith("|"))
    for is_table, lines in groups:
        if is_table:
            fitted += _draw_table(list(lines), width)
        else:
            for line in lines:
                fitted += _wrap(line, width)
    return "\n".join(fitted)


@dataclasses.dataclass(frozen=True)
class _Column:
    """A column of a table; its first cell is the head.

    Attributes:
      cells: The texts.
      min_width: The width of the longest piece that cannot be broken.
      unbroken_width: The width at which only the head is broken.
      is_right_aligned: Whether all cells below the head are numbers.
    """

    cells: tuple[str, ...]
    min_width: int
    unbroken_width: int
    is_right_aligned: bool


def _make_column(cells: tuple[str, ...]) -> _Column:
    """Return a column with the widths to which it can shrink."""
    head, *values = cells
    pieces: list[str] = []
    for cell in cells:
        pieces += _split_into_pieces(cell)
    return _Column(
        cells,
        min_width=max(map(len, pieces)),
        unbroken_width=max(map(len, [*values, *_split_into_pieces(head)])),
        is_right_aligned=all(
            cell in ("", "n/a", "-") or _is_number(cell) for cell in values
        ),
    )


def _draw_table(lines: Sequence[str], width: int) -> list[str]:
    """Return the lines of a Markdown table for a terminal.

    Heads and texts are broken between words, numbers never. Columns without room
    follow below, after the first column again.
    """
    rows = []
    for line in [lines[0], *lines[2:]]:
        cells = _CELL_END.split(line)[1:-1]
        rows.append([cell.strip().replace("\\|", "|") for cell in cells])
    columns = [_make_column(cells) for cells in zip(*rows)]
    drawn: list[str] = []
    while columns:
        # Take the columns that fit with their least widths, but at least two.
        count = 1
        used = columns[0].min_width
        for column in columns[1:]:
            used += _GAP + column.min_width
            if used > width and count > 1:
                break
            count += 1
        if drawn:
            drawn.append("")
        drawn += _draw_columns(columns[:count], width)
        if count >= len(columns):
            break
        columns = [columns[0], *columns[count:]]
    return drawn


def _draw_columns(columns: Sequence[_Column], width: int) -> list[str]:
    """Return the lines of these columns, made narrower until they fit if they can."""
    widths = [max(map(len, column.cells)) for column in columns]
    gaps = _GAP * (len(columns) - 1)
    # First only heads become narrower, then all cells.
    for limits in (
        [column.unbroken_width for column in columns],
        [column.min_width for column in columns],
    ):
        while sum(widths) + gaps > width and widths != limits:
            surplus = [now - limit for now, limit in zip(widths, limits)]
            widths[surplus.index(max(surplus))] -= 1
    lines: list[str] = []
    for number, cells in enumerate(zip(*(column.cells for column in columns))):
        lines += _draw_row(cells, widths, columns, is_head=number == 0)
        if number == 0:
            lines.append("\N{BOX DRAWINGS LIGHT HORIZONTAL}" * (sum(widths) + gaps))
    return lines


def _draw_row(
    cells: Sequence[str],
    widths: Sequence[int],
    columns: Sequence[_Column],
    *,
    is_head: bool,
) -> list[str]:
    """Return the lines of a row: heads end at the last line, values begin at the first."""
    wrapped = [
        textwrap.wrap(cell, width, break_on_hyphens=False) or [""]
        for cell, width in zip(cells, widths)
    ]
    height = max(map(len, wrapped))
    lines = []
    for number in range(height):
        texts = []
        for pieces, width, column in zip(wrapped, widths, columns):
            index = number - (height - len(pieces)) if is_head else number
            piece = pieces[index] if 0 <= index < len(pieces) else ""
            adjust = piece.rjust if column.is_right_aligned else piece.ljust
            texts.append(adjust(width))
        lines.append((" " * _GAP).join(texts).rstrip())
    return lines


def _split_into_pieces(cell: str) -> list[str]:
    """Return the pieces of a cell that cannot be broken."""
    return [cell] if _is_number(cell) else cell.split() or [""]


def _is_number(cell: str) -> bool:
    """Return whether a cell is a number with its interval or unit: "26,100 ± 800"."""
    return (
        cell[:1].isdigit()
        or cell[:1] in "+-~["
        and any(letter.isdigit() for letter in cell)
    )


def _wrap(line: str, width: int) -> list[str]:
    """Wrap a line of prose; an indented line, such as a command, stays unbroken.

    A number stays on a line with its interval and its %, and so does a command; a list
    has a hanging indent.
    """
    if len(line) <= width or line.startswith((" ", "\t")):
        return [line]
    unbroken = line.replace(" ± ", "\xa0±\xa0").replace(" %", "\xa0%")
    unbroken = _COMMAND.sub(lambda match: match[0].replace(" ", "\xa0"), unbroken)
    wrapped = textwrap.wrap(
        unbroken,
        width,
        subsequent_indent="  " if line.startswith("- ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [text.replace("\xa0", " ") for text in wrapped]


class Board:
    """A bar if the stream is a terminal, else plain lines; nothing if not enabled.

    Only one thread may use it.
    """

    def __init__(
        self,
        total: int,
        layout: str,
        *,
        enabled: bool = True,
        stream: TextIO | None = None,
        **options: Any,
    ) -> None:
        """Open a bar or a stream of lines.

        Args:
          total: The last position of the bar; with 0 there is no bar.
          layout: The format of the bar.
          enabled: Whether anything is printed.
          stream: Where to print; sys.stderr by default.
          **options: Further options of tqdm.
        """
        self._stream = stream or sys.stderr
        self._enabled = enabled
        self._bar = None
        if enabled and total and self._stream.isatty():
            # An environment of another framework has no tqdm. Runs without a terminal
            # do not load it.
            with contextlib.suppress(ImportError):
                from tqdm import tqdm

                self._bar = tqdm(
                    total=total, bar_format=layout, file=self._stream, **options
                )

    @property
    def has_bar(self) -> bool:
        """Whether there is a bar; else `move` does nothing."""
        return self._bar is not None

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        return find_width(self._stream)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the bar was opened; 0 without one."""
        return self._bar.format_dict["elapsed"] if self._bar is not None else 0.0

    def move(
        self,
        position: float | None = None,
        description: str | None = None,
        postfix: str | None = None,
        redraw: bool = True,
    ) -> None:
        """Move the bar, if there is one, to a position of `total`.

        Arguments that are None change nothing. Without `redraw` the bar is drawn at
        most ten times per second.
        """
        if self._bar is None:
            return
        if description is not None:
            self._bar.set_description_str(description, refresh=False)
        if postfix is not None:
            self._bar.set_postfix_str(postfix, refresh=False)
        progress = 0 if position is None else position - self._bar.n
        if redraw:
            self._bar.n += progress
            self._bar.refresh()
        else:
            self._bar.update(progress)

    def print_line(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        elif self._enabled:
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """End the bar; it stays visible unless `leave` is False."""
        if self._bar is not None:
            self._bar.close()
