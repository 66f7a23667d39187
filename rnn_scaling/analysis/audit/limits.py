"""What no machine does: a point far above its neighbours, one far below both, a long number printed twice.

Series of one measure over numbers of devices are looked at, as work per device against the fewest devices.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Sequence

from rnn_scaling.analysis.audit import headers
from rnn_scaling.analysis.audit.tables import Column, Item, Ref, View, rows_by

SUPERLINEAR = 1.2  # times the work per device of any other row, above which a point is out of line
FEW_SUPERLINEAR = 1.6  # of three rows
_LEAST_GROWTH = 0.5  # times the devices
SLIPPED = 4.0  # times below both neighbours
MEASURES = ("rate", "speedup", "seconds")
LONG = 4  # significant digits that two measurements do not share by chance
_DIGITS = re.compile(r"[\d.,]+")


@dataclasses.dataclass(frozen=True)
class Outlier:
    """A number that is possible and unlikely. kind: "superlinear", "below" or "copy"; fits: bounds of likely values."""

    kind: str
    item: Item
    fits: tuple[float, float]
    like: Ref | None = None


Points = list[tuple[Item, Item]]  # (devices, measure), by devices
Measured = tuple[Column, Points]


def series(view: View) -> Iterator[Measured]:
    """Yields every series of three points and more of every measure over every count of devices, with its column."""
    counts = [
        column for column in view.columns if column.quantity in ("devices", "setting")
    ]
    found = [
        made for k in view.of("devices") for made in _over(view, view.columns[k], ())
    ]
    yield from found
    for devices in counts if len(counts) > 1 and not found else ():
        yield from _over(
            view, devices, [column for column in counts if column is not devices]
        )


def _over(view: View, devices: Column, others: Sequence[Column]) -> Iterator[Measured]:
    """The series over one count of devices, within rows of the same labels and other counts."""
    settings = [
        tuple(item and item.low for item in items)
        for items in zip(*(column.items for column in others))
    ]
    settings = settings or [()] * len(view.lines)
    groups = rows_by(zip(view.parts, settings, view.labels))
    if all(len(rows) < 3 for rows in groups.values()):  # "Run 1", "Run 2"
        bare = (
            tuple(_DIGITS.sub("", label) for label in labels) for labels in view.labels
        )
        groups = rows_by(zip(view.parts, settings, bare))
    measures = [
        c
        for c in view.columns
        if c.quantity in MEASURES or not (c.quantity or c.is_exact)
    ]
    for column, rows in itertools.product(measures, groups.values()):
        pairs = [(devices.items[row], column.items[row]) for row in rows]
        points = [
            (n, item) for n, item in pairs if n and item and n.low > 0 and item.low > 0
        ]
        points = sorted(points, key=lambda point: point[0].low)
        is_series = len(points) > 2 and len({n.low for n, _ in points}) == len(points)
        if is_series and (column.quantity or _grows(points)):
            yield column, points


def _grows(points: Points) -> bool:
    """Whether numbers without a header that says what they are grow about as the devices do."""
    (n, first), (m, last) = points[0], points[-1]
    return _LEAST_GROWTH < last.low / first.low / (m.low / n.low) < SUPERLINEAR


def outliers(
    view: View, measured: Sequence[Measured], checked: frozenset[Ref]
) -> Iterator[Outlier]:
    """Yields the outliers of every series. checked: numbers that relations confirm, which are never outliers."""
    yield from orders(view)
    for column, points in measured:
        yield from _of_series(column, points, checked)
        yield from _copies(column, points, checked)


def _of_series(
    column: Column, points: Sequence[tuple[Item, Item]], checked: frozenset[Ref]
) -> Iterator[Outlier]:
    """Outliers of one series, by devices."""
    is_time = column.quantity == "seconds"
    speeds = [1 / item.high if is_time else item.low for _, item in points]
    per_device = [speed / n.low for speed, (n, _) in zip(speeds, points)]
    if is_time and speeds[-1] < 1.5 * speeds[0]:
        return  # weak scaling, or nothing gained
    second, best = sorted(per_device)[-2:]
    for k in range(1, len(points)):
        n, item = points[k]
        most = second if per_device[k] == best else best
        neighbours = [speeds[j] for j in (k - 1, k + 1) if j < len(speeds)]
        least = SUPERLINEAR if len(points) > 3 else FEW_SUPERLINEAR
        if item.ref not in checked and per_device[k] > least * most:
            likely = n.low * min(per_device[k - 1], most), n.low * most
            yield Outlier("superlinear", item, _as_printed(likely, is_time))
        elif len(neighbours) == 2 and speeds[k] * SLIPPED < min(neighbours):
            yield Outlier(
                "below", item, _as_printed((min(neighbours), max(neighbours)), is_time)
            )


def _as_printed(bounds: tuple[float, float], is_time: bool) -> tuple[float, float]:
    return (1 / bounds[1], 1 / bounds[0]) if is_time else bounds


def _copies(
    column: Column, points: Sequence[tuple[Item, Item]], checked: frozenset[Ref]
) -> Iterator[Outlier]:
    """Equal long numbers of different numbers of devices."""
    if (
        column.quantity == "speedup"
        or len({item.number.text for _, item in points}) != len(points) - 1
    ):
        return
    texts: dict[str, Item] = {}
    for _, item in points:
        before = texts.setdefault(item.number.text, item)
        is_old = before is not item and item.ref not in checked
        value = item.number.value
        if (
            is_old
            and item.number.digits >= LONG
            and not math.isclose(value, round(value, -2))
        ):
            yield Outlier("copy", item, (math.nan, math.nan), before.ref)


def orders(view: View) -> Iterator[Outlier]:
    """Yields the one row in which a minimum is above its mean, a percentile above a higher one, a part above all."""
    for a, b in itertools.permutations(view.columns, 2):
        if (
            a.quantity == b.quantity
            and a.factor == b.factor
            and headers.is_below(a.name, b.name)
        ):
            pairs = [(low, high) for low, high in zip(a.items, b.items) if low and high]
            above = [(low, high) for low, high in pairs if low.low > high.high]
            if len(above) == 1 and len(pairs) > 2 and not above[0][0].number.is_rough:
                low, high = above[0]
                yield Outlier("order", low, (-math.inf, high.high), high.ref)
