"""Predictions against what was measured later: how often their intervals held, and how far off they were."""

import dataclasses
import statistics
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.machines import nodes
from rnn_scaling.analysis.prediction import predicting
from rnn_scaling.analysis.prediction.curves import Prediction
from rnn_scaling.analysis.rows import Row, process_rates
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.records import predictions
from rnn_scaling.records.predictions import Fitted, KeptPrediction, Predicted
from rnn_scaling.system import entry


@dataclasses.dataclass(frozen=True)
class Case:
    """A predicted point that was measured later."""

    prediction: KeptPrediction
    point: Predicted
    measured: Interval

    @property
    def is_hit(self) -> bool:
        """Whether the measured rate is inside of the interval, which includes the noise of a measurement."""
        return self.point.low <= self.measured.value <= self.point.high

    def statement(self) -> Statement:
        """Hit or miss, with the numbers."""
        predicted = Interval(self.point.rate, self.point.low, self.point.high)
        values: dict[str, Any] = {
            "devices": self.point.devices,
            "fitted": self.prediction.fitted[-1].devices,
        }
        values |= {
            "predicted": interval_values(predicted),
            "measured": interval_values(self.measured),
        }
        return Statement(
            "predict-hit" if self.is_hit else "predict-miss",
            self.prediction.name,
            values,
        )


def fitted_runs(rows: Sequence[Row]) -> tuple[Fitted, ...]:
    """The runs of the rows of a series, by rising number of devices."""
    return tuple(
        Fitted(devices=row.num_devices, rates=tuple(process_rates(row.counted_runs)))
        for row in rows
    )


def as_kept(
    prediction: Prediction, rows: Sequence[Row] = (), date: str = "", version: str = ""
) -> KeptPrediction:
    """A prediction from rows, or from a table, as it is kept and written, without points that are measured."""
    curve = prediction.curve
    points = []
    measured = {point.devices for point in curve.points}
    for point in prediction.points:
        if point.devices not in measured and point.rate.ends:
            low, high = point.rate.ends
            share = point.efficiency.value if point.efficiency else None
            rate = Predicted(
                devices=point.devices,
                rate=point.rate.value,
                low=low,
                high=high,
                efficiency=share,
            )
            points.append(dataclasses.replace(rate, parts=point.parts))
    return KeptPrediction(
        date=date,
        version=version,
        source=curve.source,
        name=curve.name,
        unit=curve.unit,
        scaling=curve.scaling,
        fitted=fitted_runs(rows),
        predicted=tuple(points),
        models=prediction.weights,
        statements=tuple(
            s.data()
            for s in (
                *predicting.answer(prediction),
                *predicting.assumptions(prediction),
            )
        ),
    )


def of_folder(folder: Path, every: Iterable[Sequence[Row]]) -> dict[object, Case]:
    """The cases of the predictions that a folder keeps; `every`: the rows of each of its series."""
    kept, left_out = predictions.read(folder)
    entry.warn(*(f"{line}; left out" for line in left_out))
    return judge(kept, every)


def judge(
    made: Sequence[KeptPrediction], every: Iterable[Sequence[Row]]
) -> dict[object, Case]:
    """The predicted points that were measured since, by a key that copies of a prediction share.

    A prediction belongs to the series that has all runs that it was fitted to. If it was
    made for several machines, only runs on that many machines judge it.
    """
    cases: dict[object, Case] = {}
    for series in every:
        rows = {
            row.num_devices: row
            for row in (series[0].one_device, *series)
            if row and row.good_runs
        }
        # All good runs: a fitted one may have been left out since, beside quieter ones.
        runs: frozenset[object] = frozenset()
        for devices, row in rows.items():
            rates = tuple(process_rates(row.good_runs))
            runs |= Fitted(devices=devices, rates=rates).keys
        for prediction in made:
            machines = _stated_machines(prediction)
            for point in prediction.predicted if prediction.runs <= runs else ():
                measured = rows.get(point.devices)
                if measured is None or measured.rate is None:
                    continue
                if machines and nodes(measured.good_runs[-1]) != machines:
                    continue
                key = prediction.runs, point.devices, f"{point.low:.9g}"
                cases.setdefault(key, Case(prediction, point, measured.rate))
    return cases


def _stated_machines(prediction: KeptPrediction) -> int | None:
    """Return for how many machines a prediction was made; None if it does not say."""
    for statement in prediction.statements:
        if isinstance(statement, dict) and statement.get("kind") == "predict-machines":
            values = statement.get("values")
            machines = values.get("machines") if isinstance(values, dict) else None
            return machines if isinstance(machines, int) else None
    return None


def tally(cases: Collection[Case]) -> Statement:
    """Return how often intervals held, by point and by document, and the median error.

    Points of one document err together, so each document also counts once: with the
    share of its points that held. A document is a folder, or a table.
    """
    if not cases:
        return Statement("track-record-none")
    errors = [abs(case.point.rate / case.measured.value - 1) for case in cases]
    by_document: dict[str, list[bool]] = {}
    for case in cases:
        by_document.setdefault(case.prediction.source, []).append(case.is_hit)
    shares = [statistics.fmean(hits) for hits in by_document.values()]
    values = {
        "cases": len(cases),
        "held": sum(case.is_hit for case in cases),
        "error": statistics.median(errors),
        "documents": len(by_document),
        "held_by_document": statistics.fmean(shares),
    }
    return Statement("track-record", values=values)
