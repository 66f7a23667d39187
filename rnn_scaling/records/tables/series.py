"""Find the series of measurements: rows that differ only in the number of devices."""

import collections
import dataclasses
import functools
import itertools
import math
import re
import statistics
from collections.abc import Hashable, Iterator, Sequence

from rnn_scaling.records.tables.headers import MEASURES, PARAMETERS, Quantity
from rnn_scaling.records.tables.measurements import (
    Column,
    Item,
    Measurements,
    rows_by,
)

APART = 1.1  # repeats whose values differ by more than this factor are different series
_NUMBER = re.compile(r"\d{1,9}")
_PART_OF_TIME = re.compile(
    r"\b(?:comput\w*|comm|communicat\w+|exchange|all-?reduce|forward|backward|fwd|bwd)\b"
)


@dataclasses.dataclass(frozen=True)
class Point:
    """A measured value of all devices, the mean of repeats."""

    devices: int
    value: float  # in seconds, items per second, or as a factor
    item: Item  # a printed number of it


@dataclasses.dataclass(frozen=True)
class Series:
    """A measure over several numbers of devices, the fewest first."""

    measurements: Measurements
    column: Column
    name: str
    line: int  # of the first point
    rows: tuple[int, ...]
    points: tuple[Point, ...]


def rows_of_series(found: Measurements) -> list[list[int]]:
    """Return the rows of each series of a table with numbers of devices."""
    return list(rows_by(_keys(found, separators(found))).values())


@functools.lru_cache(maxsize=4)
def separators(found: Measurements) -> tuple[Sequence[str], ...]:
    """Return the values, by row, of the columns that separate series.

    Names do, except those that repeat the number of devices ("2x8"). So do parameters
    (a batch size, a sequence length) that have several values for one number of
    devices, but not a global batch that grows with the devices.
    """
    if found.devices is None:
        return ()
    chosen: tuple[Sequence[str], ...] = ()
    for names in zip(*found.labels):
        if not _repeats_devices(found.devices, names):
            chosen = (*chosen, names)
    parameters = [column for column in found.columns if _holds_parameters(column)]
    parameters.sort(key=lambda column: PARAMETERS.index(column.quantity))
    for column in parameters:
        texts = [_shown(column, row) for row in range(len(found.lines))]
        before = _devices_of_series(found, chosen)
        after = (*chosen, texts)
        is_needed = any(len(set(counts)) < len(counts) for counts in before)
        is_finer = len(_devices_of_series(found, after)) > len(before)
        if is_needed and is_finer and _num_alone(found, after) <= len(texts) / 2:
            chosen = after
    return chosen


def _repeats_devices(devices: Column, names: Sequence[str]) -> bool:
    """Return whether the numbers in names are proportional to those of devices."""
    ratios = set()
    for item, name in zip(devices.items, names):
        numbers = [int(digits) for digits in _NUMBER.findall(name)[:3]]
        if item is None or not item.low or not numbers:
            return False
        ratios.add(round(math.prod(numbers) / item.low, 9))
    return len(ratios) == 1


def _num_alone(found: Measurements, chosen: Sequence[Sequence[str]]) -> int:
    """Return how many rows have no other number of devices in their series."""
    series = _devices_of_series(found, chosen)
    return sum(len(counts) for counts in series if len(set(counts)) < 2)


def _shown(column: Column, row: int) -> str:
    item = column.items[row]
    return f"{column.name} {item.number.text}" if item else ""


def _holds_parameters(column: Column) -> bool:
    """Return whether a column holds at least two different whole numbers."""
    values = {number.value for number in column.numbers}
    is_whole = all(value % 1 == 0 for value in values)
    return column.quantity in PARAMETERS and len(values) > 1 and is_whole


def _keys(
    found: Measurements, chosen: Sequence[Sequence[str]]
) -> Iterator[tuple[Hashable, ...]]:
    return zip(found.parts, *chosen)


def _devices_of_series(
    found: Measurements, chosen: Sequence[Sequence[str]]
) -> list[list[float]]:
    """Return the numbers of devices of every series, given what separates them."""
    by_key = collections.defaultdict(list)
    items = found.devices.items if found.devices else ()
    for key, item in zip(_keys(found, chosen), items):
        if item:
            by_key[key].append(item.low)
    return list(by_key.values())


def find_series(found: Measurements) -> list[Series]:
    """Return every series with at least two numbers of devices.

    Only the columns of the first of MEASURES are read, without columns that are a part
    of the time of a step.
    """
    for quantity in MEASURES:
        columns = [found.columns[k] for k in found.find_columns(quantity)]
        parts = [c for c in columns if _PART_OF_TIME.search(c.name.lower())]
        if quantity == Quantity.SECONDS and len(columns) > 1:
            columns = [column for column in columns if column not in parts]
        made = list(itertools.chain(*(of_column(found, column) for column in columns)))
        if made:
            return made
    return []


def of_column(found: Measurements, column: Column) -> Iterator[Series]:
    """Yield the series of one column with at least two numbers of devices."""
    if found.devices is None:
        return
    separating = separators(found)
    for rows in rows_by(_keys(found, separating)).values():
        repeats: dict[int, list[Item]] = {}
        measured = []
        for row in rows:
            count = found.devices.items[row]
            item = column.items[row]
            if count and item and count.low > 0 and item.number.value > 0:
                repeats.setdefault(int(count.low), []).append(item)
                measured.append(row)
        points = [_point(column, n, repeats[n]) for n in sorted(repeats)]
        if len(points) > 1 and all(points):
            words = [values[measured[0]] for values in separating]
            name = ", ".join(filter(None, (*words, column.name)))
            line = found.lines[measured[0]]
            every = tuple(filter(None, points))
            yield Series(found, column, name, line, tuple(measured), every)


def _point(column: Column, devices: int, items: Sequence[Item]) -> Point | None:
    """Return the point of repeats; None if they are too far apart."""
    values = [item.value for item in items]
    if max(values) > APART * min(values):
        return None
    mean = statistics.geometric_mean(values)
    item = min(items, key=lambda item: abs(item.value - mean))
    is_each = column.quantity == Quantity.EACH
    return Point(devices, mean * devices if is_each else mean, item)
