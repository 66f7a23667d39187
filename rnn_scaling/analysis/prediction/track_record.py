"""Predictions against what was measured later: how often their intervals held, and how far off they were."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rnn_scaling.analysis.machines import by_machine
from rnn_scaling.analysis.rows import Row, process_rates, with_baselines
from rnn_scaling.analysis.series_titles import by_series
from rnn_scaling.records import folder as folders
from rnn_scaling.records import predictions
from rnn_scaling.records.folder import Folder
from rnn_scaling.records.predictions import Fitted, Kept, KeptPrediction, Predicted

FACTORS = (2.0, 4.0, 8.0, math.inf)  # largest extrapolation of each class: predicted n / largest fitted n


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was measured on some devices: the rate with half of its interval's width in the logarithm, and all rates."""

    rate: float
    margin: float  # 0: no noise is known
    rates: tuple[float, ...]


MeasuredSeries = Mapping[int, Measured]  # by number of devices


@dataclasses.dataclass(frozen=True)
class Case:
    """A predicted point that was measured later."""

    prediction: KeptPrediction
    point: Predicted
    measured: float
    margin: float

    @property
    def devices(self) -> int:
        return self.point.devices

    @property
    def key(self) -> tuple[object, ...]:
        """The same for the same prediction, wherever it is kept."""
        return self.prediction.key, self.point.key

    @property
    def factor(self) -> float:
        """How far it was extrapolated: predicted over largest fitted number of devices."""
        return self.devices / self.prediction.fitted[-1].devices

    @property
    def error(self) -> float:
        """Predicted over measured rate, less 1."""
        return self.point.rate / self.measured - 1

    @property
    def is_hit(self) -> bool:
        """Whether the measured rate, give or take its own noise, is inside of the interval.

        Both errors are independent, so their squares add up: a side of the interval and the margin of the measurement.
        """
        off = math.log(self.measured / self.point.rate)
        side = math.log((self.point.high if off > 0 else self.point.low) / self.point.rate)
        return abs(off) <= math.hypot(side, self.margin) * (1 + 1e-9)


@dataclasses.dataclass(frozen=True)
class Tally:
    """How often intervals held. error: median of the absolute errors, None without a case."""

    cases: int
    held: int
    error: float | None


def tally(cases: Sequence[Case]) -> Tally:
    errors = [abs(case.error) for case in cases]
    return Tally(len(cases), sum(case.is_hit for case in cases), statistics.median(errors) if errors else None)


def by_factor(cases: Sequence[Case]) -> dict[float, Tally]:
    """The tally of each class of FACTORS that has cases, by its upper end."""
    classes: dict[float, list[Case]] = {}
    for case in cases:
        classes.setdefault(next(end for end in FACTORS if case.factor <= end), []).append(case)
    return {end: tally(classes[end]) for end in FACTORS if end in classes}


def judge(kept: Iterable[KeptPrediction], measured: Sequence[MeasuredSeries]) -> list[Case]:
    """The predicted points that were measured since; those of equal predictions once.

    A prediction belongs to the series that has all rates that it was fitted to.
    """
    places: dict[tuple[int, str], MeasuredSeries] = {}
    for series in measured:
        for n in series:
            places.update(((n, rate), series) for rate in _keys(series, n))
    cases: dict[tuple[object, ...], Case] = {}
    for prediction in kept:
        first = prediction.fitted[-1]
        series = places.get((first.devices, next(iter(first.key[1]))), {})
        if not all(fitted.key[1] <= _keys(series, fitted.devices) for fitted in prediction.fitted):
            continue
        used = {fitted.devices for fitted in prediction.fitted}
        for point in prediction.points:
            if point.devices in series and point.devices not in used:
                later = series[point.devices]
                case = Case(prediction, point, later.rate, later.margin)
                cases.setdefault(case.key, case)
    return list(cases.values())


def _keys(series: MeasuredSeries, devices: int) -> frozenset[str]:
    """What identifies the rates of a series on some devices."""
    return Fitted(devices=devices, rates=series[devices].rates).key[1] if devices in series else frozenset()


def of_rows(rows: Sequence[Row]) -> list[MeasuredSeries]:
    """The measured rates of each series of one machine's rows."""
    return [{row.num_devices: _measured(row) for row in members if row.rate} for members in by_series(rows)]


def _measured(row: Row) -> Measured:
    rate = row.rate
    assert rate is not None
    ends = rate.ends
    margin = math.log(ends[1] / ends[0]) / 2 if ends else row.rounding
    return Measured(rate.value, margin, tuple(process_rates(row.good)))


def of_folder(folder: Path, kept: Kept | None = None, content: Folder | None = None) -> list[Case]:
    """The cases of the predictions that are kept in a folder; its runs are read only if there are some.

    Raises OSError.
    """
    kept = predictions.read(folder) if kept is None else kept
    if not kept.predictions:
        return []
    content = folders.read(folder) if content is None else content
    machines = by_machine([file.record for file in content.runs]).values()
    return judge(kept.predictions, [series for records in machines for series in of_rows(with_baselines(records))])
