"""Find the quantities, units, names and numbers of devices of a table's columns.

`read` returns a table in up to three layouts:

1. Its own rows and columns:              | GPUs  | img/s |
                                          | 1     | 100   |
2. A row for every header with devices:   | model | 1 GPU | 4 GPUs |
                                          | VGG   | 100   | 380    |
3. A row for every column (transposed),   | GPUs  | 1     | 4      |
   if quantities are in rows:             | img/s | 100   | 380    |

`analysis.audit.checking` and `commands.prediction_tables` call `read`; `headers` has
the vocabulary of names and units. A further layout is a function that `read` calls.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from rnn_scaling.records import cell_numbers
from rnn_scaling.records.cell_numbers import PrintedNumber
from rnn_scaling.records.tables import headers
from rnn_scaling.records.tables.headers import (
    CHOSEN,
    DERIVED,
    FINEST_FIRST,
    IN_ROWS,
    Meaning,
    Quantity,
)
from rnn_scaling.records.tables.table import Table

_SAMPLED_ROWS = 1000  # rows that decide whether a column contains numbers
_MAX_COLUMNS = 64  # columns of a table that are compared with each other
_SEARCHED_ROWS = 60  # rows that are searched for numbers in brackets
# The median of a column of percentages is larger than this, and the median of a column
# of factors is not: an efficiency of "91" is 91 %, and "0.91" is a factor.
_MAX_FACTOR = 8
# The same for a header that contains "percent" or "%".
_MAX_FACTOR_BELOW_PERCENT = 3
_WALL_CLOCK = re.compile(r"\bwall\b|wall[-_ ]?clock|\belapsed\b|\breal\b")
_CPU = re.compile(r"\bcpu\b")
_COMPARED = re.compile(r"\b(?:vs|over|relative|than)\b")
# Prefix of this suite's columns with the rates before the correction.
_UNCORRECTED = "measured_"
_MARKS = re.compile(f"[{cell_numbers.CORRECTED_MARK}{cell_numbers.ALL_BATCHES_MARK}]")
_MIXABLE_UNITS = ("", "%", "x")  # a column may mix these with each other and its unit
_BRACKETS = re.compile(  # "12.1x" in "1446.3 (12.1x)"
    # Three repeats without bounds take cubic time in a cell of digits and commas.
    r"\d\S{0,24}(?:\s?[A-Za-zµ%/]{1,12})?\s?[(\[/,]\s?([^()\[\]]{1,30}?)\s?[)\]]?$"
)
Key = TypeVar("Key")


class CellPosition(NamedTuple):
    """The row and the column of a cell in its table.

    Row -1 is the header. Numbers in brackets have columns after the last one.
    """

    row: int
    column: int


class CellNumber(NamedTuple):
    """A number of a column."""

    number: PrintedNumber
    position: CellPosition
    low: float  # bounds in the unit of the column
    high: float
    scale: float = 1.0  # factor from the printed number to the unit of the column
    # Whether a report of this suite marked the number (†, ‡). It is corrected or
    # includes disturbed batches, unlike the rest of its row.
    is_marked: bool = False

    @property
    def value(self) -> float:
        """The printed number in the unit of the column."""
        return self.number.value * self.scale


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """The numbers below one header, which have one quantity."""

    name: str
    meaning: Meaning
    quantity: Quantity
    # Numbers times the factor are seconds, items per second, or fractions.
    factor: float
    items: tuple[CellNumber | None, ...]  # by row; None without a number

    @functools.cached_property
    def numbers(self) -> list[PrintedNumber]:
        """The printed numbers, without the empty rows."""
        return [item.number for item in self.items if item]

    @functools.cached_property
    def value_counts(self) -> collections.Counter[float]:
        """How often each value is printed."""
        return collections.Counter(number.value for number in self.numbers)

    @functools.cached_property
    def low(self) -> np.ndarray:
        """The lower bound of each row; NaN without a number."""
        return np.array([item.low if item else np.nan for item in self.items])

    @functools.cached_property
    def is_marked(self) -> np.ndarray:
        """By row, whether the number has a mark."""
        return np.array([item is not None and item.is_marked for item in self.items])

    @functools.cached_property
    def high(self) -> np.ndarray:
        """The upper bound of each row; NaN without a number."""
        return np.array([item.high if item else np.nan for item in self.items])

    @functools.cached_property
    def inner_range(self) -> float:
        """log(largest / smallest) of the positive numbers, at most 1.

        Of five or more numbers, the largest and the smallest one are ignored: they may
        be misprints.
        """
        values = sorted(item.value for item in self.items if item and item.value > 0)
        if not values:
            return 0.0
        if len(values) > 4:
            values = values[1:-1]
        return min(1.0, math.log(values[-1] / values[0]))

    @functools.cached_property
    def is_derived(self) -> bool:
        """Whether the header or the numbers show that it follows from other columns."""
        num_multiples = sum(number.unit == "x" for number in self.numbers)
        return self.quantity in DERIVED or num_multiples > 1

    @functools.cached_property
    def is_exact(self) -> bool:
        """Whether the column contains counts, which are not rounded."""
        return all(item.low == item.high for item in self.items if item)


class FoundCell(NamedTuple):
    """The place of a cell of the table in one layout."""

    column: Column
    row: int  # row of the layout
    item: CellNumber


@dataclasses.dataclass(frozen=True, eq=False)
class Measurements:
    """The numbers of a table by quantity, in one layout."""

    table: Table
    columns: tuple[Column, ...]
    labels: tuple[tuple[str, ...], ...]  # by row, the texts of the columns of names
    lines: tuple[int, ...]  # by row, the line of the document

    def find_columns(self, quantity: Quantity | str) -> list[int]:
        """Return the indices of the columns of a quantity."""
        return [
            index
            for index, column in enumerate(self.columns)
            if column.quantity == quantity
        ]

    @functools.cached_property
    def devices(self) -> Column | None:
        """The column of the numbers of devices."""
        indices = self.find_columns(Quantity.DEVICES)
        return self.columns[indices[0]] if indices else None

    @functools.cached_property
    def device_counts(self) -> np.ndarray:
        """The number of devices of each row; 1 if it is unknown."""
        low = self.devices.low if self.devices else np.ones(len(self.lines))
        return np.fmax(low, 1.0)

    @functools.cached_property
    def _cells(self) -> dict[CellPosition, FoundCell]:
        cells = {}
        for column in reversed(self.columns):  # so that the first column of a cell wins
            for row, item in enumerate(column.items):
                if item:
                    cells[item.position] = FoundCell(column, row, item)
        return cells

    def find(self, position: CellPosition) -> FoundCell:
        """Return the first column of this layout that contains a cell, and its row."""
        return self._cells[position]


def group_rows(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """Return the rows of each key, given the key of every row."""
    rows: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return rows


class _TextColumn(NamedTuple):
    """A column before its numbers are read."""

    title: str
    meaning: Meaning
    texts: Sequence[str]
    positions: Sequence[CellPosition]
    quantity: Quantity | None = None  # None if the header and the units decide it


def read(table: Table) -> list[Measurements]:
    """Return a table in each layout that has at least two columns of numbers."""
    layouts = [
        _read_own_layout(table),
        _read_layout_by_header(table),
        _read_transposed_layout(table),
    ]
    return [layout for layout in layouts if layout and len(layout.columns) > 1]


def _read_own_layout(table: Table) -> Measurements:
    columns = []
    for index, title in enumerate(table.header):
        texts = _list_texts(table, index)
        positions = [CellPosition(row, index) for row in range(len(texts))]
        column = _TextColumn(title, headers.read_header(title), texts, positions)
        bracketed_column = _find_bracketed_column(column, len(table.header))
        if bracketed_column:
            columns.append(bracketed_column)
        columns.append(column)
    lines = [line for line, _ in table.rows]
    return _make_measurements(table, columns, lines)


def _list_texts(table: Table, column: int) -> list[str]:
    return [texts[column] for _, texts in table.rows]


def _find_bracketed_column(column: _TextColumn, width: int) -> _TextColumn | None:
    """Return the second numbers of cells such as "1446.3 (12.1x)" and "88 (91 %)".

    They are a column after the last one of the table, which has `width` columns.

    Returns:
      None if fewer than two cells have a second number, or if it is not a ratio.
    """
    texts = list(map(cell_numbers.strip_markup, column.texts))
    if not any(map(_BRACKETS.search, texts[:_SEARCHED_ROWS])):
        return None
    matches = [_BRACKETS.search(text) for text in texts]
    inner_texts = [match[1] if match else "" for match in matches]
    numbers = list(map(cell_numbers.parse_cell, inner_texts))
    units = collections.Counter(number.unit for number in numbers if number)
    if not units:
        return None
    unit, num_numbers = units.most_common(1)[0]
    # A number without a unit may be anything, so most cells must have one in brackets.
    num_closed = sum(match is not None and match[0].endswith(")") for match in matches)
    is_usual = len(texts) > 2 and 2 * min(num_numbers, num_closed) > len(texts)
    is_ratio = unit in ("x", "%") or (unit == "" and is_usual)
    if num_numbers < 2 or not is_ratio:
        return None
    for row, number in enumerate(numbers):
        if number and number.unit != unit:
            inner_texts[row] = ""
    quantity = Quantity.EFFICIENCY if unit == "%" else Quantity.SHARE
    positions = [CellPosition(row, index + width) for row, index in column.positions]
    return _TextColumn(column.title, column.meaning, inner_texts, positions, quantity)


class _HeaderRow(NamedTuple):
    """A row of the layout in which every header with devices makes a row."""

    row: int  # row of the table
    devices: int


def _read_layout_by_header(table: Table) -> Measurements | None:
    """Return the layout with a row for every number of devices that headers name.

    Returns:
      None if headers do not name different numbers of devices.
    """
    devices_by_column = _read_header_devices(table)
    if not devices_by_column:
        return None
    # Reversed, so that the first column with a number of devices wins.
    header_columns = {
        devices: column for column, devices in reversed(devices_by_column.items())
    }
    rows = [
        _HeaderRow(row, devices)
        for row, devices in itertools.product(range(len(table.rows)), header_columns)
    ]
    columns = []
    for index, title in enumerate(table.header):
        if index in devices_by_column or _is_numeric(_list_texts(table, index)):
            continue
        same_column = dict.fromkeys(header_columns, index)
        meaning = headers.read_header(title)
        columns.append(_select_cells(table, rows, title, meaning, same_column))
    columns.append(_list_header_devices(rows, header_columns))
    columns += _read_measures(table, rows, devices_by_column)
    lines = [table.rows[row][0] for row, _ in rows]
    return _make_measurements(table, columns, lines)


def _select_cells(
    table: Table,
    rows: Sequence[_HeaderRow],
    title: str,
    meaning: Meaning,
    column_by_devices: Mapping[int, int],
) -> _TextColumn:
    """Return a column of a layout by header.

    Args:
      table: The table.
      rows: The rows of the layout.
      title: The name of the column.
      meaning: The meaning of the name.
      column_by_devices: Number of devices -> the column of the table with its cells.
        The cells of other numbers of devices are empty.
    """
    texts = []
    positions = []
    for row, devices in rows:
        index = column_by_devices.get(devices, -1)
        positions.append(CellPosition(row, index))
        texts.append(table.rows[row][1][index] if index >= 0 else "")
    return _TextColumn(title, meaning, texts, positions)


def _list_header_devices(
    rows: Sequence[_HeaderRow], header_columns: Mapping[int, int]
) -> _TextColumn:
    """Return the column of the numbers of devices, which headers contain."""
    texts = []
    positions = []
    for _, devices in rows:
        texts.append(str(devices))
        positions.append(CellPosition(-1, header_columns[devices]))
    return _TextColumn("devices", headers.read_header("devices"), texts, positions)


def _read_measures(
    table: Table, rows: Sequence[_HeaderRow], devices_by_column: Mapping[int, int]
) -> list[_TextColumn]:
    """Return a column for each measure in headers such as "img/s on 4 GPUs"."""
    description = " ".join(filter(None, (table.header[0], table.caption, table.title)))
    columns_by_measure: dict[str, dict[int, int]] = {}
    for index, devices in devices_by_column.items():
        meaning = headers.read_header(table.header[index])
        measure = meaning.other_words if meaning.devices else ""
        columns_by_measure.setdefault(measure, {})[devices] = index
    columns = []
    for measure, column_by_devices in columns_by_measure.items():
        title = measure or description
        meaning = headers.read_header(measure)
        if not meaning.quantity:
            quantity = headers.find_quantity(description.lower())
            meaning = dataclasses.replace(meaning, quantity=quantity)
        columns.append(_select_cells(table, rows, title, meaning, column_by_devices))
    return columns


def _read_header_devices(table: Table) -> dict[int, int]:
    """Return the devices of each column whose header names them.

    Headers with words ("1 GPU", "4 GPUs") count if they name different numbers. Numbers
    without words ("1", "4") count if every header after the first one is a number, and
    the first one is a name of devices ("GPUs").
    """
    devices_by_column: dict[int, int] = {}
    counts_without_unit: dict[int, int] = {}
    for index, title in enumerate(table.header[1:], 1):
        devices = headers.read_header(title).devices
        if devices and not _COMPARED.search(title.lower()):
            devices_by_column[index] = devices
        number = cell_numbers.parse_cell(title)
        if number and number.value >= 1 and number.is_whole:
            counts_without_unit[index] = int(number.value)
    all_are_counts = len(counts_without_unit) == len(table.header) - 1
    first_header = headers.read_header(table.header[0])
    if (
        len(devices_by_column) < 2
        and all_are_counts
        and first_header.quantity == Quantity.DEVICES
    ):
        return counts_without_unit
    if len(set(devices_by_column.values())) > 1:
        return devices_by_column
    return {}


def _read_transposed_layout(table: Table) -> Measurements | None:
    """Return the layout with a row for every column.

    Returns:
      None if the first column does not name quantities: at least two, or one that
      follows from others such as a speedup, and more than the header names.
    """
    if len(table.rows) > _MAX_COLUMNS or len(table.header) < 3:
        return None
    width = range(1, len(table.header))
    meaning = headers.read_header(table.header[0])
    positions = [CellPosition(-1, index) for index in width]
    columns = [_TextColumn(table.header[0], meaning, table.header[1:], positions)]
    for row, (_, cells) in enumerate(table.rows):
        title = cell_numbers.strip_markup(cells[0])
        positions = [CellPosition(row, index) for index in width]
        columns.append(
            _TextColumn(title, headers.read_header(title), cells[1:], positions)
        )
    row_quantities = []
    for column in columns[1:]:
        if column.meaning.quantity in IN_ROWS:
            row_quantities.append(column.meaning.quantity)
    header_quantities = [headers.read_header(title).quantity for title in table.header]
    num_in_header = sum(quantity in IN_ROWS for quantity in header_quantities[1:])
    min_quantities = 2 if set(row_quantities).isdisjoint(DERIVED) else 1
    if len(row_quantities) < max(min_quantities, num_in_header + 1):
        return None
    return _make_measurements(table, columns, [table.line] * len(width))


def _make_measurements(
    table: Table, text_columns: Sequence[_TextColumn], lines: Sequence[int]
) -> Measurements:
    """Return the measurements of one layout.

    Args:
      table: The table.
      text_columns: The columns of the layout.
      lines: The line of each row of the layout.
    """
    columns: list[Column] = []
    name_columns: list[_TextColumn] = []
    for text_column in text_columns:
        if not _is_numeric(text_column.texts):
            texts = list(map(cell_numbers.strip_markup, text_column.texts))
            name_columns.append(text_column._replace(texts=texts))
        elif len(columns) < _MAX_COLUMNS:
            numbers = list(map(cell_numbers.parse_cell, text_column.texts))
            columns.append(_make_column(text_column, numbers))
    # Names of rows may contain devices, such as "8x V100". They are not used if a
    # header contains the devices already, such as "Speedup on 2 devices".
    is_in_header = any(column.meaning.devices is not None for column in text_columns)
    is_in_column = any(column.quantity == Quantity.DEVICES for column in columns)
    if not is_in_header and not is_in_column:
        columns += _take_devices(name_columns)
    labels: Iterable[tuple[str, ...]] = ((),) * len(lines)
    if name_columns:
        labels = zip(*(column.texts for column in name_columns))
    return Measurements(table, _resolve_columns(columns), tuple(labels), tuple(lines))


def _take_devices(name_columns: list[_TextColumn]) -> list[Column]:
    """Split the devices from the first column of names that contains them.

    A column whose header names devices comes first. The other words stay in the names.

    Returns:
      The column of devices, or [] if no column contains them.
    """

    def is_not_of_devices(index: int) -> bool:
        return name_columns[index].meaning.quantity != Quantity.DEVICES

    for index in sorted(range(len(name_columns)), key=is_not_of_devices):
        names = name_columns[index]
        numbers: list[PrintedNumber | None] = []
        other_words = []
        for name in names.texts:
            count, words = headers.find_devices(name) or (None, name)
            other_words.append(words)
            numbers.append(PrintedNumber(count, 1.0, str(count)) if count else None)
        counts = [number.value for number in numbers if number]
        has_most_counts = 3 * len(counts) >= 2 * len(numbers)  # two thirds of the rows
        if has_most_counts and len(set(counts)) > 1:
            name_columns[index] = names._replace(texts=other_words)
            meaning = headers.read_header("devices")
            column = _TextColumn("devices", meaning, (), names.positions)
            return [_make_column(column, numbers)]
    return []


def _is_numeric(texts: Sequence[str]) -> bool:
    """Return whether at least half of the texts of a column are numbers."""
    filled = [text for text in texts[:_SAMPLED_ROWS] if any(map(str.isalnum, text))]
    num_numbers = sum(cell_numbers.parse_cell(text) is not None for text in filled)
    return num_numbers > 0 and 2 * num_numbers >= len(filled)


def _make_column(
    text_column: _TextColumn, numbers: Sequence[PrintedNumber | None]
) -> Column:
    """Return a column of numbers, given the numbers of its texts."""
    known_numbers = [number for number in numbers if number]
    units = collections.Counter(number.unit for number in known_numbers)
    quantity = text_column.quantity
    if not quantity:
        quantity = _choose_quantity(text_column, known_numbers, units)
    factor = _choose_factor(text_column, quantity, known_numbers, units)
    foreign_units = _find_foreign_units(quantity, units)
    items: list[CellNumber | None] = []
    for number, position in zip(numbers, text_column.positions):
        is_fraction = quantity == Quantity.DEVICES and number and not number.is_whole
        if number is None or number.unit in foreign_units or is_fraction:
            items.append(None)
        else:
            items.append(_scale_number(number, position, quantity, factor))
    for row, text in enumerate(text_column.texts):
        item = items[row]
        if item and _MARKS.search(text):
            items[row] = item._replace(is_marked=True)
    return Column(
        text_column.title, text_column.meaning, quantity, factor, tuple(items)
    )


def _find_foreign_units(
    quantity: Quantity, units: collections.Counter[str]
) -> set[str]:
    """Return the units whose numbers are left out, because they differ from the rest."""
    own_units = [unit for unit, _ in units.most_common() if unit not in _MIXABLE_UNITS]
    foreign_units = set(units) - {
        *own_units[:1],
        *_MIXABLE_UNITS,
    }  # "4 B" below "1 MiB"
    if units["s"]:
        foreign_units.add("")  # "2.1" below "349 µs"
    if quantity == Quantity.DEVICES:
        foreign_units -= {unit for unit in units if headers.is_thing(unit)}
    return foreign_units


def _scale_number(
    number: PrintedNumber, position: CellPosition, quantity: Quantity, factor: float
) -> CellNumber:
    """Return a number in the unit of its column.

    Args:
      number: The printed number.
      position: Its cell.
      quantity: The quantity of the column.
      factor: The factor of numbers without a unit of their own.
    """
    if quantity in (*CHOSEN, Quantity.BATCHES):  # exact
        return CellNumber(number, position, number.value, number.value)
    scale = factor
    if number.unit == "%":
        scale = 0.01
    elif number.unit == "s" and quantity in (Quantity.SECONDS, Quantity.UNKNOWN):
        scale = 1.0
    return CellNumber(
        number, position, number.low * scale, number.high * scale, scale=scale
    )


def _choose_quantity(
    column: _TextColumn, numbers: Sequence[PrintedNumber], units: Mapping[str, int]
) -> Quantity:
    """Return the quantity of a column, by its header and the units of its numbers."""
    quantity = column.meaning.quantity
    half = len(numbers) / 2
    may_be_speedup = not quantity or headers.may_be_speedup(column.title)
    if units["x"] > half and may_be_speedup:
        return Quantity.SPEEDUP
    if not quantity and numbers:
        if all(map(headers.is_thing, units)):
            quantity = Quantity.DEVICES
        elif units["s"] > half:
            quantity = Quantity.SECONDS
        elif {headers.find_quantity(unit.lower()) for unit in units} == {Quantity.RATE}:
            quantity = Quantity.RATE
    # A number of devices never has decimals. If half of a column have them, it contains
    # something else.
    num_whole = sum(number.is_whole for number in numbers)
    if quantity == Quantity.DEVICES and 2 * num_whole <= len(numbers):
        return Quantity.UNKNOWN
    return quantity


def _choose_factor(
    column: _TextColumn,
    quantity: Quantity,
    numbers: Sequence[PrintedNumber],
    units: Mapping[str, int],
) -> float:
    """Return the factor to seconds, items per second, bytes or fractions."""
    if quantity not in DERIVED or not numbers:
        return headers.find_factor(column.title, quantity)
    half = len(numbers) / 2
    if units["x"] > half:
        return 1.0
    largest_factor = math.inf
    if column.meaning.is_percent:
        largest_factor = _MAX_FACTOR_BELOW_PERCENT
    elif quantity in (Quantity.EFFICIENCY, Quantity.CHANGE):
        largest_factor = _MAX_FACTOR
    median = sorted(abs(number.value) for number in numbers)[len(numbers) // 2]
    is_percent = units["%"] > half or median > largest_factor
    return 0.01 if is_percent else 1.0


def _resolve_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns with one number of devices, one clock and one rate.

    The column that counts the smallest parts of the machine has the devices. Other
    columns are settings, or are set aside, if they do not describe the run itself.
    """
    counts = [column for column in columns if column.quantity == Quantity.DEVICES]
    finest = min(counts, key=lambda column: _rank_fineness(column.name), default=None)
    has_wall_clock = any(
        column.quantity == Quantity.SECONDS and _WALL_CLOCK.search(column.name.lower())
        for column in columns
    )
    is_corrected = any(column.is_marked.any() for column in columns)
    resolved_columns = []
    for column in columns:
        quantity = column.quantity
        if column.quantity == Quantity.DEVICES and column is not finest:
            quantity = Quantity.SETTING
        elif has_wall_clock and _is_cpu_time(column):
            quantity = Quantity.ASIDE
        elif is_corrected and column.name.lower().startswith(_UNCORRECTED):
            # Speedups follow from the corrected rates.
            quantity = Quantity.ASIDE
        resolved_columns.append(dataclasses.replace(column, quantity=quantity))
    return tuple(resolved_columns)


def _is_cpu_time(column: Column) -> bool:
    name = column.name.lower()
    is_of_cpu = bool(_CPU.search(name)) and not _WALL_CLOCK.search(name)
    return column.quantity == Quantity.SECONDS and is_of_cpu


def _rank_fineness(name: str) -> int:
    """Return the position in FINEST_FIRST of the word that a name contains."""
    for index, word in enumerate(FINEST_FIRST):
        if word in name.lower():
            return index
    return len(FINEST_FIRST)
