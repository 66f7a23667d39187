"""Find the quantities, units, names and numbers of devices of a table's columns.

A table has up to three layouts: its own, one with a row for every header that names
devices ("1 GPU", "4 GPUs"), and one with a row for every column if quantities are in
rows.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

_MAX_SAMPLE = 1000  # rows that decide whether a column holds numbers
_MOST_COLUMNS = 64  # columns of a table that are compared with each other
SMALLEST = 1e-300  # number whose logarithm is taken
_FIRST_ROWS = 60  # rows that are searched for numbers in brackets
_WALL_CLOCK = re.compile(r"\bwall\b|wall[-_ ]?clock|\belapsed\b|\breal\b")
_CPU = re.compile(r"\bcpu\b")
_COMPARED = re.compile(r"\b(?:vs|over|relative|than)\b")
_UNCORRECTED = "measured_"  # start of the column of rates before the correction
_MARKS = re.compile(f"[{cell_numbers.CORRECTED_MARK}{cell_numbers.ALL_BATCHES_MARK}]")
_UNITS = ("", "%", "x")  # every column may mix these
_BRACKETS = re.compile(
    # Three repeats without bounds take cubic time in a cell of digits and commas.
    r"\d\S{0,24}(?:\s?[A-Za-zµ%/]{1,12})?\s?[(\[/,]\s?([^()\[\]]{1,30}?)\s?[)\]]?$"
)
# The row and the column of a cell. Row -1 is the header, and numbers in brackets count
# as columns after the last one.
Place = tuple[int, int]
Key = TypeVar("Key")


class Item(NamedTuple):
    """A number of a column."""

    number: PrintedNumber
    place: Place
    low: float  # bounds in the unit of the column
    high: float
    # Whether it has a mark of this suite's reports for other conditions than the rest of
    # its row: the number is corrected, or counts disturbed batches.
    is_marked: bool = False

    @property
    def value(self) -> float:
        """The printed number in the unit of the column."""
        return self.number.value * self.scale

    @property
    def scale(self) -> float:
        """The factor from the printed number to the unit of the column."""
        is_exact = self.low == self.high or not self.number.high
        return 1.0 if is_exact else self.high / self.number.high


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """Numbers of one quantity."""

    name: str
    meaning: Meaning
    quantity: Quantity
    # Numbers times the factor are seconds, items per second, or fractions.
    factor: float
    items: tuple[Item | None, ...]

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

    @property
    def printed_values(self) -> np.ndarray:
        """The printed number of each row; NaN without one.

        `low` is half a digit below the number, and `high` is a whole digit above it.
        """
        return (2.0 * self.low + self.high) / 3.0

    @functools.cached_property
    def inner_range(self) -> float:
        """log(second largest / second smallest) of the positive numbers, at most 1."""
        printed_values = self.printed_values
        values = np.sort(printed_values[printed_values > 0])
        if len(values) > 4:
            values = values[1:-1]
        return min(1.0, float(np.log(values[-1] / values[0]))) if len(values) else 0.0

    @functools.cached_property
    def is_derived(self) -> bool:
        """Whether the header or the numbers show that it follows from other columns."""
        num_times = sum(number.unit == "x" for number in self.numbers)
        return self.quantity in DERIVED or num_times > 1

    @functools.cached_property
    def is_exact(self) -> bool:
        """Whether the column contains counts, which are not rounded."""
        return all(item.low == item.high for item in self.items if item)


@dataclasses.dataclass(frozen=True, eq=False)
class Measurements:
    """The numbers of a table by quantity, in one layout."""

    table: Table
    columns: tuple[Column, ...]
    labels: tuple[tuple[str, ...], ...]  # the names of each row
    lines: tuple[int, ...]

    def find_columns(self, quantity: Quantity | str) -> list[int]:
        """Return the indices of the columns of a quantity."""
        columns = enumerate(self.columns)
        return [k for k, column in columns if column.quantity == quantity]

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
    def _cells(self) -> dict[Place, tuple[Column, int, Item]]:
        cells = {}
        for column in reversed(self.columns):
            for row, item in enumerate(column.items):
                if item:
                    cells[item.place] = (column, row, item)
        return cells

    def find(self, place: Place) -> tuple[Column, int, Item]:
        """Return the column, the row in this layout, and the number of a cell."""
        return self._cells[place]


def group_rows(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """Return the rows of each key, given the key of every row."""
    rows: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return rows


class _Texts(NamedTuple):
    """A column before its numbers are read."""

    title: str
    meaning: Meaning
    texts: Sequence[str]
    places: Sequence[Place]
    quantity: Quantity | None = None  # None if the header and the units decide it


def read(table: Table) -> list[Measurements]:
    """Return the measurements of a table in every layout that makes sense."""
    layouts = [_read_own_layout(table)]
    layouts += [*_read_layout_by_header(table), *_read_turned_layout(table)]
    return [layout for layout in layouts if len(layout.columns) > 1]


def _read_own_layout(table: Table) -> Measurements:
    columns = []
    for k, title in enumerate(table.header):
        texts = [texts[k] for _, texts in table.rows]
        places = [(row, k) for row in range(len(texts))]
        column = _Texts(title, headers.read_header(title), texts, places)
        columns += [*_find_bracketed_columns(column, len(table.header)), column]
    lines = [line for line, _ in table.rows]
    return _make_measurements(table, columns, lines)


def _find_bracketed_columns(column: _Texts, width: int) -> Iterator[_Texts]:
    """Yield the second numbers of cells such as "1446.3 (12.1x)" and "88 (91 %)".

    They are a column after the last one of the table, which has `width` columns.
    """
    texts = list(map(cell_numbers.strip_markup, column.texts))
    if not any(map(_BRACKETS.search, texts[:_FIRST_ROWS])):
        return
    matches = [_BRACKETS.search(text) for text in texts]
    inner_texts = [match[1] if match else "" for match in matches]
    numbers = list(map(cell_numbers.parse_cell, inner_texts))
    units = collections.Counter(number.unit for number in numbers if number)
    unit, num_numbers = (units.most_common(1) or [("", 0)])[0]
    num_closed = sum(match is not None and match[0].endswith(")") for match in matches)
    is_bare = unit == "" and 2 * min(num_numbers, num_closed) > len(texts) > 2
    if num_numbers > 1 and (unit in ("x", "%") or is_bare):
        for row, number in enumerate(numbers):
            if number and number.unit != unit:
                inner_texts[row] = ""
        quantity = Quantity.EFFICIENCY if unit == "%" else Quantity.SHARE
        places = [(row, k + width) for row, k in column.places]
        yield _Texts(column.title, column.meaning, inner_texts, places, quantity)


def _read_layout_by_header(table: Table) -> Iterator[Measurements]:
    """Yield a layout with a row for every number of devices that headers name."""
    devices = _read_header_devices(table)
    if not devices:
        return
    description = " ".join(filter(None, (table.header[0], table.caption, table.title)))
    columns_by_measure: dict[str, dict[int, int]] = {}  # each by number of devices
    for k, count in devices.items():
        meaning = headers.read_header(table.header[k])
        measure = meaning.other_words if meaning.devices else ""
        columns_by_measure.setdefault(measure, {})[count] = k
    header_columns = {count: k for k, count in reversed(devices.items())}
    rows = list(itertools.product(range(len(table.rows)), header_columns))

    def make_column(title: str, meaning: Meaning, indices: Mapping[int, int]) -> _Texts:
        """Return the cells of each row and number of devices, by their column."""
        places = [(row, indices.get(count, -1)) for row, count in rows]
        texts = [table.rows[row][1][k] if k >= 0 else "" for row, k in places]
        return _Texts(title, meaning, texts, places)

    counts = [str(count) for _, count in rows]
    places = [(-1, header_columns[count]) for _, count in rows]
    columns = []
    for k, title in enumerate(table.header):
        if k not in devices and not _is_numeric([texts[k] for _, texts in table.rows]):
            indices = dict.fromkeys(header_columns, k)
            columns.append(make_column(title, headers.read_header(title), indices))
    columns.append(_Texts("devices", headers.read_header("devices"), counts, places))
    for measure, indices in columns_by_measure.items():
        meaning = headers.read_header(measure)
        if not meaning.quantity:
            quantity = headers.find_quantity(description.lower())
            meaning = dataclasses.replace(meaning, quantity=quantity)
        columns.append(make_column(measure or description, meaning, indices))
    lines = [table.rows[row][0] for row, _ in rows]
    yield _make_measurements(table, columns, lines)


def _read_header_devices(table: Table) -> dict[int, int]:
    """Return the devices of each column whose header names them."""
    devices_by_column: dict[int, int] = {}
    bare: dict[int, int] = {}
    for k, title in enumerate(table.header[1:], 1):
        devices = headers.read_header(title).devices
        if devices and not _COMPARED.search(title.lower()):
            devices_by_column[k] = devices
        number = cell_numbers.parse_cell(title)
        if number and number.value >= 1 and number.is_whole:
            bare[k] = int(number.value)
    is_bare = len(bare) == len(table.header) - 1
    counts_devices = headers.read_header(table.header[0]).quantity == Quantity.DEVICES
    if len(devices_by_column) < 2 and is_bare and counts_devices:
        return bare
    return devices_by_column if len(set(devices_by_column.values())) > 1 else {}


def _read_turned_layout(table: Table) -> Iterator[Measurements]:
    """Yield a layout with a row for every column, if quantities are in rows."""
    if len(table.rows) > _MOST_COLUMNS or len(table.header) < 3:
        return
    width = range(1, len(table.header))
    meaning = headers.read_header(table.header[0])
    places = [(-1, k) for k in width]
    columns = [_Texts(table.header[0], meaning, table.header[1:], places)]
    for row, (_, (title, *texts)) in enumerate(table.rows):
        title = cell_numbers.strip_markup(title)
        places = [(row, k) for k in width]
        columns.append(_Texts(title, headers.read_header(title), texts, places))
    in_rows = [c.meaning.quantity for c in columns[1:] if c.meaning.quantity in IN_ROWS]
    quantities = [headers.read_header(title).quantity for title in table.header[1:]]
    num_in_header = sum(quantity in IN_ROWS for quantity in quantities)
    min_quantities = 2 if set(in_rows).isdisjoint(DERIVED) else 1
    if len(in_rows) >= max(min_quantities, num_in_header + 1):
        yield _make_measurements(table, columns, [table.line] * len(width))


def _make_measurements(
    table: Table, all_texts: Sequence[_Texts], lines: Sequence[int]
) -> Measurements:
    """Return the columns of numbers, and the names of each row."""
    columns: list[Column] = []
    names: list[_Texts] = []
    for column in all_texts:
        if not _is_numeric(column.texts):
            texts = list(map(cell_numbers.strip_markup, column.texts))
            names.append(column._replace(texts=texts))
        elif len(columns) < _MOST_COLUMNS:
            numbers = list(map(cell_numbers.parse_cell, column.texts))
            columns.append(_make_column(column, numbers))
    # In "Speedup on 2 devices", the header names them; names may hold other counts.
    names_devices = any(column.meaning.devices is not None for column in all_texts)
    if not names_devices and all(c.quantity != Quantity.DEVICES for c in columns):
        columns += _take_devices(names)
    labels = zip(*(column.texts for column in names)) if names else ((),) * len(lines)
    return Measurements(table, _resolve_columns(columns), tuple(labels), tuple(lines))


def _take_devices(names: list[_Texts]) -> Iterator[Column]:
    """Yield the devices that names contain, such as "8x V100"; leave the other words."""

    def is_other(k: int) -> bool:
        return names[k].meaning.quantity != Quantity.DEVICES

    for k in sorted(range(len(names)), key=is_other):
        numbers: list[PrintedNumber | None] = []
        other_words = []
        for name in names[k].texts:
            count, words = headers.find_devices(name) or (None, name)
            other_words.append(words)
            numbers.append(PrintedNumber(count, 1.0, str(count)) if count else None)
        counts = [number.value for number in numbers if number]
        if 3 * len(counts) >= 2 * len(numbers) and len(set(counts)) > 1:
            meaning = headers.read_header("devices")
            yield _make_column(_Texts("devices", meaning, (), names[k].places), numbers)
            names[k] = names[k]._replace(texts=other_words)
            return


def _is_numeric(texts: Sequence[str]) -> bool:
    """Return whether a column holds numbers rather than names."""
    filled = [text for text in texts[:_MAX_SAMPLE] if any(map(str.isalnum, text))]
    num_numbers = sum(cell_numbers.parse_cell(text) is not None for text in filled)
    return num_numbers > 0 and 2 * num_numbers >= len(filled)


def _make_column(column: _Texts, numbers: Sequence[PrintedNumber | None]) -> Column:
    """Return the typed column of some numbers, by its header and their units."""
    known_numbers = [number for number in numbers if number]
    units = collections.Counter(number.unit for number in known_numbers)
    quantity = column.quantity or _choose_quantity(column, known_numbers, units)
    common = [unit for unit, _ in units.most_common() if unit not in _UNITS][:1]
    foreign = set(units) - {*common, *_UNITS}  # "4 B" below "1 MiB"
    if units["s"]:
        foreign.add("")  # "2.1" below "349 µs"
    if quantity == Quantity.DEVICES:
        foreign -= {unit for unit in units if headers.is_thing(unit)}
        numbers = [n if n and n.is_whole else None for n in numbers]
    factor = _choose_factor(column, quantity, known_numbers, units)
    factors = {"%": 0.01}
    if quantity in (Quantity.SECONDS, Quantity.UNKNOWN):
        factors["s"] = 1.0
    is_exact = quantity in (*CHOSEN, Quantity.BATCHES)
    items: list[Item | None] = []
    for number, place in zip(numbers, column.places):
        if number is None or number.unit in foreign:
            items.append(None)
        elif is_exact:
            items.append(Item(number, place, number.value, number.value))
        else:
            scale = factors.get(number.unit, factor)
            items.append(Item(number, place, number.low * scale, number.high * scale))
    for row, text in enumerate(column.texts):
        if (item := items[row]) and _MARKS.search(text):
            items[row] = item._replace(is_marked=True)
    return Column(column.title, column.meaning, quantity, factor, tuple(items))


def _choose_quantity(
    column: _Texts, numbers: Sequence[PrintedNumber], units: Mapping[str, int]
) -> Quantity:
    """Return the quantity of a column, by its header and the units of its numbers."""
    quantity = column.meaning.quantity
    half = len(numbers) / 2
    is_change = headers.may_be_speedup(column.title)
    if units["x"] > half and (not quantity or is_change):
        return Quantity.SPEEDUP
    if not quantity and numbers:
        if all(map(headers.is_thing, units)):
            quantity = Quantity.DEVICES
        elif units["s"] > half:
            quantity = Quantity.SECONDS
        elif {headers.find_quantity(unit.lower()) for unit in units} == {Quantity.RATE}:
            quantity = Quantity.RATE
    # A number of devices never has decimals. If half of a column have them, it holds
    # something else.
    num_whole = sum(number.is_whole for number in numbers)
    if quantity == Quantity.DEVICES and 2 * num_whole <= len(numbers):
        return Quantity.UNKNOWN
    return quantity


def _choose_factor(
    column: _Texts,
    quantity: Quantity,
    numbers: Sequence[PrintedNumber],
    units: Mapping[str, int],
) -> float:
    """Return the factor to seconds, items per second, bytes or fractions."""
    if quantity not in DERIVED or not numbers:
        return headers.find_factor(column.title, quantity)
    half = len(numbers) / 2
    middle = sorted(abs(number.value) for number in numbers)[len(numbers) // 2]
    smallest_percent = math.inf  # compared with the median
    if column.meaning.is_percent:
        smallest_percent = 3
    elif quantity in (Quantity.EFFICIENCY, Quantity.CHANGE):
        smallest_percent = 8
    is_percent = units["%"] > half or middle > smallest_percent
    return 0.01 if is_percent and units["x"] <= half else 1.0


def _resolve_columns(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns with one number of devices, one clock and one rate.

    The smallest parts of the machine that are counted are the devices, and any other
    count is a setting. If a table has a wall-clock time, its CPU times are not the
    times of a run. If rates of this suite are corrected, speedups do not follow from
    the rates before the correction.
    """
    columns = list(columns)
    counts = [column for column in columns if column.quantity == Quantity.DEVICES]
    finest = min(counts, key=lambda column: _fineness_rank(column.name), default=None)
    times = [column for column in columns if column.quantity == Quantity.SECONDS]
    is_timed = any(_WALL_CLOCK.search(column.name.lower()) for column in times)
    is_corrected = any(column.is_marked.any() for column in columns)
    for k, column in enumerate(columns):
        name = column.name.lower()
        is_cpu_time = _CPU.search(name) and not _WALL_CLOCK.search(name)
        if column.quantity == Quantity.DEVICES and column is not finest:
            columns[k] = dataclasses.replace(column, quantity=Quantity.SETTING)
            continue
        is_aside = is_corrected and name.startswith(_UNCORRECTED)
        if column.quantity == Quantity.SECONDS and is_timed and is_cpu_time:
            is_aside = True
        if is_aside:
            columns[k] = dataclasses.replace(column, quantity=Quantity.ASIDE)
    return tuple(columns)


def _fineness_rank(name: str) -> int:
    indices = [k for k, word in enumerate(FINEST_FIRST) if word in name.lower()]
    return indices[0] if indices else len(FINEST_FIRST)
