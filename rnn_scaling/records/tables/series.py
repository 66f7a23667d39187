"""Find the series of measurements: rows that differ only in the number of devices.

`audit` compares the points of a series, and `predict` continues it.
"""

import collections
import dataclasses
import functools
import math
import re
import statistics
from collections.abc import Hashable, Iterator, Sequence

from rnn_scaling.records.tables.headers import MEASURES, PARAMETERS, Quantity
from rnn_scaling.records.tables.measurements import (
    CellNumber,
    Column,
    Measurements,
    group_rows,
)

# Repeats whose values differ by more than this factor are different series.
_MAX_REPEAT_RATIO = 1.1
_NUMBER = re.compile(r"\d{1,9}")
_PART_OF_TIME = re.compile(
    r"\b(?:comput\w*|comm|communicat\w+|exchange|all-?reduce|forward|backward|fwd|bwd)\b"
)


@dataclasses.dataclass(frozen=True)
class Point:
    """A measured value of all devices, the mean of repeats."""

    devices: int
    value: float  # in seconds, items per second, or as a factor
    item: CellNumber  # the printed number that is nearest to the mean


@dataclasses.dataclass(frozen=True)
class Series:
    """A measure over several numbers of devices, the fewest first."""

    measurements: Measurements
    column: Column
    name: str
    line: int  # the line of the first row
    rows: tuple[int, ...]  # the measured rows of the table
    points: tuple[Point, ...]


def make_series_keys(layout: Measurements) -> list[tuple[Hashable, ...]]:
    """Return the key of each row's series; rows of one series have equal keys."""
    return _zip_keys(layout, _find_separators(layout))


@functools.lru_cache(maxsize=4)
def _find_separators(layout: Measurements) -> tuple[Sequence[str], ...]:
    """Return the values, by row, of the columns that separate series.

    Names separate series unless they repeat the number of devices ("2x8"). A parameter
    (a batch size, a sequence length) separates them if it has several values for one
    number of devices, unlike a global batch that grows with the devices.
    """
    if layout.devices is None:
        return ()
    separating_values: tuple[Sequence[str], ...] = ()
    for names in zip(*layout.labels):
        if not _repeats_devices(layout.devices, names):
            separating_values = (*separating_values, names)
    parameters = [column for column in layout.columns if _holds_parameters(column)]
    parameters.sort(key=lambda column: PARAMETERS.index(column.quantity))
    for column in parameters:
        if not _has_repeated_counts(layout, separating_values):
            break
        texts = []
        for item in column.items:
            texts.append(f"{column.name} {item.number.text}" if item else "")
        finer_values = (*separating_values, texts)
        if _separates_usefully(layout, separating_values, finer_values):
            separating_values = finer_values
    return separating_values


def _has_repeated_counts(
    layout: Measurements, separating_values: Sequence[Sequence[str]]
) -> bool:
    """Return whether a series has several rows with one number of devices."""
    counts_of_series = _list_series_devices(layout, separating_values)
    return any(len(set(counts)) < len(counts) for counts in counts_of_series)


def _separates_usefully(
    layout: Measurements,
    coarse_values: Sequence[Sequence[str]],
    finer_values: Sequence[Sequence[str]],
) -> bool:
    """Return whether finer separators make more series, of which most rows are a part.

    A row is alone if its series has no other number of devices.
    """
    coarse_counts = _list_series_devices(layout, coarse_values)
    finer_counts = _list_series_devices(layout, finer_values)
    num_alone = sum(len(counts) for counts in finer_counts if len(set(counts)) < 2)
    num_rows = len(finer_values[-1])
    return len(finer_counts) > len(coarse_counts) and num_alone <= num_rows / 2


def _repeats_devices(devices: Column, names: Sequence[str]) -> bool:
    """Return whether the numbers in names are proportional to those of devices."""
    ratios = set()
    for item, name in zip(devices.items, names):
        numbers = [int(digits) for digits in _NUMBER.findall(name)[:3]]
        if item is None or not item.low or not numbers:
            return False
        ratios.add(round(math.prod(numbers) / item.low, 9))
    return len(ratios) == 1


def _holds_parameters(column: Column) -> bool:
    """Return whether a column holds at least two different whole numbers."""
    values = {number.value for number in column.numbers}
    is_whole = all(value % 1 == 0 for value in values)
    return column.quantity in PARAMETERS and len(values) > 1 and is_whole


def _zip_keys(
    layout: Measurements, separating_values: Sequence[Sequence[str]]
) -> list[tuple[Hashable, ...]]:
    return list(zip(*separating_values)) or [()] * len(layout.lines)


def _list_series_devices(
    layout: Measurements, separating_values: Sequence[Sequence[str]]
) -> list[list[float]]:
    """Return the numbers of devices of every series, given its separators."""
    by_key = collections.defaultdict(list)
    items = layout.devices.items if layout.devices else ()
    for key, item in zip(_zip_keys(layout, separating_values), items):
        if item:
            by_key[key].append(item.low)
    return list(by_key.values())


def find_series(layout: Measurements) -> list[Series]:
    """Return every series with at least two numbers of devices.

    Only the columns of the first of MEASURES are read, without columns that are a part
    of the time of a step.
    """
    for quantity in MEASURES:
        columns = [layout.columns[index] for index in layout.find_columns(quantity)]
        if quantity == Quantity.SECONDS and len(columns) > 1:
            columns = [
                column
                for column in columns
                if not _PART_OF_TIME.search(column.name.lower())
            ]
        series: list[Series] = []
        for column in columns:
            series += find_series_of_column(layout, column)
        if series:
            return series
    return []


def find_series_of_column(layout: Measurements, column: Column) -> Iterator[Series]:
    """Yield the series of one column with at least two numbers of devices."""
    if layout.devices is None:
        return
    separating_values = _find_separators(layout)
    for rows in group_rows(_zip_keys(layout, separating_values)).values():
        repeats: dict[int, list[CellNumber]] = {}
        measured_rows = []
        for row in rows:
            count = layout.devices.items[row]
            item = column.items[row]
            if count and item and count.low > 0 and item.number.value > 0:
                repeats.setdefault(int(count.low), []).append(item)
                measured_rows.append(row)
        if len(repeats) < 2:
            continue
        points = [
            _make_point(column, devices, repeats[devices])
            for devices in sorted(repeats)
        ]
        if all(points):
            first_row = measured_rows[0]
            names = [*(values[first_row] for values in separating_values), column.name]
            yield Series(
                layout,
                column,
                name=", ".join(filter(None, names)),
                line=layout.lines[first_row],
                rows=tuple(measured_rows),
                points=tuple(filter(None, points)),
            )


def _make_point(
    column: Column, devices: int, items: Sequence[CellNumber]
) -> Point | None:
    """Return the point of repeats; None if they are too far apart."""
    values = [item.value for item in items]
    if max(values) > _MAX_REPEAT_RATIO * min(values):
        return None
    mean = statistics.geometric_mean(values)
    item = min(items, key=lambda item: abs(item.value - mean))
    # A rate of each device is added over the devices.
    factor = devices if column.quantity == Quantity.EACH else 1
    return Point(devices, mean * factor, item)
