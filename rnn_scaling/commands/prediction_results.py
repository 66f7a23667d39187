"""What `predict` finds, from the series of a folder or a table and from the predictions that folders keep."""

import contextlib
import dataclasses
import datetime
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rnn_scaling import entry
from rnn_scaling.analysis.prediction import predicting, sizing
from rnn_scaling.analysis.prediction import track_record as records
from rnn_scaling.analysis.prediction.curves import CannotPredict, Prediction
from rnn_scaling.analysis.prediction.track_record import Case, MeasuredSeries
from rnn_scaling.analysis.prices import NO_PRICES, PriceList
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.commands.prediction_options import PredictionOptions
from rnn_scaling.commands.prediction_series import FolderSeries, chosen, every_series
from rnn_scaling.files import terminal
from rnn_scaling.records import predictions
from rnn_scaling.reports import report_files
from rnn_scaling.reports.prediction import PredictionReport, text, to_json
from rnn_scaling.reports.wording import sentence

Answer = TypeVar("Answer")
DEFAULT_FACTORS = (2, 4, 8)  # times the largest measured n: the default of --num_devices
DEFAULT = Path("results")  # whose subfolders hold predictions


def predict(
    source: Path,
    options: PredictionOptions,
    items: float | None = None,
    prices: PriceList = NO_PRICES,
    max_global_batch: int | None = None,
) -> PredictionReport:
    """Predicts the chosen series, and keeps the predictions of a folder. Raises Refusal if none can be predicted."""
    every = every_series(source, options)
    rows = [row for series in every for row in series.rows]
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    def predicted(series: FolderSeries) -> tuple[Prediction, predictions.KeptPrediction, sizing.Sizes]:
        if series.refusal:
            raise CannotPredict(series.refusal)
        default = tuple(factor * series.curve.points[-1].devices for factor in DEFAULT_FACTORS)
        found = predicting.predict(series.curve, options.devices or default)
        made = dataclasses.replace(found, statements=(*series.assumed, *found.statements))
        priced = prices.match(series.rows[-1].good[0]) if series.rows else prices.chosen
        stated = (items, priced, options.devices_per_machine, max_global_batch)
        kept = records.as_kept(made, _measured(series), now, entry.VERSION)
        return made, kept, sizing.sizes(found, series.rows, rows, *stated)

    results, refused = answered(chosen(every, options.series), predicted)
    made, new, sizes = zip(*results)
    keep_in = source if source.is_dir() else options.output
    cases = _cases(keep_in, [*map(_measured, every)]) if keep_in else []
    total = records.tally(_distinct([*cases, *_below([DEFAULT], keep_in)]))
    if keep_in:
        try:
            for prediction in new:
                predictions.keep(prediction, keep_in)
        except OSError as e:
            entry.warn(f"{keep_in / predictions.FOLDER}: {e.strerror or e}; the prediction is not kept")
    record = (total, *(case.statement() for case in cases))
    return PredictionReport(str(source), made, refused, record, sizes)


def answered(items: Iterable[Any], answer: Callable[[Any], Answer]) -> tuple[list[Answer], tuple[Statement, ...]]:
    """The answers, and why items are refused, of which it warns. Raises Refusal if there is no answer."""
    made, refused = [], []
    for item in items:
        try:
            made.append(answer(item))
        except CannotPredict as e:
            refused.append(e.statement)
    lines = [sentence(statement) for statement in refused]
    if not made:
        raise entry.Refusal(*lines)
    entry.warn(*lines)
    return made, tuple(refused)


def tell(found: PredictionReport, options: PredictionOptions, name: str) -> int:
    """Prints predictions or simulations; with --output also writes them. Raises Refusal if it cannot."""
    if options.output:
        write(found, options.output, name)
    is_json = options.format == "json"
    print(to_json(found).decode(), end="") if is_json else terminal.tell(text(found))
    return entry.EXIT_OK


def write(found: PredictionReport, folder: Path, name: str) -> None:
    """Writes the JSON, the page and the picture of predictions or simulations. Raises Refusal if it cannot."""
    files = {"json": lambda: to_json(found)}
    if found.predictions:
        from rnn_scaling.reports.page import prediction as page  # late: pictures are only made with --output
        from rnn_scaling.reports.pictures import prediction as pictures

        drawn, title = [*map(_refined, found.predictions)], f"{name.capitalize()} from {found.source}"
        files |= {"html": lambda: page.render(found, drawn, title), "png": lambda: pictures.render(drawn)}
    report_files.write({f"{name}.{kind}": render for kind, render in files.items()}, folder, force=False)


def _refined(prediction: Prediction) -> Prediction:
    """The prediction also on the measured numbers and the powers of two, for a curve; a simulation as it is."""
    if "simulation" in prediction.weights:
        return prediction
    known = {*(point.devices for point in prediction.points), *(point.devices for point in prediction.curve.points)}
    powers = {2**k for k in range(max(known).bit_length()) if 2**k > min(known)}
    return dataclasses.replace(prediction, points=predicting.predict(prediction.curve, sorted(known | powers)).points)


def track_record(sources: Sequence[Path]) -> PredictionReport:
    """How often the predictions in folders and their subfolders held."""
    cases = _distinct(_below(sources or [DEFAULT]))
    record = (records.tally(cases), *records.by_factor(cases), *(case.statement() for case in cases))
    return PredictionReport(" ".join(map(str, sources or [DEFAULT])), record=record)


def _measured(series: FolderSeries) -> MeasuredSeries:
    return records.of_rows(series.rows) if series.rows else records.of_curve(series.curve)


def _cases(folder: Path, measured: Sequence[MeasuredSeries] | None = None) -> list[Case]:
    """The predictions of a folder that were measured since, by default in its runs and in the tables they are from."""
    kept, left_out = predictions.read(folder)
    entry.warn(*(f"{line}; left out" for line in left_out))
    if measured is None:
        tables = {Path(old.source.rpartition(":")[0]) for old in kept if ":" in old.source}
        found: list[FolderSeries] = []
        for source in (folder, *sorted(path for path in tables if path.is_file())) if kept else ():
            with contextlib.suppress(entry.Refusal):  # it has no runs, or no tables any more
                found += every_series(source, PredictionOptions())
        measured = [*map(_measured, found)]
    return records.judge(kept, measured)


def _below(sources: Sequence[Path], without: Path | None = None) -> list[Case]:
    """The cases of folders and all their subfolders, but for one of them."""
    found = [Path(place) for source in sources for place, below, _ in os.walk(source) if predictions.FOLDER in below]
    places = [place for place in sorted(found) if without is None or place.resolve() != without.resolve()]
    return [case for place in places for case in _cases(place)]


def _distinct(cases: Sequence[Case]) -> list[Case]:
    """Each case once, wherever it is kept."""
    return [*{case.key: case for case in cases}.values()]
