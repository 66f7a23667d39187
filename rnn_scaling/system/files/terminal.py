"""What a person sees while and after something runs: a bar, and tables that fit the terminal's width.

Elsewhere, in a pipe or a file, there are plain lines instead of the bar, and tables stay Markdown.
"""

import contextlib
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
DEFAULT_COLUMNS = 80
_GAP = 2  # between columns
_ESCAPES = {
    "&lt;": "<",
    "&#58;": ":",
    "\\": "",
}  # of Markdown, which a terminal does not render
_ESCAPED = re.compile(r"&lt;|&#58;|(?<=\])\\(?=[(:])")
_CELL_END = re.compile(r"(?<!\\)\|")


def tell(text: str, stream: TextIO | None = None) -> None:
    """Print a text with Markdown tables.

    On a terminal, tables are drawn to fit its width and long lines of prose are
    wrapped. In a pipe or a file the text is unchanged.
    """
    stream = stream or sys.stdout
    stream.write(_fitted(text, columns_of(stream)) if stream.isatty() else text)
    stream.flush()


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, as in "1 run" and "3 runs".

    Args:
      count: How many.
      noun: The singular, or "process|processes" if the plural is irregular.
    """
    singular, _, plural = noun.partition("|")
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def columns_of(stream: TextIO) -> int:
    """Return the width of the terminal behind a stream.

    `shutil.get_terminal_size` asks the stream that the interpreter opened. Every
    command replaces that stream (see entry.py), so its size cannot be read any more.

    Returns:
      COLUMNS if it is a positive number, else the columns of the terminal; 80 if
      the stream is not a terminal, or the terminal does not report its size.
    """
    stated = os.environ.get("COLUMNS", "")
    if stated.isascii() and stated.isdigit() and int(stated[:9]) > 0:
        return int(stated[:9])
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_COLUMNS
    except (OSError, ValueError):
        return DEFAULT_COLUMNS


def three_digits(value: float) -> str:
    """A number with three significant digits, and all digits before the point: "2.40", "14,342"."""
    shown = float(f"{value:.3g}") if math.isfinite(value) else 0.0
    decimals = max(0, 2 - math.floor(math.log10(abs(shown)))) if shown else 0
    return f"{value:,.{decimals}f}"


def _fitted(text: str, width: int) -> str:
    parts: list[str] = []
    text = _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text)
    for is_table, group in itertools.groupby(
        text.split("\n"), key=lambda line: line.startswith("|")
    ):
        lines = list(group)
        parts += (
            _drawn(lines, width)
            if is_table
            else [piece for line in lines for piece in _wrapped(line, width)]
        )
    return "\n".join(parts)


def _drawn(lines: Sequence[str], width: int) -> list[str]:
    """A Markdown table's lines for a terminal: heads and texts are broken between words, numbers never.

    Columns that find no room follow below, behind the first one again.
    """
    cells = (
        [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(line)[1:-1]]
        for line in lines
    )
    head, _, *rows = cells
    columns = list(zip(head, *rows))
    fewest = [
        max(len(part) for cell in column for part in _parts(cell)) for column in columns
    ]
    drawn: list[str] = []
    while columns:
        fitting = [
            fewest[0] + sum(n + _GAP for n in fewest[1 : last + 1]) <= width
            for last in range(len(columns))
        ]
        taken = max(2, sum(fitting))
        drawn += [
            *([""] if drawn else []),
            *_block(columns[:taken], fewest[:taken], width),
        ]
        columns = [columns[0], *columns[taken:]]
        fewest = [fewest[0], *fewest[taken:]]
        if len(columns) == 1:
            break
    return drawn


def _block(
    columns: Sequence[Sequence[str]], fewest: Sequence[int], width: int
) -> list[str]:
    """Some columns, each with its head first, as lines; `fewest`: letters that each needs at least."""
    widths = [max(map(len, column)) for column in columns]
    whole = [
        max(map(len, [*column[1:], *_parts(column[0])])) for column in columns
    ]  # only the head is broken
    for limits in (whole, fewest):
        while sum(widths) + _GAP * (len(widths) - 1) > width and widths != list(limits):
            widths[max(range(len(widths)), key=lambda i: widths[i] - limits[i])] -= 1
    to_right = [
        all(_is_number(cell) or cell in ("", "n/a", "-") for cell in column[1:])
        for column in columns
    ]
    head, *rows = (
        _row(row, widths, to_right, at_end=k == 0)
        for k, row in enumerate(zip(*columns))
    )
    rule = "\N{BOX DRAWINGS LIGHT HORIZONTAL}" * (
        sum(widths) + _GAP * (len(widths) - 1)
    )
    return [*head, rule, *itertools.chain.from_iterable(rows)]


def _row(
    cells: Sequence[str],
    widths: Sequence[int],
    to_right: Sequence[bool],
    *,
    at_end: bool,
) -> list[str]:
    broken = [
        textwrap.wrap(cell, n, break_on_hyphens=False) or [""]
        for cell, n in zip(cells, widths)
    ]
    height = max(map(len, broken))
    filled = [
        [""] * (height - len(part)) + part
        if at_end
        else part + [""] * (height - len(part))
        for part in broken
    ]
    return [
        (" " * _GAP)
        .join(
            f"{text:{'>' if right else '<'}{n}}"
            for text, n, right in zip(line, widths, to_right)
        )
        .rstrip()
        for line in zip(*filled)
    ]


def _parts(cell: str) -> list[str]:
    """What a cell may be broken into."""
    return [cell] if _is_number(cell) else cell.split() or [""]


def _is_number(cell: str) -> bool:
    """Whether a cell is a number with what belongs to it, as "26,100 ± 800"."""
    return (
        cell[:1].isdigit()
        or cell[:1] in "+-~["
        and any(letter.isdigit() for letter in cell)
    )


def _wrapped(line: str, width: int) -> list[str]:
    """A line of prose in pieces; what is indented, as a command to be pasted, stays whole."""
    if len(line) <= width or line.startswith((" ", "\t")):
        return [line]
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)


class Board:
    """A bar where the stream is a terminal, else plain lines; nothing at all where it is switched off."""

    def __init__(
        self,
        total: int,
        layout: str,
        *,
        enabled: bool = True,
        stream: TextIO | None = None,
        **options: Any,
    ) -> None:
        """`total` is what the bar counts to; with 0 there is no bar. `stream` is sys.stderr by default."""
        self._stream = stream or sys.stderr
        self._enabled = enabled
        self._bar = None
        if enabled and total and self._stream.isatty():
            with contextlib.suppress(
                ImportError
            ):  # an environment of another framework has none
                from tqdm import (
                    tqdm,
                )  # here, so that runs without a terminal do not load it

                self._bar = tqdm(
                    total=total, bar_format=layout, file=self._stream, **options
                )

    @property
    def has_bar(self) -> bool:
        return self._bar is not None

    @property
    def columns(self) -> int:
        """The width of the terminal that is written to."""
        return columns_of(self._stream)

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
        """Moves the bar, if there is one, to a position of `total`; what is None stays as it is.

        Without `redraw` it is drawn ten times a second at most, for calls that cost time.
        """
        if self._bar is None:
            return
        if description is not None:
            self._bar.set_description_str(description, refresh=False)
        if postfix is not None:
            self._bar.set_postfix_str(postfix, refresh=False)
        moved = 0 if position is None else position - self._bar.n
        if redraw:
            self._bar.n += moved
            self._bar.refresh()
        else:
            self._bar.update(moved)

    def line(self, text: str) -> None:
        """Prints a line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        elif self._enabled:
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
