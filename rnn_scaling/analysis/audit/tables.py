"""Tables as they stand in a file, and views of them: rows of quantities with their places."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rnn_scaling.analysis.audit import headers
from rnn_scaling.analysis.audit.headers import Meaning
from rnn_scaling.records import printed_number
from rnn_scaling.records.printed_number import Printed

Ref = tuple[
    int, int
]  # (row, column) of a table; row -1 is its header; brackets count as columns behind the last
Cell = tuple[Printed | None, Ref]
MOST_COLUMNS = 64  # of a table that are compared with each other
MOST_LOOKED_AT = 1000  # rows that show whether a column holds numbers
SMALLEST = 1e-300  # number whose logarithm is taken
HEAD = 60  # rows that show what a column holds
_FINEST = (
    "gpu",
    "device",
    "accelerator",
    "card",
    "worker",
    "proc",
    "rank",
    "task",
    "core",
    "thread",
    "node",
)
_UNDERSTOOD = (
    "rate",
    "each",
    "seconds",
    "speedup",
    "efficiency",
    "work",
    "global_batch",
    "cost",
    "algbw",
    "busbw",
)
_COUNTS = (
    "devices",
    "setting",
    "batch",
    "global_batch",
    "batches",
    "epochs",
)  # printed exactly
_PER = {
    r"(?:/|\bper) ?min": 1 / 60,
    r"(?:/|\bper) ?h(?:r|our)?\b": 1 / 3600,
    r"(?:/|\bper) ?day": 1 / 86400,
}
DERIVED = ("speedup", "efficiency", "share", "change")
_WALL_CLOCK = re.compile(r"\bwall\b|wall[-_ ]?clock|\belapsed\b|\breal\b")
_CPU = re.compile(r"\bcpu\b")
_UNITS = ("", "%", "x")  # that every column may mix
_BRACKETS = re.compile(
    # Bounded repeats: three without bounds take cubic time in a cell of digits and commas.
    r"\d\S{0,24}(?:\s?[A-Za-zµ%/]{1,12})?\s?[(\[/,]\s?([^()\[\]]{1,30}?)\s?[)\]]?$"
)
_UNIT = re.compile(
    r"\b(ns|us|µs|ms|millis(?:econds)?|micros(?:econds)?|nanos(?:econds)?|mins?\b(?! \w)|minutes|h|hrs|hours|days)\b"
)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a file: texts of its header and rows; title and caption are what stands above it."""

    source: str
    line: int
    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]
    title: str = ""
    caption: str = ""
    parts: tuple[
        int, ...
    ] = ()  # of each row the number of its table, if tables of the same header were joined

    @functools.cached_property
    def numbers(self) -> list[list[Printed | None]]:
        return [
            [printed_number.parse(text) for text in texts] for _, texts in self.rows
        ]

    @property
    def part_of(self) -> tuple[int, ...]:
        return self.parts or (0,) * len(self.rows)

    def is_numeric(self, k: int) -> bool:
        """Whether a column holds numbers rather than names."""
        texts = [texts[k] for _, texts in self.rows[:MOST_LOOKED_AT]]
        count = sum(row[k] is not None for row in self.numbers[:MOST_LOOKED_AT])
        return count > 0 and 2 * count >= sum(
            any(map(str.isalnum, text)) for text in texts
        )

    @property
    def count(self) -> int:
        return sum(number is not None for row in self.numbers for number in row)


def logs_of(values: np.ndarray) -> np.ndarray:
    """Logarithms of the values above 0, NaN for the others."""
    return np.log(np.where(values > 0, values, np.nan))


class Item(NamedTuple):
    """A number of a view. low, high: its bounds in the unit of its column; ref: where it stands."""

    number: Printed
    ref: Ref
    low: float
    high: float

    @property
    def value(self) -> float:
        """The printed number itself; the bounds reach half a digit below, and one above."""
        return (2.0 * self.low + self.high) / 3.0


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a view. factor: what its numbers are multiplied by to be seconds, items per second or fractions."""

    name: str
    meaning: Meaning
    quantity: str
    factor: float
    items: tuple[Item | None, ...]

    @functools.cached_property
    def values(self) -> collections.Counter[float]:
        """How often each number stands in it."""
        return collections.Counter(item.number.value for item in self.items if item)

    @functools.cached_property
    def low(self) -> np.ndarray:
        """The lower bound of each row, NaN without a number."""
        return np.array([item.low if item else np.nan for item in self.items])

    @functools.cached_property
    def high(self) -> np.ndarray:
        """The upper bound of each row, NaN without a number."""
        return np.array([item.high if item else np.nan for item in self.items])

    @functools.cached_property
    def log_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of both bounds; NaN for no number above 0."""
        return logs_of(
            np.where(self.high > 0, np.maximum(self.low, SMALLEST), np.nan)
        ), logs_of(self.high)

    @property
    def middle(self) -> np.ndarray:
        return (2.0 * self.low + self.high) / 3.0

    @functools.cached_property
    def logs(self) -> np.ndarray:
        """Logarithms of the printed numbers; NaN for none above 0."""
        return logs_of(self.middle)

    @functools.cached_property
    def is_derived(self) -> bool:
        """Whether it is made from others, by its header or its numbers."""
        return (
            self.quantity in DERIVED
            or sum(bool(i and i.number.unit == "x") for i in self.items) > 1
        )

    @functools.cached_property
    def is_exact(self) -> bool:
        """Whether it holds counts, which are not rounded: sizes that somebody chose."""
        return all(item.low == item.high for item in self.items if item)


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    table: Table
    columns: tuple[Column, ...]
    labels: tuple[tuple[str, ...], ...]  # the names of each row
    lines: tuple[int, ...]
    parts: tuple[int, ...]  # the table of each row

    @functools.cached_property
    def part_of(self) -> np.ndarray:
        return np.array(self.parts)

    @functools.cached_property
    def places(self) -> dict[Ref, tuple[Column, int, Item]]:
        """Of every number the first column that has it, its row there, and the number."""
        found: dict[Ref, tuple[Column, int, Item]] = {}
        for column in reversed(self.columns):
            found |= {
                item.ref: (column, at, item)
                for at, item in enumerate(column.items)
                if item
            }
        return found

    def head(self, rows: int) -> View:
        if len(self.lines) <= rows:
            return self
        columns = tuple(
            dataclasses.replace(column, items=column.items[:rows])
            for column in self.columns
        )
        return View(
            self.table,
            columns,
            self.labels[:rows],
            self.lines[:rows],
            self.parts[:rows],
        )

    def of(self, quantity: str) -> list[int]:
        """Indices of the columns of a quantity."""
        return [
            k for k, column in enumerate(self.columns) if column.quantity == quantity
        ]

    def before_brackets(self, target: int) -> int | None:
        """Of a column of numbers in brackets that of the numbers before them."""
        places = {item.ref[1] for item in self.columns[target].items if item}
        outer = {place - len(self.table.header) for place in places}
        return next(
            (
                k
                for k, c in enumerate(self.columns)
                if outer == {item.ref[1] for item in c.items if item}
            ),
            None,
        )


def rows_by(keys: Iterable[Hashable]) -> dict[Hashable, list[int]]:
    """The rows of each key, given the key of every row."""
    found: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    return found


def views(table: Table) -> list[View]:
    """The table as it stands, with a row of every header that names devices, and turned, where these make sense."""
    meanings = [headers.read(text) for text in table.header]
    found = [_plain(table, meanings), *_melted(table, meanings)]
    for rows in rows_by(table.part_of).values():
        found += _turned(table, meanings, rows)
    return [view for view in found if len(view.columns) > 1]


def _column(name: str, meaning: Meaning, cells: Sequence[Cell]) -> Column:
    values = [number for number, _ in cells if number]
    units = collections.Counter(number.unit for number in values)
    quantity = _quantity(name, meaning.quantity, units)
    common = next((unit for unit, _ in units.most_common() if unit not in _UNITS), "")
    foreign = set(units) - {common, *_UNITS}  # "4 B" below "1 MiB"
    foreign |= {""} if units["s"] else set()  # "2.1" below "349 µs"
    if quantity == "devices":
        # A number of devices never has decimals. One that has them is left out; if
        # half of a column have them, it holds something else.
        if 2 * sum(map(_is_whole, values)) <= len(values):
            quantity = ""
        else:
            cells = [
                (number if number and _is_whole(number) else None, ref)
                for number, ref in cells
            ]
    if quantity == "devices" and not meaning.quantity:
        foreign = set()  # "1 GPU", "4 GPUs"
    factor = _factor(
        name, dataclasses.replace(meaning, quantity=quantity), values, units
    )
    factors = {"%": 0.01} | ({"s": 1.0} if quantity in ("seconds", "") else {})
    is_count = quantity in _COUNTS or not quantity and _are_round(values)
    items: list[Item | None] = []
    for number, ref in cells:
        if number is None or number.unit in foreign:
            items.append(None)
        elif is_count:
            items.append(Item(number, ref, number.value, number.value))
        else:
            item_factor = factors.get(number.unit, factor)
            items.append(
                Item(number, ref, number.low * item_factor, number.high * item_factor)
            )
    return Column(name, meaning, quantity, factor, tuple(items))


def _is_whole(number: Printed) -> bool:
    return number.value % 1 == 0


def _quantity(name: str, stated: str, units: Mapping[str, int]) -> str:
    """The quantity of a column, by its header and by the units of its numbers."""
    half = sum(units.values()) / 2
    if not stated and units and all(map(headers.is_thing, units)):
        return "devices"
    if not stated and units["s"] > half:
        return "seconds"
    return (
        "speedup"
        if units["x"] > half and (not stated or headers.may_be_speedup(name))
        else stated
    )


def _devices_column(counts: Sequence[tuple[int | None, Ref]]) -> Column:
    """The numbers of devices that names and headers hold."""
    cells = [
        (Printed(float(count), 0.0, str(count)) if count is not None else None, ref)
        for count, ref in counts
    ]
    return _column("devices", headers.read("devices"), cells)


def _are_round(values: Sequence[Printed]) -> bool:
    """Whether most numbers are whole and round, as sizes that people choose are: 2, 4, 8, 12, 24, 100."""
    whole = [
        int(v.value) for v in values if v.value > 0 and v.step == 1.0 and not v.unit
    ]
    chosen = sum(
        number % 10 == 0 or (number & -number) * 3 >= number for number in whole
    )
    return len(values) > 2 and 5 * chosen >= 4 * len(values)


def _factor(
    name: str, meaning: Meaning, values: Sequence[Printed], units: Mapping[str, int]
) -> float:
    """To seconds, items per second and fractions; percent only where the values are no fractions already."""
    quantity, half = meaning.quantity, len(values) / 2
    if quantity in ("efficiency", "share", "change", "speedup") and values:
        middle = sorted(abs(number.value) for number in values)[len(values) // 2]
        least = (
            3
            if meaning.is_percent
            else math.inf
            if quantity in ("share", "speedup")
            else 8
        )
        return (
            0.01
            if units["x"] <= half and (units["%"] > half or middle > least)
            else 1.0
        )
    if quantity in ("rate", "each"):
        return next(
            (factor for word, factor in _PER.items() if re.search(word, name.lower())),
            1.0,
        )
    if quantity in ("algbw", "bytes"):
        prefix = re.search(r"\b([kmgt])(i?)b(?:/s|ps)?\b", name.lower())
        return (
            (1024.0 if prefix[2] else 1000.0) ** ("kmgt".index(prefix[1]) + 1)
            if prefix
            else 1.0
        )
    unit = _UNIT.search(name.lower().replace("_", " "))
    return printed_number.SECONDS[unit[1]] if unit and quantity == "seconds" else 1.0


def _devices(
    table: Table, label_columns: Sequence[int]
) -> tuple[list[Column], dict[int, list[str]]]:
    """A column of devices out of the names of rows, and the names without them."""
    for k in sorted(
        label_columns, key=lambda k: headers.read(table.header[k]).quantity != "devices"
    ):
        names = [printed_number.plain(texts[k]) for _, texts in table.rows]
        found = [headers.devices_in(name) for name in names]
        counts = [
            (count[0] if count else None, (row, k)) for row, count in enumerate(found)
        ]
        if (
            3 * sum(map(bool, found)) >= 2 * len(found)
            and len({count[0] for count in found if count}) > 1
        ):
            return [_devices_column(counts)], {
                k: [c[1] if c else name for c, name in zip(found, names)]
            }
    return [], {}


def _plain(table: Table, meanings: Sequence[Meaning]) -> View:
    columns, label_columns = [], []
    for k in range(len(table.header)):
        columns += _bracketed(table, k)
        if not table.is_numeric(k):
            label_columns.append(k)
        elif len(columns) < MOST_COLUMNS:
            cells = [(row[k], (at, k)) for at, row in enumerate(table.numbers)]
            columns.append(_column(table.header[k], meanings[k], cells))
    rests: dict[int, list[str]] = {}
    if not any(column.quantity == "devices" for column in columns):
        devices, rests = _devices(table, label_columns)
        columns += devices
    names = [
        rests.get(k) or [printed_number.plain(texts[k]) for _, texts in table.rows]
        for k in label_columns
    ]
    labels = tuple(zip(*names)) if names else ((),) * len(table.rows)
    return View(
        table,
        _one_clock(_one_devices(columns)),
        labels,
        tuple(line for line, _ in table.rows),
        table.part_of,
    )


def _bracketed(table: Table, k: int) -> list[Column]:
    """The second number of cells such as "1446.3 (12.1x)" and "88 (91 %)", where its unit says what it is."""
    if not any(
        _BRACKETS.search(printed_number.plain(texts[k]))
        for _, texts in table.rows[:HEAD]
    ):
        return []
    found = [
        _BRACKETS.search(printed_number.plain(texts[k])) for _, texts in table.rows
    ]
    parsed = [printed_number.parse(match[1]) if match else None for match in found]
    if not any(parsed):
        return []
    unit, count = collections.Counter(
        number.unit for number in parsed if number
    ).most_common(1)[0]
    in_brackets = sum(match is not None and match[0].endswith(")") for match in found)
    is_bare = unit == "" and 2 * min(count, in_brackets) > len(table.rows) > 2
    if count < 2 or not (unit in ("x", "%") or is_bare):
        return []
    quantity = "efficiency" if unit == "%" else "share"
    at = k + len(table.header)  # as if it stood in a column of its own
    items = [
        (number if number and number.unit == unit else None, (row, at))
        for row, number in enumerate(parsed)
    ]
    meaning = dataclasses.replace(headers.read(table.header[k]), quantity=quantity)
    return [_column(table.header[k], meaning, items)]


def _one_devices(columns: list[Column]) -> tuple[Column, ...]:
    """The columns; only the finest count of devices keeps the quantity "devices"."""
    counts = [column for column in columns if column.quantity == "devices"]
    if len(counts) < 2:
        return tuple(columns)
    finest = min(
        counts,
        key=lambda c: next(
            (k for k, word in enumerate(_FINEST) if word in c.name.lower()), 99
        ),
    )
    return tuple(
        column
        if column.quantity != "devices" or column is finest
        else dataclasses.replace(column, quantity="setting")
        for column in columns
    )


def _one_clock(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns; beside a wall-clock time, CPU times are no times of a run."""
    times = [column for column in columns if column.quantity == "seconds"]
    if not any(_WALL_CLOCK.search(column.name.lower()) for column in times):
        return columns
    found = []
    for column in columns:
        name = column.name.lower()
        is_cpu_time = _CPU.search(name) and not _WALL_CLOCK.search(name)
        if column.quantity == "seconds" and is_cpu_time:
            column = dataclasses.replace(column, quantity="aside")
        found.append(column)
    return tuple(found)


def _counts(table: Table, meanings: Sequence[Meaning]) -> dict[int, int]:
    """Devices of each column that its header names."""
    counts = {
        k: meaning.devices for k, meaning in enumerate(meanings)
        if k and meaning.devices and not re.search(r"\b(?:vs|over|relative|than)\b", table.header[k].lower())
    }  # fmt: skip
    if len(counts) < 2 and headers.read(table.header[0]).quantity == "devices":
        bare = {
            k: printed_number.parse(text) for k, text in enumerate(table.header) if k
        }
        if all(
            number and number.value >= 1 and number.value == int(number.value)
            for number in bare.values()
        ):
            return {k: int(number.value) for k, number in bare.items() if number}
    return counts if len(set(counts.values())) > 1 else {}


def _melted(table: Table, meanings: Sequence[Meaning]) -> list[View]:
    """A row for every number of devices that headers name."""
    counts = _counts(table, meanings)
    if not counts:
        return []
    rests = {k: meanings[k].rest if meanings[k].devices else "" for k in counts}
    about = " ".join(filter(None, (table.header[0], table.caption, table.title)))
    label_columns = [
        k
        for k in range(len(table.header))
        if k not in counts and not table.is_numeric(k)
    ]
    first = {n: k for k, n in reversed(counts.items())}
    rows = [
        (row, n)
        for row in range(len(table.rows))
        for n in dict.fromkeys(counts.values())
    ]
    made = [_devices_column([(n, (-1, first[n])) for _, n in rows])]
    for name in dict.fromkeys(rests.values()):
        at = {counts[k]: k for k in counts if rests[k] == name}
        cells = [
            (table.numbers[row][at[n]], (row, at[n])) if n in at else (None, (row, 0))
            for row, n in rows
        ]
        if any(number for number, _ in cells):
            meaning = headers.read(name)
            quantity = meaning.quantity or headers.quantity_of(about.lower())
            made.append(
                _column(
                    name or about,
                    dataclasses.replace(meaning, quantity=quantity),
                    cells,
                )
            )
    labels = tuple(
        tuple(printed_number.plain(table.rows[row][1][k]) for k in label_columns)
        for row, _ in rows
    )
    parts = tuple(table.part_of[row] for row, _ in rows)
    return [
        View(
            table,
            tuple(made),
            labels,
            tuple(table.rows[row][0] for row, _ in rows),
            parts,
        )
    ]


def _turned(
    table: Table, meanings: Sequence[Meaning], rows: Sequence[int]
) -> list[View]:
    """Quantities in some rows: a row for every column."""
    if len(rows) > MOST_COLUMNS or len(table.header) < 3:
        return []
    names = [printed_number.plain(table.rows[row][1][0]) for row in rows]
    of_rows = [headers.read(name) for name in names]
    understood = sum(meaning.quantity in _UNDERSTOOD for meaning in of_rows)
    least = (
        1
        if any(meaning.quantity in ("speedup", "efficiency") for meaning in of_rows)
        else 2
    )
    if understood < least or understood <= sum(
        meaning.quantity in _UNDERSTOOD for meaning in meanings[1:]
    ):
        return []
    wide = range(1, len(table.header))
    made = []
    for row, name, meaning in zip(rows, names, of_rows):
        made.append(
            _column(name, meaning, [(table.numbers[row][k], (row, k)) for k in wide])
        )
    counts = _counts(table, meanings)
    if counts and not any(column.quantity == "devices" for column in made):
        made.append(_devices_column([(counts.get(k), (-1, k)) for k in wide]))
    labels = tuple((printed_number.plain(table.header[k]),) for k in wide)
    return [
        View(
            table,
            _one_devices(made),
            labels,
            (table.line,) * len(wide),
            (0,) * len(wide),
        )
    ]
