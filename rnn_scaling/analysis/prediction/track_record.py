"""Predictions against what was measured later: how often their intervals held, and how far off they were."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction import answers
from rnn_scaling.analysis.prediction.curves import Curve, Prediction
from rnn_scaling.analysis.rows import Row, process_rates
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.records.predictions import Fitted, KeptPrediction, Predicted

FACTORS = (1, 2, 4, 8, math.inf)  # classes of extrapolation: predicted / largest fitted number of devices
MeasuredSeries = Mapping[int, tuple[Interval, Fitted]]  # devices -> the rate, and what it was made from


@dataclasses.dataclass(frozen=True)
class Case:
    """A predicted point that was measured later."""

    prediction: KeptPrediction
    point: Predicted
    measured: Interval

    @property
    def key(self) -> object:
        """The same for the same prediction, wherever it is kept."""
        return self.prediction.runs, self.point.devices, f"{self.point.low:.9g}"

    @property
    def fitted(self) -> int:
        """The largest number of devices of the prediction's runs."""
        return self.prediction.fitted[-1].devices

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
        predicted = Interval(self.point.rate, self.point.low, self.point.high)
        values = {"devices": self.point.devices, "fitted": self.fitted, "date": self.prediction.date}
        values |= {"predicted": interval_values(predicted), "measured": interval_values(self.measured)}
        return Statement("predict-hit" if self.is_hit else "predict-miss", self.prediction.name, values)


def of_curve(curve: Curve) -> MeasuredSeries:
    """The measured rates of the curve of a table."""
    rates = {point.devices: Interval(point.rate).printed(point.rounding) for point in curve.points}
    return {n: (rate, Fitted(devices=n, rates=(rate.value,))) for n, rate in rates.items()}


def of_rows(rows: Sequence[Row]) -> MeasuredSeries:
    """The measured rates of the rows of a series, and of its baseline."""
    rated = [row for row in (rows[0].one_device, *rows) if row and row.good]
    fitted = [Fitted(devices=row.num_devices, rates=tuple(process_rates(row.good))) for row in rated]
    return {row.num_devices: (row.rate, runs) for row, runs in zip(rated, fitted) if row.rate}


def as_kept(prediction: Prediction, measured: MeasuredSeries, date: str = "", version: str = "") -> KeptPrediction:
    """A prediction as it is kept and written, without points that are measured."""
    curve, points = prediction.curve, []
    for point in prediction.points:
        if point.devices not in measured and point.rate.ends:
            low, high = point.rate.ends
            share = point.efficiency.value if point.efficiency else None
            rate = Predicted(devices=point.devices, rate=point.rate.value, low=low, high=high, efficiency=share)
            points.append(dataclasses.replace(rate, parts=point.parts))
    return KeptPrediction(
        date=date,
        version=version,
        source=curve.source,
        name=curve.name,
        unit=curve.unit,
        scaling=curve.scaling,
        fitted=tuple(runs for _, runs in measured.values()),
        predicted=tuple(points),
        models=prediction.weights,
        statements=tuple(s.data() for s in (*answers.answer(prediction), *answers.assumptions(prediction))),
    )


def judge(made: Iterable[KeptPrediction], measured: Iterable[MeasuredSeries]) -> list[Case]:
    """The predicted points that were measured since; those of equal predictions once.

    A prediction belongs to the series that has all runs that it was fitted to.
    """
    known = [(frozenset().union(*(runs.keys for _, runs in series.values())), series) for series in measured]
    cases: dict[object, Case] = {}
    for prediction in made:
        used = {fitted.devices for fitted in prediction.fitted}
        for series in (series for keys, series in known if prediction.runs <= keys):
            for point in prediction.predicted:
                if point.devices in series and point.devices not in used:
                    case = Case(prediction, point, series[point.devices][0])
                    cases.setdefault(case.key, case)
    return list(cases.values())


def tally(cases: Sequence[Case], kind: str = "track-record", **values: float) -> Statement:
    """How often intervals held, and the median error."""
    if not cases:
        return Statement("track-record-none")
    error = statistics.median(abs(case.point.rate / case.measured.value - 1) for case in cases)
    held = sum(case.is_hit for case in cases)
    return Statement(kind, values={"cases": len(cases), "held": held, "error": error, **values})


def by_factor(cases: Sequence[Case]) -> list[Statement]:
    """The tally of each class of extrapolation that has cases."""
    made = []
    for low, high in zip(FACTORS, FACTORS[1:]):
        if members := [case for case in cases if low < case.point.devices / case.fitted <= high]:
            made.append(tally(members, "track-record-class", factor=low))
    return made
