"""Compare kept predictions with later measurements.

A prediction *held* at a point if the measured rate is inside its interval. `predict`
keeps its answers and states how often the earlier ones held.
"""

import dataclasses
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.machines import count_nodes
from rnn_scaling.analysis.prediction import predicting
from rnn_scaling.analysis.prediction.curves import Prediction
from rnn_scaling.analysis.rows import Row, run_rates
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records import predictions
from rnn_scaling.records.predictions import Fitted, KeptPrediction, Predicted
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system import entry


@dataclasses.dataclass(frozen=True)
class CheckedPoint:
    """A predicted point that was measured later.

    Attributes:
      prediction: The prediction that the point is from.
      point: The predicted rate on a number of devices, and its interval.
      measured: The rate that was measured later on as many devices.
    """

    prediction: KeptPrediction
    point: Predicted
    measured: Interval

    @property
    def is_hit(self) -> bool:
        """Whether the predicted interval, which includes noise, contains the rate."""
        return self.point.low <= self.measured.value <= self.point.high

    def statement(self) -> Statement:
        """State whether the prediction held at this point."""
        predicted = Interval(self.point.rate, self.point.low, self.point.high)
        kind = "predict-hit" if self.is_hit else "predict-miss"
        return state(
            kind,
            self.prediction.name,
            devices=self.point.devices,
            fitted=self.prediction.fitted[-1].devices,
            predicted=predicted,
            measured=self.measured,
        )


def make_kept_prediction(
    prediction: Prediction, rows: Sequence[Row] = (), date: str = "", version: str = ""
) -> KeptPrediction:
    """Return the part of a prediction that is kept in a file, without measured points.

    Args:
      prediction: From rows or from a table.
      rows: Rows of the series, sorted by number of devices; empty for a table.
      date: The time of the prediction.
      version: The version of the program.
    """
    curve = prediction.curve
    measured_counts = {point.devices for point in curve.points}
    points = []
    for point in prediction.points:
        if point.devices in measured_counts or not point.rate.ends:
            continue
        low, high = point.rate.ends
        kept_point = Predicted(
            devices=point.devices,
            rate=point.rate.value,
            low=low,
            high=high,
            efficiency=point.efficiency.value if point.efficiency else None,
            parts=point.parts,
        )
        points.append(kept_point)
    answer = predicting.answer(prediction)
    statements = [*answer, *predicting.state_assumptions(prediction)]
    return KeptPrediction(
        date=date,
        version=version,
        source=curve.source,
        name=curve.name,
        unit=curve.unit,
        scaling=curve.scaling,
        fitted=tuple(_make_fitted(row, row.counted_runs) for row in rows),
        predicted=tuple(points),
        models=prediction.weights,
        statements=tuple(statement.data() for statement in statements),
        machines=prediction.machines,
    )


def read_cases(
    folder: Path, series_rows: Iterable[Sequence[Row]]
) -> dict[object, CheckedPoint]:
    """Return the checked points of a folder's predictions, given each series' rows."""
    kept_predictions, left_out = predictions.read(folder)
    entry.warn(*(f"{line}; left out" for line in left_out))
    return find_cases(kept_predictions, series_rows)


def find_cases(
    kept_predictions: Sequence[KeptPrediction], series_rows: Iterable[Sequence[Row]]
) -> dict[object, CheckedPoint]:
    """Return the predicted points that were measured later.

    A prediction belongs to the series that has all runs that it was fitted to. If it
    was made for several machines, it is only compared with runs on that many machines.

    Args:
      kept_predictions: The predictions.
      series_rows: The rows of each series.

    Returns:
      The points by key. Copies of a prediction have the same key, so each counts once.
    """
    cases: dict[object, CheckedPoint] = {}
    for rows in series_rows:
        rows_by_devices = _group_rows_by_devices(rows)
        runs = _run_keys(rows_by_devices)
        for prediction in kept_predictions:
            if not prediction.runs <= runs:
                continue
            for case in _check_points(prediction, rows_by_devices):
                key = prediction.runs, case.point.devices, f"{case.point.low:.9g}"
                cases.setdefault(key, case)
    return cases


def _check_points(
    prediction: KeptPrediction, rows_by_devices: Mapping[int, Row]
) -> Iterator[CheckedPoint]:
    """Yield the points of a prediction whose rate was measured undisturbed."""
    for point in prediction.predicted:
        row = rows_by_devices.get(point.devices)
        if row is None or not _has_undisturbed_rate(row):
            continue
        assert row.rate is not None
        if _has_predicted_machines(prediction, row):
            yield CheckedPoint(prediction, point, row.rate)


def _has_undisturbed_rate(row: Row) -> bool:
    """Return whether a row has a rate without other load and without correction."""
    return row.rate is not None and row.corrected is None and not row.is_slowed


def _group_rows_by_devices(rows: Sequence[Row]) -> dict[int, Row]:
    """Return the rows of a series, and its row on one device, by device count.

    Rows without good runs are left out.
    """
    known_rows = filter(None, (rows[0].one_device, *rows))
    return {row.num_devices: row for row in known_rows if row.good_runs}


def _run_keys(rows_by_devices: Mapping[int, Row]) -> set[predictions.Key]:
    """Return the keys of all good runs, whether they count in their row or not.

    A run that was fitted may no longer count, because quieter runs were added.
    """
    keys: set[predictions.Key] = set()
    for row in rows_by_devices.values():
        keys |= _make_fitted(row, row.good_runs).keys
    return keys


def _make_fitted(row: Row, runs: Sequence[RunRecord]) -> Fitted:
    return Fitted(devices=row.num_devices, rates=tuple(run_rates(runs)))


def _has_predicted_machines(prediction: KeptPrediction, row: Row) -> bool:
    """Return whether a row has the number of machines that was predicted."""
    if prediction.machines is None:
        return True
    return count_nodes(row.good_runs[-1]) == prediction.machines


def summarize(cases: Collection[CheckedPoint]) -> Statement:
    """State how often intervals held, by point and by document, and the median error.

    The errors of points from one document (a folder or a table) are correlated, so a
    second share counts each document once, with the share of its points that held.
    """
    if not cases:
        return state("track-record-none")
    errors = [abs(case.point.rate / case.measured.value - 1) for case in cases]
    hits = [case.is_hit for case in cases]
    by_document = group_by(hits, [case.prediction.source for case in cases])
    shares = list(map(statistics.fmean, by_document.values()))
    return state(
        "track-record",
        cases=len(cases),
        held=sum(hits),
        error=statistics.median(errors),
        documents=len(by_document),
        held_by_document=statistics.fmean(shares),
    )
