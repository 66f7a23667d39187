"""Say what the columns of a table are: quantities with units, names and devices.

A table has up to three layouts: as it is, with a row for every header that names
devices ("1 GPU", "4 GPUs"), and turned, if quantities are in its rows.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from rnn_scaling.records import printed_number
from rnn_scaling.records.printed_number import Printed
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

MOST_COLUMNS = 64  # of a table that are compared with each other
SMALLEST = 1e-300  # number whose logarithm is taken
_FIRST_ROWS = 60  # that show whether cells have numbers in brackets
_PER = {
    r"(?:/|\bper) ?min": 1 / 60,
    r"(?:/|\bper) ?h(?:r|our)?\b": 1 / 3600,
    r"(?:/|\bper) ?day": 1 / 86400,
}
_WALL_CLOCK = re.compile(r"\bwall\b|wall[-_ ]?clock|\belapsed\b|\breal\b")
_CPU = re.compile(r"\bcpu\b")
_COMPARED = re.compile(r"\b(?:vs|over|relative|than)\b")
_SIZE = re.compile(r"\b([kmgt])(i?)b(?:/s|ps)?\b")
_UNITS = ("", "%", "x")  # that every column may mix
_BRACKETS = re.compile(
    # Bounded repeats: three without bounds take cubic time in a cell of digits and commas.
    r"\d\S{0,24}(?:\s?[A-Za-zµ%/]{1,12})?\s?[(\[/,]\s?([^()\[\]]{1,30}?)\s?[)\]]?$"
)
_UNIT = re.compile(
    r"\b(ns|us|µs|ms|millis(?:econds)?|micros(?:econds)?|nanos(?:econds)?"
    r"|mins?\b(?! \w)|minutes|h|hrs|hours|days)\b"
)

# A place is (row, column) of a table. Row -1 is its header, and numbers in brackets
# count as columns behind the last one.
Place = tuple[int, int]
Cell = tuple[Printed | None, Place]
Key = TypeVar("Key")


class Item(NamedTuple):
    """A number of a column. low, high: its bounds in the unit of the column."""

    number: Printed
    place: Place
    low: float
    high: float

    @property
    def value(self) -> float:
        """The printed number in the unit of the column."""
        return self.number.value * self.scale

    @property
    def scale(self) -> float:
        """What the printed number is multiplied by in the unit of the column."""
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
    def numbers(self) -> list[Printed]:
        """The printed numbers, without the empty rows."""
        return [item.number for item in self.items if item]

    @functools.cached_property
    def low(self) -> np.ndarray:
        """The lower bound of each row; NaN without a number."""
        return np.array([item.low if item else np.nan for item in self.items])

    @functools.cached_property
    def high(self) -> np.ndarray:
        """The upper bound of each row; NaN without a number."""
        return np.array([item.high if item else np.nan for item in self.items])

    @property
    def middle(self) -> np.ndarray:
        """The printed number of each row; NaN without one."""
        return (2.0 * self.low + self.high) / 3.0

    @functools.cached_property
    def is_derived(self) -> bool:
        """Whether it is computed from others, by its header or its numbers."""
        num_times = sum(number.unit == "x" for number in self.numbers)
        return self.quantity in DERIVED or num_times > 1

    @functools.cached_property
    def is_exact(self) -> bool:
        """Whether it holds counts, which are not rounded: sizes that somebody chose."""
        return all(item.low == item.high for item in self.items if item)


@dataclasses.dataclass(frozen=True, eq=False)
class Measurements:
    """The numbers of a table by quantity, in one layout."""

    table: Table
    columns: tuple[Column, ...]
    labels: tuple[tuple[str, ...], ...]  # the names of each row
    lines: tuple[int, ...]
    parts: tuple[int, ...]  # the table of each row

    def find_columns(self, quantity: Quantity | str) -> list[int]:
        """Return the indices of the columns of a quantity."""
        found = enumerate(self.columns)
        return [k for k, column in found if column.quantity == quantity]

    @functools.cached_property
    def devices(self) -> Column | None:
        """The column of the numbers of devices."""
        found = self.find_columns(Quantity.DEVICES)
        return self.columns[found[0]] if found else None

    def before_brackets(self, target: int) -> int | None:
        """Return the column of the numbers before a column of numbers in brackets."""
        outer = _table_columns(self.columns[target])
        width = len(self.table.header)
        for k, column in enumerate(self.columns):
            if {place + width for place in _table_columns(column)} == outer:
                return k
        return None


def _table_columns(column: Column) -> set[int]:
    return {item.place[1] for item in column.items if item}


def rows_by(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """Return the rows of each key, given the key of every row."""
    found: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    return found


def read(table: Table) -> list[Measurements]:
    """Return the measurements of a table in every layout that makes sense."""
    meanings = [headers.read(text) for text in table.header]
    found = [_plain(table, meanings, True), *_by_header(table, meanings)]
    for rows in rows_by(table.part_of).values():
        found += _turned(table, meanings, rows)
    return [one for one in found if len(one.columns) > 1]


def _column(
    name: str, meaning: Meaning, cells: Sequence[Cell], quantity: Quantity | None = None
) -> Column:
    """Return a column. quantity: of its numbers, if the header does not decide it."""
    numbers = [number for number, _ in cells if number]
    units = collections.Counter(number.unit for number in numbers)
    if quantity is None:
        quantity = _quantity(name, meaning.quantity, units)
    common = [unit for unit, _ in units.most_common() if unit not in _UNITS][:1]
    foreign = set(units) - {*common, *_UNITS}  # "4 B" below "1 MiB"
    if units["s"]:
        foreign.add("")  # "2.1" below "349 µs"
    if quantity == Quantity.DEVICES:
        # A number of devices never has decimals. One that has them is left out; if
        # half of a column have them, it holds something else.
        if 2 * sum(map(_is_whole, numbers)) <= len(numbers):
            quantity = Quantity.UNKNOWN
        else:
            cells = [(n if n and _is_whole(n) else None, place) for n, place in cells]
            foreign -= {
                unit for unit in units if headers.is_thing(unit)
            }  # "1 GPU", "4 GPUs"
    factor = _factor(name, meaning, quantity, numbers, units)
    factors = {"%": 0.01}
    if quantity in (Quantity.SECONDS, Quantity.UNKNOWN):
        factors["s"] = 1.0
    is_chosen = quantity in (*CHOSEN, Quantity.BATCHES)
    is_exact = is_chosen or (not quantity and _are_round(numbers))
    items: list[Item | None] = []
    for number, place in cells:
        if number is None or number.unit in foreign:
            items.append(None)
        elif is_exact:
            items.append(Item(number, place, number.value, number.value))
        else:
            own = factors.get(number.unit, factor)
            items.append(Item(number, place, number.low * own, number.high * own))
    return Column(name, meaning, quantity, factor, tuple(items))


def _is_whole(number: Printed) -> bool:
    return number.value % 1 == 0


def _quantity(name: str, stated: Quantity, units: Mapping[str, int]) -> Quantity:
    """Return the quantity of a column, by its header and the units of its numbers."""
    half = sum(units.values()) / 2
    if units["x"] > half and (not stated or headers.may_be_speedup(name)):
        return Quantity.SPEEDUP
    if stated or not units:
        return stated
    if all(map(headers.is_thing, units)):
        return Quantity.DEVICES
    if units["s"] > half:
        return Quantity.SECONDS
    is_rate = {headers.quantity_of(unit.lower()) for unit in units} == {Quantity.RATE}
    return Quantity.RATE if is_rate else stated


def _are_round(numbers: Sequence[Printed]) -> bool:
    """Return whether most numbers are sizes that people choose: 2, 8, 12, 24, 100."""
    num_chosen = 0
    for number in numbers:
        if number.value > 0 and number.step == 1.0 and not number.unit:
            whole = int(number.value)
            num_chosen += whole % 10 == 0 or (whole & -whole) * 3 >= whole
    return len(numbers) > 2 and 5 * num_chosen >= 4 * len(numbers)


def _factor(
    name: str,
    meaning: Meaning,
    quantity: Quantity,
    numbers: Sequence[Printed],
    units: Mapping[str, int],
) -> float:
    """Return the factor to seconds, items per second, bytes or fractions."""
    text = name.lower().replace("_", " ")
    if quantity in DERIVED and numbers:
        half = len(numbers) / 2
        middle = sorted(abs(number.value) for number in numbers)[len(numbers) // 2]
        least = math.inf  # of percents that have no sign
        if meaning.is_percent:
            least = 3
        elif quantity in (Quantity.EFFICIENCY, Quantity.CHANGE):
            least = 8
        is_percent = units["%"] > half or middle > least
        return 0.01 if is_percent and units["x"] <= half else 1.0
    if quantity in (Quantity.RATE, Quantity.EACH):
        found = [factor for word, factor in _PER.items() if re.search(word, text)]
        return found[0] if found else 1.0
    prefix = _SIZE.search(text)
    if quantity in (Quantity.ALGBW, Quantity.BYTES) and prefix:
        base = 1024.0 if prefix[2] else 1000.0
        return base ** ("kmgt".index(prefix[1]) + 1)
    unit = _UNIT.search(text)
    is_time = bool(unit) and quantity == Quantity.SECONDS
    return printed_number.SECONDS[unit[1]] if unit and is_time else 1.0


def _devices_of_names(
    table: Table, names: Mapping[int, list[str]]
) -> tuple[Column, int, list[str]] | None:
    """Return the devices in the names of rows, their column, and the other words."""
    is_other = {
        k: headers.read(table.header[k]).quantity != Quantity.DEVICES for k in names
    }
    for k in sorted(names, key=is_other.__getitem__):
        found = [headers.devices_in(name) for name in names[k]]
        counts = {pair[0] for pair in found if pair}
        if 3 * sum(map(bool, found)) >= 2 * len(found) and len(counts) > 1:
            cells: list[Cell] = []
            rests = list(names[k])
            for row, pair in enumerate(found):
                number = None
                if pair:
                    number = Printed(float(pair[0]), 1.0, str(pair[0]))
                    rests[row] = pair[1]
                cells.append((number, (row, k)))
            return _column("devices", headers.read("devices"), cells), k, rests
    return None


def _plain(
    table: Table, meanings: Sequence[Meaning], has_brackets: bool = False
) -> Measurements:
    """Return the table as it is.

    Args:
      table: The table.
      meanings: Of its headers.
      has_brackets: Whether numbers in brackets are columns of their own.
    """
    columns: list[Column] = []
    names: dict[int, list[str]] = {}
    for k, title in enumerate(table.header):
        if has_brackets:
            columns += _bracketed(table, k)
        if not table.is_numeric(k):
            names[k] = table.texts(k)
        elif len(columns) < MOST_COLUMNS:
            cells = [(row[k], (at, k)) for at, row in enumerate(table.numbers)]
            columns.append(_column(title, meanings[k], cells))
    has_devices = any(column.quantity == Quantity.DEVICES for column in columns)
    in_names = None if has_devices else _devices_of_names(table, names)
    if in_names:
        column, k, rests = in_names
        columns.append(column)
        names[k] = rests
    labels = tuple(zip(*names.values())) if names else ((),) * len(table.rows)
    lines = tuple(line for line, _ in table.rows)
    return Measurements(table, _resolved(columns), labels, lines, table.part_of)


def _bracketed(table: Table, k: int) -> Iterator[Column]:
    """Yield the second numbers of cells such as "1446.3 (12.1x)" and "88 (91 %)"."""
    texts = table.texts(k)
    if not any(map(_BRACKETS.search, texts[:_FIRST_ROWS])):
        return
    found = [_BRACKETS.search(text) for text in texts]
    parsed = [printed_number.parse(match[1]) if match else None for match in found]
    units = collections.Counter(number.unit for number in parsed if number)
    if not units:
        return
    unit, count = units.most_common(1)[0]
    num_closed = sum(match is not None and match[0].endswith(")") for match in found)
    is_bare = unit == "" and 2 * min(count, num_closed) > len(table.rows) > 2
    if count < 2 or not (unit in ("x", "%") or is_bare):
        return
    at = k + len(table.header)  # as if it were a column of its own
    cells: list[Cell] = []
    for row, number in enumerate(parsed):
        cells.append((number if number and number.unit == unit else None, (row, at)))
    quantity = Quantity.EFFICIENCY if unit == "%" else Quantity.SHARE
    yield _column(table.header[k], headers.read(table.header[k]), cells, quantity)


def _resolved(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns with one number of devices, and one clock.

    The smallest parts of the machine that are counted are the devices, and any other
    count is a setting. Beside a wall-clock time, CPU times are no times of a run.
    """
    columns = list(columns)
    counts = [column for column in columns if column.quantity == Quantity.DEVICES]
    finest = min(counts, key=lambda column: _fineness(column.name), default=None)
    is_timed = any(
        column.quantity == Quantity.SECONDS and _WALL_CLOCK.search(column.name.lower())
        for column in columns
    )
    for k, column in enumerate(columns):
        name = column.name.lower()
        is_cpu_time = _CPU.search(name) and not _WALL_CLOCK.search(name)
        if column.quantity == Quantity.DEVICES and column is not finest:
            columns[k] = dataclasses.replace(column, quantity=Quantity.SETTING)
        elif column.quantity == Quantity.SECONDS and is_timed and is_cpu_time:
            columns[k] = dataclasses.replace(column, quantity=Quantity.ASIDE)
    return tuple(columns)


def _fineness(name: str) -> int:
    found = [k for k, word in enumerate(FINEST_FIRST) if word in name.lower()]
    return found[0] if found else len(FINEST_FIRST)


def _counts(table: Table, meanings: Sequence[Meaning]) -> dict[int, int]:
    """Return the devices of each column whose header names them."""
    counts: dict[int, int] = {}
    bare: dict[int, int] = {}
    for k, title in enumerate(table.header[1:], 1):
        devices = meanings[k].devices
        if devices and not _COMPARED.search(title.lower()):
            counts[k] = devices
        number = printed_number.parse(title)
        if number and number.value >= 1 and _is_whole(number):
            bare[k] = int(number.value)
    is_bare = len(bare) == len(table.header) - 1
    if len(counts) < 2 and is_bare and meanings[0].quantity == Quantity.DEVICES:
        return bare
    return counts if len(set(counts.values())) > 1 else {}


def _by_header(table: Table, meanings: Sequence[Meaning]) -> Iterator[Measurements]:
    """Yield a layout with a row for every number of devices that headers name."""
    counts = _counts(table, meanings)
    if not counts:
        return
    about = " ".join(filter(None, (table.header[0], table.caption, table.title)))
    columns_of: dict[str, dict[int, int]] = {}  # by what is measured and devices
    for k, n in counts.items():
        name = meanings[k].rest if meanings[k].devices else ""
        columns_of.setdefault(name, {})[n] = k
    others = [k for k in range(len(table.header)) if k not in counts]
    names = [k for k in others if not table.is_numeric(k)]
    first = {n: k for k, n in reversed(counts.items())}
    rows = []
    for row, (line, texts) in enumerate(table.rows):
        for n, k in first.items():
            cells = [(texts[name], (row, name)) for name in names]
            cells.append((str(n), (-1, k)))
            for at in columns_of.values():
                text = texts[at[n]] if n in at else ""
                cells.append((text, (row, at.get(n, 0))))
            rows.append((line, table.part_of[row], cells))
    titles = [*(table.header[k] for k in names), "devices"]
    found = [headers.read(title) for title in titles]
    for name in columns_of:
        meaning = headers.read(name)
        if not meaning.quantity:
            quantity = headers.quantity_of(about.lower())
            meaning = dataclasses.replace(meaning, quantity=quantity)
        titles.append(name or about)
        found.append(meaning)
    yield _relaid(table, titles, found, rows)


def _turned(
    table: Table, meanings: Sequence[Meaning], rows: Sequence[int]
) -> Iterator[Measurements]:
    """Yield a layout with a row for every column, if quantities are in rows."""
    if len(rows) > MOST_COLUMNS or len(table.header) < 3:
        return
    titles = [printed_number.plain(table.rows[row][1][0]) for row in rows]
    found = [headers.read(title) for title in titles]
    in_rows = [meaning.quantity for meaning in found if meaning.quantity in IN_ROWS]
    in_header = [meaning for meaning in meanings[1:] if meaning.quantity in IN_ROWS]
    is_derived = any(quantity in DERIVED for quantity in in_rows)
    if len(in_rows) < (1 if is_derived else 2) or len(in_rows) <= len(in_header):
        return
    columns = []
    for k in range(1, len(table.header)):
        cells = [(table.header[k], (-1, k))]
        cells += [(table.rows[row][1][k], (row, k)) for row in rows]
        columns.append((table.line, 0, cells))
    titles.insert(0, table.header[0])
    found.insert(0, meanings[0])
    yield _relaid(table, titles, found, columns)


def _relaid(
    table: Table,
    titles: Sequence[str],
    meanings: Sequence[Meaning],
    rows: Sequence[tuple[int, int, Sequence[tuple[str, Place]]]],
) -> Measurements:
    """Return the measurements of the same cells in another layout.

    Args:
      table: The table.
      titles: Of the columns of the other layout.
      meanings: Of the same columns.
      rows: The line, the part and the cells of every row, with their places in the
        table.
    """
    lines = tuple((line, tuple(text for text, _ in cells)) for line, _, cells in rows)
    parts = tuple(part for _, part, _ in rows)
    other = dataclasses.replace(table, header=tuple(titles), rows=lines, parts=parts)
    found = _plain(other, meanings)
    columns = []
    for column in found.columns:
        items: list[Item | None] = []
        for item in column.items:
            if item:
                row, k = item.place
                item = item._replace(place=rows[row][2][k][1])
            items.append(item)
        columns.append(dataclasses.replace(column, items=tuple(items)))
    return dataclasses.replace(found, table=table, columns=tuple(columns))
