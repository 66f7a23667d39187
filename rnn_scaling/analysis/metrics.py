"""The table of metrics: what is new is one row, and every table, file, picture and `compare --metric` has it.

A name or title says "items" where the unit of what a run counts stands: items_per_second of words is words_per_second.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable

from rnn_scaling.analysis.confidence import Interval, ratio
from rnn_scaling.records.record import RunRecord

ITEMS = "items"


@dataclasses.dataclass(frozen=True)
class Measured:
    """What the metrics of one configuration are computed from.

    Attributes:
      runs: its good runs.
      num_devices: on which they ran.
      rate: items/s; None without a good run.
      one_device: items/s of the same configuration on one device; None if that was not measured.
    """

    runs: tuple[RunRecord, ...]
    num_devices: int
    rate: Interval | None
    one_device: Interval | None


Compute = Callable[[Measured], Interval | None]


@dataclasses.dataclass(frozen=True)
class Metric:
    """One row of the table.

    Attributes:
      name: in CSV, JSON, file names and on the command line.
      title: in sentences, notes and pictures.
      unit: of a printed number; "" without one.
      factor: printed number / computed one.
      digits: of a printed number after the point.
      compute: the number in SI units, with its interval; None where it cannot be known.
      header: of a table's column, where title and unit do not say it.
      ideal: what perfect scaling gives on n devices; such a metric needs runs on one device. None: there is no ideal.
      always: has its column in every report; another one only where a row has a value.
      compared: more of it is faster, so that `compare` can judge it.
      formerly: a name that `compare --metric` still takes.
    """

    name: str
    title: str
    unit: str
    factor: float
    digits: int
    compute: Compute
    header: str = ""
    ideal: Callable[[int], float] | None = None
    always: bool = False
    compared: bool = True
    formerly: str = ""

    def of(self, unit: str) -> Metric:
        """The same, named after what is counted: `unit` is "words" or "tokens", or "items" for whatever it is."""
        texts = {name: getattr(self, name).replace(ITEMS, unit) for name in ("name", "title", "unit", "header")}
        return dataclasses.replace(self, **texts)

    @property
    def column(self) -> str:
        """The header of a table's column, with the unit."""
        title = self.title[:1].upper() + self.title[1:]
        return self.header or (f"{title} ({self.unit})" if self.unit not in ("", self.title) else title)

    @property
    def caption(self) -> str:
        """What stands over a picture, with the unit."""
        unit = f"{self.unit} of ideal" if self.ideal and self.unit else self.unit
        return self.title if unit in ("", self.title) else f"{self.title}, {unit}"

    def printed(self, value: Interval | None) -> Interval | None:
        """A computed number in the unit that is printed."""
        return value if value is None or self.factor == 1 else value.scaled(self.factor)


def _rate(measured: Measured) -> Interval | None:
    """Items of the measured batches over the seconds of the same batches."""
    return measured.rate


def _speedup(measured: Measured) -> Interval | None:
    """items/s on n devices / items/s on one; on one device 1 by definition, without uncertainty."""
    if measured.rate is None or measured.one_device is None:
        return None
    if measured.num_devices == 1:
        return Interval(1.0, 1.0, 1.0, "by definition", 0.0, math.inf, ())
    return ratio(measured.rate, measured.one_device)


def _efficiency(measured: Measured) -> Interval | None:
    """Speedup / n."""
    speedup = _speedup(measured)
    return speedup if speedup is None or measured.num_devices == 1 else speedup.scaled(1 / measured.num_devices)


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            *("items_per_second", "items/s", "items/s", 1, 1, _rate),
            header="Processing speed (items/s)",
            always=True,
            formerly="words_per_second",
        ),
        Metric(*("speedup", "speedup", "", 1, 2, _speedup), header="Speedup ratio", ideal=float, always=True),
        Metric("efficiency", "efficiency", "%", 100, 1, _efficiency, ideal=lambda n: 1.0, always=True),
    )
}
RATE, SPEEDUP, EFFICIENCY = (METRICS[name] for name in ("items_per_second", "speedup", "efficiency"))
CHOICES = tuple(name for each in METRICS.values() if each.compared for name in (each.name, each.formerly) if name)


def named(name: str) -> Metric:
    """The metric of this name, or of this former one.

    Raises:
      ValueError: if the table has no such metric.
    """
    for metric in METRICS.values():
        if name and name in (metric.name, metric.formerly):
            return metric
    raise ValueError(f"expected one of {', '.join(METRICS)}, got {name!r}")


def unit_of(record: RunRecord) -> str:
    """What a run counts: "words" or "tokens"."""
    return record.unit


def common_unit(units: Iterable[str]) -> str:
    """The only unit; "items" where there are several, or none."""
    different = set(units)
    return different.pop() if len(different) == 1 else ITEMS
