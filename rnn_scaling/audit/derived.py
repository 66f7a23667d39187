"""What a series of a table implies: speedup, efficiency, the gain of each step, the best number of devices."""

import dataclasses
import statistics
from collections.abc import Iterator, Mapping

from rnn_scaling.audit.tables import Column, View

KNEE, FALL = 0.5, 0.9  # gain per device against the first step; speed that a step keeps
APART = 1.1  # repeats whose rates differ by more than this factor are different series
MEASURES = ("rate", "each", "seconds", "speedup")  # the first that a table has is used


@dataclasses.dataclass(frozen=True)
class Point:
    """One number of devices. step: speed relative to the point before, None for the first."""

    devices: float
    measured: float
    speedup: float
    efficiency: float
    step: float | None


@dataclasses.dataclass(frozen=True)
class Series:
    source: str
    line: int
    name: str
    measure: str  # what was read: a name of MEASURES
    points: tuple[Point, ...]
    best: float  # devices of the fastest point
    knee: (
        float | None
    )  # devices beyond which each further one adds less than half of what the first ones do
    fall: tuple[
        float, ...
    ]  # devices between which the speed falls most, () if never by more than a tenth


def series(view: View) -> list[Series]:
    """Every series of a view that has two numbers of devices at least."""
    devices = next((view.columns[k] for k in view.of("devices")), None)
    if devices is None:
        return []
    tried = ([view.columns[k] for k in view.of(quantity)] for quantity in MEASURES)
    made = (
        [found for column in columns for found in _of_column(view, devices, column)]
        for columns in tried
    )
    return next(filter(None, made), [])


def _of_column(view: View, devices: Column, column: Column) -> Iterator[Series]:
    groups: dict[tuple[int, str], dict[float, list[float]]] = {}
    first: dict[tuple[int, str], int] = {}
    for row, labels in enumerate(view.labels):
        n, item = devices.items[row], column.items[row]
        if n and item and n.low > 0 and item.number.value > 0:
            key = view.parts[row], ", ".join(filter(None, (*labels, column.name)))
            first.setdefault(key, view.lines[row])
            value = (
                item.number.value * n.low
                if column.quantity == "each"
                else item.number.value
            )
            groups.setdefault(key, {}).setdefault(n.low, []).append(value)
    for key, points in groups.items():
        if len(points) > 1 and all(
            max(values) <= APART * min(values) for values in points.values()
        ):
            yield _made(view, first[key], key[1], column.quantity, points)


def _made(
    view: View, line: int, name: str, quantity: str, points: Mapping[float, list[float]]
) -> Series:
    counts = sorted(points)
    values = [statistics.geometric_mean(points[n]) for n in counts]
    speeds = [1 / value if quantity == "seconds" else value for value in values]
    steps = list(zip(speeds, speeds[1:], counts, counts[1:]))
    found = []
    for n, value, speed, step in zip(
        counts, values, speeds, [None, *(b / a for a, b, _, _ in steps)]
    ):
        speedup = speed / speeds[0]
        found.append(Point(n, value, speedup, speedup * counts[0] / n, step))
    gains = [(b - a) / (m - n) for a, b, n, m in steps]
    knee = next(
        (counts[k] for k, gain in enumerate(gains) if k and gain < KNEE * gains[0]),
        None,
    )
    kept, between = min((b / a, (n, m)) for a, b, n, m in steps)
    best = counts[max(range(len(speeds)), key=speeds.__getitem__)]
    fall = between if kept < FALL else ()
    return Series(
        view.table.source, line, name, quantity, tuple(found), best, knee, fall
    )
