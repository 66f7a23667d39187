"""Find what no machine does.

In a series over numbers of devices that is a point far above its neighbours, one far
below both, and a long number that is printed twice. In one row it is a minimum above
its mean, a percentile above a higher one, or a part above its total.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from rnn_scaling.analysis.audit.instances import Bounds
from rnn_scaling.records.tables import headers
from rnn_scaling.records.tables.headers import Quantity
from rnn_scaling.records.tables.measurements import Item, Measurements
from rnn_scaling.records.tables.series import Point, Series, of_column

SUPERLINEAR = 1.2  # times the work per device of any other row
_FEW_SUPERLINEAR = 1.6  # of three rows
_LEAST_GROWTH = 0.5  # times the devices, of numbers whose header says nothing
_SLIPPED = 4.0  # times below both neighbours
_LEAST_SPEEDUP = 1.5  # of times; else it is weak scaling, or nothing was gained
_LONG = 4  # significant digits that two measurements do not share by chance
_MEASURES = (Quantity.RATE, Quantity.SPEEDUP, Quantity.SECONDS)


@dataclasses.dataclass(frozen=True)
class Outlier:
    """A number that is possible and unlikely."""

    kind: str  # "superlinear", "below", "copy" or "order"
    item: Item
    fits: Bounds  # of likely values
    other: Item | None = None  # the number that it contradicts


def series(found: Measurements) -> Iterator[Series]:
    """Yield every series of at least three points, of every measure."""
    for column in found.columns:
        is_measure = column.quantity in _MEASURES
        may_be_measure = not column.quantity and not column.is_exact
        if not is_measure and not may_be_measure:
            continue
        for one in of_column(found, column):
            if len(one.points) > 2 and (is_measure or _grows(one.points)):
                yield one


def _grows(points: Sequence[Point]) -> bool:
    """Return whether numbers grow about as the devices do."""
    first, last = (point.value / point.devices for point in (points[0], points[-1]))
    return _LEAST_GROWTH < last / first < SUPERLINEAR


def outliers(found: Measurements, measured: Sequence[Series]) -> Iterator[Outlier]:
    """Yield the outliers of a table with its series."""
    yield from _orders(found)
    for one in measured:
        yield from _of_series(one)
        yield from _copies(one)


def _of_series(one: Series) -> Iterator[Outlier]:
    points = one.points
    is_time = one.column.quantity == Quantity.SECONDS
    items = [point.item for point in points]
    speeds = [1 / item.high if is_time else item.low for item in items]
    if is_time and speeds[-1] < _LEAST_SPEEDUP * speeds[0]:
        return
    per_device = [speed / point.devices for speed, point in zip(speeds, points)]
    second, best = sorted(per_device)[-2:]
    least = SUPERLINEAR if len(points) > 3 else _FEW_SUPERLINEAR
    for k in range(1, len(points)):
        count = points[k].devices
        most = second if per_device[k] == best else best
        neighbours = [speeds[k - 1], *speeds[k + 1 : k + 2]]
        kind = ""
        if per_device[k] > least * most:
            kind = "superlinear"
            likely = count * min(per_device[k - 1], most), count * most
        elif len(neighbours) == 2 and speeds[k] * _SLIPPED < min(neighbours):
            kind = "below"
            likely = min(neighbours), max(neighbours)
        if kind:
            if is_time:
                likely = 1 / likely[1], 1 / likely[0]
            yield Outlier(kind, items[k], likely)


def _copies(one: Series) -> Iterator[Outlier]:
    """Yield the one number that is printed for two numbers of devices."""
    items = [point.item for point in one.points]
    texts = [item.number.text for item in items]
    is_speedup = one.column.quantity == Quantity.SPEEDUP
    if is_speedup or len(set(texts)) != len(texts) - 1:
        return
    for k, item in enumerate(items):
        value = item.number.value
        is_long = item.number.digits >= _LONG
        is_long &= not math.isclose(value, round(value, -2))
        if texts[k] in texts[:k] and is_long:
            first = items[texts.index(texts[k])]
            yield Outlier("copy", item, (math.nan, math.nan), first)


def _orders(found: Measurements) -> Iterator[Outlier]:
    """Yield the one row in which a column exceeds another one that it cannot exceed."""
    for low, high in itertools.permutations(found.columns, 2):
        is_alike = low.quantity == high.quantity and low.factor == high.factor
        if not is_alike or not headers.is_below(low.name, high.name):
            continue
        pairs = [(a, b) for a, b in zip(low.items, high.items) if a and b]
        above = [(a, b) for a, b in pairs if a.low > b.high]
        if len(above) == 1 and len(pairs) > 2 and not above[0][0].number.is_rough:
            ((item, other),) = above
            yield Outlier("order", item, (-math.inf, other.high), other)
