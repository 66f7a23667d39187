"""Find numbers that no machine reaches.

In a series over numbers of devices that is a point far above its neighbours, or one far
below both.

`checking` reports these numbers even if no relation is broken.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from rnn_scaling.analysis.audit.readings import Bounds
from rnn_scaling.records.tables.headers import Quantity
from rnn_scaling.records.tables.measurements import CellNumber, Measurements
from rnn_scaling.records.tables.series import Point, Series, find_series_of_column

_SUPERLINEAR = 1.2  # times the work per device of any other row
_SUPERLINEAR_OF_THREE = 1.6  # the same if there are three rows
_MIN_GROWTH = 0.5  # times the devices, of numbers without a quantity in the header
_SLIPPED = 4.0  # times below both neighbours
# Speedup of times. If it is lower, it is weak scaling, or nothing was gained.
_MIN_SPEEDUP = 1.5
_MEASURES = (Quantity.RATE, Quantity.SPEEDUP, Quantity.SECONDS)


@dataclasses.dataclass(frozen=True)
class Outlier:
    """A number that is possible, but unlikely."""

    kind: str  # "superlinear" or "below"
    item: CellNumber
    fits: Bounds  # bounds of likely values


def find_series(layout: Measurements) -> Iterator[Series]:
    """Yield every series of at least three points, of every measure."""
    for column in layout.columns:
        is_measure = column.quantity in _MEASURES
        may_be_measure = not column.quantity and not column.is_exact
        if not is_measure and not may_be_measure:
            continue
        for series in find_series_of_column(layout, column):
            if len(series.points) > 2 and (
                is_measure or _grows_with_devices(series.points)
            ):
                yield series


def _grows_with_devices(points: Sequence[Point]) -> bool:
    """Return whether numbers grow about as the devices do."""
    first, last = (point.value / point.devices for point in (points[0], points[-1]))
    return _MIN_GROWTH < last / first < _SUPERLINEAR


def find_outliers(series: Series) -> Iterator[Outlier]:
    """Yield the points far above or below their neighbours."""
    points = series.points
    is_time = series.column.quantity == Quantity.SECONDS
    items = [point.item for point in points]
    speeds = [1 / item.high if is_time else item.low for item in items]
    if is_time and speeds[-1] < _MIN_SPEEDUP * speeds[0]:
        return
    per_device = [speed / point.devices for speed, point in zip(speeds, points)]
    second, best = sorted(per_device)[-2:]
    threshold = _SUPERLINEAR if len(points) > 3 else _SUPERLINEAR_OF_THREE
    for k in range(1, len(points)):
        count = points[k].devices
        best_other = second if per_device[k] == best else best
        neighbours = [speeds[k - 1], *speeds[k + 1 : k + 2]]
        if per_device[k] > threshold * best_other:
            kind = "superlinear"
            smallest = count * min(per_device[k - 1], best_other)
            largest = count * best_other
        elif len(neighbours) == 2 and speeds[k] * _SLIPPED < min(neighbours):
            kind = "below"
            smallest = min(neighbours)
            largest = max(neighbours)
        else:
            continue
        fits = (1 / largest, 1 / smallest) if is_time else (smallest, largest)
        yield Outlier(kind, items[k], fits)
