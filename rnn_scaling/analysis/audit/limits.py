"""Find numbers that no machine reaches.

In a series over numbers of devices that is a point far above its neighbours, one far
below both, or a long number that is printed twice. In one row it is a minimum above its
mean, a percentile above a higher one, or a part above its total.

`checking` reports these numbers even if no relation is broken.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from rnn_scaling.analysis.audit.readings import Bounds
from rnn_scaling.records.tables import headers
from rnn_scaling.records.tables.headers import DERIVED, Quantity
from rnn_scaling.records.tables.measurements import Item, Measurements
from rnn_scaling.records.tables.series import Point, Series, series_of_column

_SUPERLINEAR = 1.2  # times the work per device of any other row
_SUPERLINEAR_OF_THREE = 1.6  # the same if there are three rows
_MIN_GROWTH = 0.5  # times the devices, of numbers without a quantity in the header
_SLIPPED = 4.0  # times below both neighbours
# Speedup of times. If it is lower, it is weak scaling, or nothing was gained.
_MIN_SPEEDUP = 1.5
_LONG = 4  # significant digits that two measurements do not share by chance
_MEASURES = (Quantity.RATE, Quantity.SPEEDUP, Quantity.SECONDS)


@dataclasses.dataclass(frozen=True)
class Outlier:
    """A number that is possible, but unlikely."""

    kind: str  # "superlinear", "below", "copy" or "order"
    item: Item
    fits: Bounds  # bounds of likely values
    contradicted: Item | None = None  # the other number of a copy or an order


def find_series(layout: Measurements) -> Iterator[Series]:
    """Yield every series of at least three points, of every measure."""
    for column in layout.columns:
        is_measure = column.quantity in _MEASURES
        may_be_measure = not column.quantity and not column.is_exact
        if not is_measure and not may_be_measure:
            continue
        for series in series_of_column(layout, column):
            if len(series.points) > 2 and (
                is_measure or _grows_with_devices(series.points)
            ):
                yield series


def _grows_with_devices(points: Sequence[Point]) -> bool:
    """Return whether numbers grow about as the devices do."""
    first, last = (point.value / point.devices for point in (points[0], points[-1]))
    return _MIN_GROWTH < last / first < _SUPERLINEAR


def outliers(layout: Measurements, all_series: Sequence[Series]) -> Iterator[Outlier]:
    """Yield the outliers of a table with its series."""
    yield from _find_order_violations(layout)
    for series in all_series:
        yield from _find_jumps(series)
        yield from _find_repeated_numbers(series)


def _find_jumps(series: Series) -> Iterator[Outlier]:
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


def _find_repeated_numbers(series: Series) -> Iterator[Outlier]:
    """Yield the one number that is printed for two numbers of devices."""
    items = [point.item for point in series.points]
    texts = [item.number.text for item in items]
    is_speedup = series.column.quantity == Quantity.SPEEDUP
    if is_speedup or len(set(texts)) != len(texts) - 1:
        return
    for k, item in enumerate(items):
        value = item.number.value
        is_round = math.isclose(value, round(value, -2))
        if texts[k] in texts[:k] and item.number.digits >= _LONG and not is_round:
            first = items[texts.index(texts[k])]
            yield Outlier("copy", item, (math.nan, math.nan), first)


def _find_order_violations(layout: Measurements) -> Iterator[Outlier]:
    """Yield the one row in which a column exceeds another one that it cannot exceed."""
    for low, high in itertools.permutations(layout.columns, 2):
        if low.quantity != high.quantity or low.factor != high.factor:
            continue
        if low.meaning.is_end or high.meaning.is_end:
            continue
        # The speedup of a total lies between the speedups of its parts.
        is_part = low.quantity not in DERIVED and headers.is_part(low.name, high.name)
        if not is_part and not headers.is_lower_statistic(low.name, high.name):
            continue
        pairs = [(a, b) for a, b in zip(low.items, high.items) if a and b]
        violations = [(a, b) for a, b in pairs if a.low > b.high]
        if (
            len(violations) == 1
            and len(pairs) > 2
            and not violations[0][0].number.is_rough
        ):
            item, exceeded = violations[0]
            yield Outlier("order", item, (-math.inf, exceeded.high), exceeded)
