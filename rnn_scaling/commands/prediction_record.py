"""Keeps predictions in the folders of their runs, and finds those of folders with what was measured since."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.analysis.prediction import track_record
from rnn_scaling.analysis.prediction.curves import Curve, Prediction
from rnn_scaling.analysis.prediction.track_record import Case, Measured, MeasuredSeries
from rnn_scaling.analysis.rows import Row, process_rates
from rnn_scaling.commands import prediction_tables
from rnn_scaling.records import predictions
from rnn_scaling.records.predictions import Fitted, Kept, KeptPrediction, Predicted

DEFAULT = Path("results")


def kept_in(folder: Path) -> Kept:
    """The predictions of a folder; warns about files that are left out."""
    try:
        kept = predictions.read(folder)
    except OSError as e:
        kept = Kept(left_out=(f"{folder / predictions.FOLDER}: {e.strerror or e}",))
    entry.warn(*(f"{line}; left out" for line in kept.left_out))
    return kept


def keep(made: Iterable[KeptPrediction], folder: Path) -> int:
    """Adds new predictions to a folder and returns how many; a warning if it cannot be written."""
    count = 0
    try:
        kept = predictions.read(folder)
    except OSError:
        kept = Kept()
    for new in made:
        try:
            count += predictions.keep(new, folder, kept) is not None
        except OSError as e:
            entry.warn(f"{folder / predictions.FOLDER}: {e.strerror or e}; the prediction is not kept")
            break
    return count


def to_keep(
    prediction: Prediction, rows: Sequence[Row] = (), files: Sequence[Sequence[str]] = ()
) -> KeptPrediction | None:
    """A prediction as it is kept: without points that are measured; None if all are.

    Args:
      rows: of the points of its curve, and the files of each row; empty for a table.
    """
    curve = prediction.curve
    measured = {point.devices for point in curve.points}
    points = tuple(
        Predicted(devices=point.devices, rate=point.rate.value, low=ends[0], high=ends[1])
        for point in prediction.points
        if point.devices not in measured and (ends := point.rate.ends)
    )
    if not points:
        return None
    fitted = [Fitted(devices=point.devices, rates=(point.rate,)) for point in curve.points]
    if rows:
        rates = [tuple(process_rates(row.good)) for row in rows]
        counts = [row.num_devices for row in rows]
        fitted = [Fitted(devices=n, rates=r, files=tuple(f)) for n, r, f in zip(counts, rates, files)]
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return KeptPrediction(
        date=now,
        version=entry.VERSION,
        source=curve.source,
        series=curve.name,
        unit=curve.unit,
        scaling=curve.scaling,
        fitted=tuple(fitted),
        points=points,
        weights=prediction.weights,
    )


def of_curves(curves: Iterable[Curve]) -> list[MeasuredSeries]:
    """The measured rates of tables."""
    return [{p.devices: Measured(p.rate, p.rounding, (p.rate,)) for p in curve.points} for curve in curves]


def cases_of(folder: Path, kept: Kept) -> list[Case]:
    """The predictions of a folder that were measured since: by its runs, or by the tables that they were made from."""
    of_runs = tuple(old for old in kept.predictions if any(fitted.files for fitted in old.fitted))
    others = [old for old in kept.predictions if old not in of_runs]
    measured: list[MeasuredSeries] = []
    for path in sorted({Path(old.source.rpartition(":")[0]) for old in others}):
        if path.is_file():
            try:
                measured += of_curves(curve for curve, _ in prediction_tables.curves(path))
            except entry.Refusal:  # it was replaced by something else since
                continue
    try:
        return track_record.of_folder(folder, Kept(of_runs)) + track_record.judge(others, measured)
    except OSError as e:
        entry.warn(f"{folder}: {e.strerror or e}; left out")
        return []


def cases_below(folders: Sequence[Path], without: Path | None = None) -> list[Case]:
    """The cases of folders and all their subfolders, each once; without those of one folder."""
    found: dict[object, Case] = {}
    for folder in folders:
        for place, below, _ in os.walk(folder):
            below.sort()
            if predictions.FOLDER not in below or (without and Path(place).resolve() == without.resolve()):
                continue
            found |= {case.key: case for case in cases_of(Path(place), kept_in(Path(place)))}
    return list(found.values())
