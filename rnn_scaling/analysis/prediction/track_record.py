"""Predictions against what was measured later: how often their intervals held, and how far off they were."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.curves import Curve, Prediction
from rnn_scaling.analysis.rows import Row, process_rates
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.records import predictions
from rnn_scaling.records.predictions import Fitted, KeptPrediction, Predicted

MOST = 3  # cases of a report
FACTORS = (2, 4, 8)  # ends of the classes of extrapolation: predicted / largest fitted number of devices
Measured = tuple[Interval, Fitted]  # the rate on some devices, and what it was made from
MeasuredSeries = Mapping[int, Measured]  # by number of devices


@dataclasses.dataclass(frozen=True)
class Case:
    """A predicted point that was measured later."""

    prediction: KeptPrediction
    point: Predicted
    measured: Interval

    @property
    def key(self) -> tuple[object, ...]:
        """The same for the same prediction, wherever it is kept."""
        return self.prediction.runs, self.point.key

    @property
    def factor(self) -> float:
        """How far it was extrapolated."""
        return self.point.devices / self.prediction.fitted[-1].devices

    @property
    def is_hit(self) -> bool:
        """Whether the measured rate, give or take its own noise, is inside of the interval.

        Both errors are independent, so their squares add up: a side of the interval and half of the measurement's.
        """
        off = math.log(self.measured.value / self.point.rate)
        side = math.log((self.point.high if off > 0 else self.point.low) / self.point.rate)
        ends = self.measured.ends
        margin = math.log(ends[1] / ends[0]) / 2 if ends else self.measured.rounding
        return abs(off) <= math.hypot(side, margin) * (1 + 1e-9)

    def statement(self) -> Statement:
        """Hit or miss, with the numbers."""
        values = {
            "devices": self.point.devices,
            "predicted": interval_values(Interval(self.point.rate, self.point.low, self.point.high)),
            "measured": interval_values(self.measured),
            "fitted": self.prediction.fitted[-1].devices,
            "date": self.prediction.date,
            "version": self.prediction.version,
            "source": self.prediction.source,
        }
        return Statement("predict-hit" if self.is_hit else "predict-miss", self.prediction.series, values)


def of_curve(curve: Curve, rows: Sequence[Row] = ()) -> MeasuredSeries:
    """The measured rates of a curve; `rows`: those of its points, none for a table."""
    printed = [
        (p.devices, Interval(p.rate).printed(p.rounding), Fitted(devices=p.devices, rates=(p.rate,)))
        for p in curve.points
    ]
    return of_rows(rows) if rows else {n: (rate, fitted) for n, rate, fitted in printed}


def of_rows(rows: Sequence[Row]) -> MeasuredSeries:
    """The measured rates of the rows of a series, and of its baseline."""
    every = [*filter(None, [rows[0].one_device]), *rows]
    return {
        row.num_devices: (row.rate, Fitted(devices=row.num_devices, rates=tuple(process_rates(row.good))))
        for row in every
        if row.rate
    }


def known(folder: Path, measured: Sequence[MeasuredSeries]) -> list[Statement]:
    """How often the intervals that are kept in a folder held, and its first cases; empty without a case."""
    cases = judge(predictions.read(folder).predictions, measured)
    return [tally(cases), *(case.statement() for case in cases[:MOST])] if cases else []


def kept(prediction: Prediction, measured: MeasuredSeries, date: str, version: str) -> KeptPrediction:
    """A prediction as it is kept, without points that are measured."""
    curve = prediction.curve
    return KeptPrediction(
        date=date,
        version=version,
        source=curve.source,
        series=curve.name,
        unit=curve.unit,
        scaling=curve.scaling,
        fitted=tuple(fitted for _, fitted in measured.values()),
        points=tuple(
            Predicted(devices=point.devices, rate=point.rate.value, low=ends[0], high=ends[1])
            for point in prediction.points
            if point.devices not in measured and (ends := point.rate.ends)
        ),
        weights=prediction.weights,
    )


def judge(made: Iterable[KeptPrediction], measured: Iterable[MeasuredSeries]) -> list[Case]:
    """The predicted points that were measured since; those of equal predictions once.

    A prediction belongs to the series that has all runs that it was fitted to.
    """
    places = {key: series for series in measured for _, runs in series.values() for key in runs.keys}
    cases: dict[object, Case] = {}
    for prediction in made:
        series = places.get(next(iter(prediction.runs)), {})
        if not prediction.runs <= frozenset().union(*(runs.keys for _, runs in series.values())):
            continue
        used = {fitted.devices for fitted in prediction.fitted}
        for point in prediction.points:
            if point.devices in series and point.devices not in used:
                case = Case(prediction, point, series[point.devices][0])
                cases.setdefault(case.key, case)
    return list(cases.values())


def tally(cases: Sequence[Case], kind: str = "track-record", **values: int) -> Statement:
    """How often intervals held, and the median error."""
    if not cases:
        return Statement("track-record-none")
    error = statistics.median(abs(case.point.rate / case.measured.value - 1) for case in cases)
    held = sum(case.is_hit for case in cases)
    return Statement(kind, values={"cases": len(cases), "held": held, "error": error, **values})


def by_factor(cases: Sequence[Case]) -> list[Statement]:
    """The tally of each class of extrapolation that has cases."""
    made = []
    for low, high in zip((0, *FACTORS), (*FACTORS, math.inf)):
        if members := [case for case in cases if low < case.factor <= high]:
            kind = "track-record-near" if high == FACTORS[0] else "track-record-far"
            made.append(tally(members, kind, factor=FACTORS[0] if high == FACTORS[0] else low))
    return made
