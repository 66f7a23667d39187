"""The measured series of a table, from which `predict` computes."""

import dataclasses
import statistics
from collections.abc import Iterator

from rnn_scaling.analysis.audit import groups
from rnn_scaling.analysis.audit.tables import Column, View

APART = 1.1  # repeats whose rates differ by more than this factor are different series
MEASURES = ("rate", "each", "seconds", "speedup")  # the first that a table has is used


@dataclasses.dataclass(frozen=True)
class Point:
    """A measured value on one number of devices."""

    devices: float
    measured: float


@dataclasses.dataclass(frozen=True)
class Series:
    """One measure over several numbers of devices, the fewest first."""

    source: str
    line: int
    name: str
    measure: str  # a name of MEASURES
    points: tuple[Point, ...]


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
    by_name: dict[tuple[int, str], dict[float, list[float]]] = {}
    first: dict[tuple[int, str], int] = {}
    separating = groups.separators(view)
    for row, labels in enumerate(view.labels):
        n, item = devices.items[row], column.items[row]
        if n and item and n.low > 0 and item.number.value > 0:
            settings = [
                f"{parameter.name} {setting.number.text}"
                for parameter in separating
                if (setting := parameter.items[row])
            ]
            words = filter(None, (*labels, *settings, column.name))
            key = view.parts[row], ", ".join(words)
            first.setdefault(key, view.lines[row])
            value = (
                item.number.value * n.low
                if column.quantity == "each"
                else item.number.value
            )
            by_name.setdefault(key, {}).setdefault(n.low, []).append(value)
    for key, points in by_name.items():
        if len(points) > 1 and all(
            max(values) <= APART * min(values) for values in points.values()
        ):
            means = tuple(
                Point(n, statistics.geometric_mean(points[n])) for n in sorted(points)
            )
            yield Series(view.table.source, first[key], key[1], column.quantity, means)
