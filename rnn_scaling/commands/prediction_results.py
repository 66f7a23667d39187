"""The answers of `predict` for a folder, a table or kept predictions.

`predict` calls one function per kind of source. Numbers come from
`analysis.prediction`.
"""

import dataclasses
import datetime
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rnn_scaling.analysis import prices
from rnn_scaling.analysis.prediction import changes, predicting, sizing
from rnn_scaling.analysis.prediction import track_record as records
from rnn_scaling.analysis.prediction.changes import Change, Sensitivity
from rnn_scaling.analysis.prediction.curves import CannotPredict, Prediction
from rnn_scaling.analysis.prediction.from_rows import MeasuredSeries
from rnn_scaling.analysis.prediction.sizing import Sizes
from rnn_scaling.analysis.prediction.track_record import CheckedPoint
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.commands.prediction_options import PredictionOptions, make_link
from rnn_scaling.commands.prediction_series import choose, read_series
from rnn_scaling.records import predictions
from rnn_scaling.reports import report_files
from rnn_scaling.reports.page import prediction as page
from rnn_scaling.reports.pictures import prediction as pictures
from rnn_scaling.reports.prediction import (
    PredictionReport,
    format_changes,
    format_changes_json,
    format_text,
    to_json,
)
from rnn_scaling.reports.wording import write_sentence
from rnn_scaling.system import entry
from rnn_scaling.system.files import terminal

Answer = TypeVar("Answer")
_DEFAULT_FOLDER = Path("results")  # folder whose subfolders have predictions


def predict(options: PredictionOptions) -> PredictionReport:
    """Predict the chosen series, and keep the predictions of a folder.

    Raises:
      Refusal: If no series can be predicted.
    """
    source = options.source
    [machine_prices] = prices.read_price_lists(options.machines, options.machine)
    all_series = read_series(source, options)
    rows = _list_rows(all_series)
    answers, refusals = collect_answers(
        choose(all_series, options.series),
        lambda series: _predict_series(series, options, machine_prices, rows),
    )
    predicted_series, made_predictions, all_sizes = zip(*answers)
    cases: dict[object, CheckedPoint] = {}
    if source.is_dir():
        cases = records.read_cases(source, [series.rows for series in all_series])
        _keep(source, zip(predicted_series, made_predictions))
    other_cases = _find_cases([_DEFAULT_FOLDER], excluded=source)
    total = records.summarize({**other_cases, **cases}.values())
    record = (total, *(case.statement() for case in cases.values()))
    return PredictionReport(
        str(source),
        predictions=made_predictions,
        refused=refusals,
        record=record,
        sizes=all_sizes,
    )


def _predict_series(
    series: MeasuredSeries,
    options: PredictionOptions,
    machine_prices: prices.PriceList,
    all_rows: Sequence[Row],
) -> tuple[MeasuredSeries, Prediction, Sizes]:
    """Return the series, which may now be on equal machines, and its prediction."""
    if options.num_devices:
        prediction = series.predict(options.num_devices, options.far)
    else:
        series = series.on_equal_machines()
        prediction = series.predict(series.default_devices)
    price = machine_prices.chosen
    if series.rows:
        price = machine_prices.match(series.rows[-1].good_runs[0])
    devices_per_machine = series.curve.knowledge.devices_per_machine
    if series.curve.counts_machines:
        devices_per_machine = 1
    sizes = sizing.compute_sizes(
        prediction,
        series_rows=series.rows,
        all_rows=all_rows,
        items=options.items,
        priced=price,
        devices_per_machine=devices_per_machine or options.devices_per_machine,
        max_global_batch=options.max_global_batch,
    )
    return series, prediction, sizes


def _list_rows(all_series: Iterable[MeasuredSeries]) -> list[Row]:
    rows: list[Row] = []
    for series in all_series:
        rows += series.rows
    return rows


def _keep(folder: Path, answers: Iterable[tuple[MeasuredSeries, Prediction]]) -> None:
    """Write predictions to a subfolder; a failure is only a warning."""
    written_at = datetime.datetime.now(datetime.timezone.utc).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )
    try:
        for series, prediction in answers:
            kept_prediction = records.make_kept_prediction(
                prediction, series.rows, written_at, entry.VERSION
            )
            predictions.write(kept_prediction, folder)
    except OSError as e:
        reason = e.strerror or e
        entry.warn(
            f"{folder / predictions.FOLDER}: {reason}; the prediction is not kept"
        )


def collect_answers(
    items: Iterable[Any], answer: Callable[[Any], Answer]
) -> tuple[list[Answer], tuple[Statement, ...]]:
    """Return the answers, and a statement for each item without one; warn of these.

    Raises:
      Refusal: If there is no answer.
    """
    answers = []
    refusals = []
    for item in items:
        try:
            answers.append(answer(item))
        except CannotPredict as e:
            refusals.append(e.statement)
    lines = [write_sentence(statement) for statement in refusals]
    if not answers:
        raise entry.Refusal(*lines)
    entry.warn(*lines)
    return answers, tuple(refusals)


def predict_changes(options: PredictionOptions) -> list[Sensitivity]:
    """Return the effect of the changes on each series, per number of devices.

    Raises:
      Refusal: If no series can be predicted.
    """
    all_series = read_series(options.source, options)
    rows = _list_rows(all_series)
    user_changes = _read_changes(dict(options.what_if or ()))
    effects = []

    def add_effects(series: MeasuredSeries) -> None:
        curve = series.curve
        devices = options.num_devices or (curve.points[-1].devices,)
        prediction = series.predict(devices, options.far)
        compared = changes.list_changes_to_compare(curve, user_changes)
        share = sizing.find_fixed_share(series.rows[-1], rows) if series.rows else None
        left_out = []
        for statement in prediction.statements:
            if statement.kind == "prediction-left-out-far":
                left_out.append(statement)
        for point in prediction.points:
            effect = changes.compute_sensitivity(
                prediction, point.devices, compared, share
            )
            statements = list(effect.statements)
            if len(compared) < len(user_changes):
                statements.append(Statement("whatif-link-left-out"))
            statements += _make_memory_statements(
                series,
                rows=rows,
                devices=point.devices,
                compared=compared,
                options=options,
            )
            statements += left_out
            effects.append(dataclasses.replace(effect, statements=tuple(statements)))

    collect_answers(choose(all_series, options.series), add_effects)
    return effects


def _read_changes(amounts: dict[str, float]) -> list[Change]:
    """Return the changes of --what_if; an empty list if it has no value."""
    changes_to_show = [
        Change(name, amounts[name]) for name in changes.FACTORS if name in amounts
    ]
    if changes.LINK in amounts:
        link = make_link(amounts[changes.LINK], amounts.get("latency_us", 0.0))
        changes_to_show.append(Change(changes.LINK, link=link))
    return changes_to_show


def _make_memory_statements(
    series: MeasuredSeries,
    rows: Sequence[Row],
    devices: int,
    compared: Sequence[Change],
    options: PredictionOptions,
) -> list[Statement]:
    """Return the memory that a changed batch size needs, if it is known."""
    for change in compared:
        if change.kind == changes.BATCH and series.rows:
            gib = sizing.estimate_memory_gib(
                series.rows[-1],
                rows=rows,
                devices=devices,
                batch_factor=change.factor,
                per_machine=options.devices_per_machine,
            )
            if gib:
                return [state("size-memory", change=change.title, gib=gib)]
    return []


def print_report(
    report: PredictionReport, options: PredictionOptions, name: str
) -> None:
    """Print predictions or simulations; write JSON, page and picture to --output."""
    files: dict[str, Callable[[], bytes]] = {"json": lambda: to_json(report)}
    if options.output and report.predictions:
        title = f"{name.capitalize()} from {report.source}"
        drawn_predictions = list(report.predictions)
        drawn_predictions[: pictures.MAX_SERIES] = map(
            _refine, drawn_predictions[: pictures.MAX_SERIES]
        )
        files["html"] = lambda: page.render(report, drawn_predictions, title)
        files["png"] = lambda: pictures.render(drawn_predictions)
    renderers_by_name = {f"{name}.{kind}": render for kind, render in files.items()}
    _print(format_text(report), renderers_by_name, options)


def print_changes(
    sensitivities: Sequence[Sensitivity], options: PredictionOptions
) -> None:
    """Print the effects of changes; write JSON and picture to --output."""
    files = {
        "whatif.json": lambda: format_changes_json(sensitivities),
        "whatif.png": lambda: pictures.render_changes(sensitivities),
    }
    _print(format_changes(sensitivities), files, options)


def _print(
    lines: str, files: Mapping[str, Callable[[], bytes]], options: PredictionOptions
) -> None:
    """Write the files; print the first one, which is JSON, or the text."""
    if options.output:
        report_files.write_files(files, options.output, force=False)
    if options.format == "json":
        print(next(iter(files.values()))().decode(), end="")
    else:
        terminal.print_fitted(lines)


def _refine(prediction: Prediction) -> Prediction:
    """Add powers of two to a prediction, so that it is fine enough to draw.

    A simulation is not changed.
    """
    if prediction.is_simulated:
        return prediction
    known_counts = {point.devices for point in prediction.points}
    known_counts.update(point.devices for point in prediction.curve.points)
    powers = {
        2**k for k in range(max(known_counts).bit_length()) if 2**k > min(known_counts)
    }
    finer = predicting.predict(prediction.curve, sorted(known_counts | powers))
    return dataclasses.replace(prediction, points=finer.points)


def check_track_record(sources: Sequence[Path]) -> PredictionReport:
    """Return the share of predictions in folders and subfolders that held."""
    sources = sources or [_DEFAULT_FOLDER]
    cases = _find_cases(sources).values()
    record = (records.summarize(cases), *(case.statement() for case in cases))
    return PredictionReport(" ".join(map(str, sources)), record=record)


def _find_cases(
    sources: Sequence[Path], excluded: Path | None = None
) -> dict[object, CheckedPoint]:
    """Return the cases of folders and all their subfolders, except one of them."""
    folders = []
    for source in sources:
        for path, subfolders, _ in os.walk(source):
            if predictions.FOLDER in subfolders:
                folders.append(Path(path))
    cases: dict[object, CheckedPoint] = {}
    for folder in sorted(folders):
        if excluded is not None and folder.resolve() == excluded.resolve():
            continue
        try:
            all_series = read_series(folder, PredictionOptions())
        except entry.Refusal:  # The runs of the prediction were removed.
            continue
        cases |= records.read_cases(folder, [series.rows for series in all_series])
    return cases
