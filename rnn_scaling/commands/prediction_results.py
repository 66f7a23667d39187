"""What `predict` finds in the series of a folder or a table, and in kept predictions."""

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
from rnn_scaling.analysis.prediction.track_record import Case
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.commands.prediction_options import PredictionOptions, link_of
from rnn_scaling.commands.prediction_series import chosen, every_series
from rnn_scaling.records import predictions
from rnn_scaling.reports import report_files
from rnn_scaling.reports.page import prediction as page
from rnn_scaling.reports.pictures import prediction as pictures
from rnn_scaling.reports.prediction import (
    PredictionReport,
    changes_json,
    changes_text,
    text,
    to_json,
)
from rnn_scaling.reports.wording import sentence
from rnn_scaling.system import entry
from rnn_scaling.system.files import terminal

Answer = TypeVar("Answer")
DEFAULT = Path("results")  # its subfolders hold predictions


def predict(options: PredictionOptions) -> PredictionReport:
    """Predict the chosen series, and keep the predictions of a folder.

    Raises:
      Refusal: If no series can be predicted.
    """
    source = options.source
    [listed] = prices.read(options.machines, options.machine)
    every = every_series(source, options)
    rows = _rows(every)

    def answer(series: MeasuredSeries) -> tuple[MeasuredSeries, Prediction, Sizes]:
        if options.num_devices:
            found = series.predict(options.num_devices, options.far)
        else:
            series = series.as_machines()
            found = series.predict(series.default_devices)
        priced = listed.chosen
        if series.rows:
            priced = listed.match(series.rows[-1].good_runs[0])
        per_machine = series.curve.knowledge.devices_per_machine
        if series.curve.counts_machines:
            per_machine = 1
        sized = sizing.sizes(
            found,
            series.rows,
            rows,
            options.items,
            priced,
            per_machine or options.devices_per_machine,
            options.max_global_batch,
        )
        return series, found, sized

    results, refused = answered(chosen(every, options.series), answer)
    series, made, sizes = zip(*results)
    cases: dict[object, Case] = {}
    if source.is_dir():
        cases = records.of_folder(source, [series.rows for series in every])
        _keep(source, zip(series, made))
    everywhere = records.tally({**_cases_below([DEFAULT], source), **cases}.values())
    record = (everywhere, *(case.statement() for case in cases.values()))
    return PredictionReport(str(source), made, refused, record, sizes)


def _rows(every: Iterable[MeasuredSeries]) -> list[Row]:
    return [row for series in every for row in series.rows]


def _keep(folder: Path, made: Iterable[tuple[MeasuredSeries, Prediction]]) -> None:
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        for series, prediction in made:
            kept = records.as_kept(prediction, series.rows, now, entry.VERSION)
            predictions.keep(kept, folder)
    except OSError as e:
        reason = e.strerror or e
        entry.warn(
            f"{folder / predictions.FOLDER}: {reason}; the prediction is not kept"
        )


def answered(
    items: Iterable[Any], answer: Callable[[Any], Answer]
) -> tuple[list[Answer], tuple[Statement, ...]]:
    """Return the answers, and why items are refused; warn of those.

    Raises:
      Refusal: If there is no answer.
    """
    made = []
    refused = []
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


def what_if(options: PredictionOptions) -> list[Sensitivity]:
    """Return what the changes do to each series on each number of devices.

    Raises:
      Refusal: If nothing can be said.
    """
    every = every_series(options.source, options)
    rows = _rows(every)
    asked = _changes(dict(options.what_if or ()))
    made = []

    def answer(series: MeasuredSeries) -> None:
        curve = series.curve
        devices = options.num_devices or (curve.points[-1].devices,)
        prediction = series.predict(devices, options.far)
        compared = changes.compared(curve, asked)
        share = sizing.fixed_share(series.rows[-1], rows) if series.rows else None
        common = []
        if len(compared) < len(asked):
            common.append(Statement("whatif-link-left-out"))
        for point in prediction.points:
            found = changes.sensitivity(prediction, point.devices, compared, share)
            statements = [*found.statements, *common]
            statements += _memory(series, rows, point.devices, compared, options)
            statements += [
                statement
                for statement in prediction.statements
                if statement.kind == "prediction-left-out-far"
            ]
            made.append(dataclasses.replace(found, statements=tuple(statements)))

    answered(chosen(every, options.series), answer)
    return made


def _changes(amounts: dict[str, float]) -> list[Change]:
    """Return the changes of --what_if; none if it has no value."""
    asked = [Change(name, amounts[name]) for name in changes.FACTORS if name in amounts]
    if changes.LINK in amounts:
        link = link_of(amounts[changes.LINK], amounts.get("latency_us", 0.0))
        asked.append(Change(changes.LINK, link=link))
    return asked


def _memory(
    series: MeasuredSeries,
    rows: Sequence[Row],
    devices: int,
    compared: Sequence[Change],
    options: PredictionOptions,
) -> list[Statement]:
    """Return what a changed batch size needs, if it is known."""
    for change in compared:
        if change.kind == changes.BATCH and series.rows:
            gib = sizing.memory_gib(
                series.rows[-1],
                rows,
                devices,
                change.factor,
                options.devices_per_machine,
            )
            if gib:
                values = {"change": change.title, "gib": interval_values(gib)}
                return [Statement("size-memory", values=values)]
    return []


def tell(found: PredictionReport, options: PredictionOptions, name: str) -> None:
    """Print predictions or simulations; write JSON, page and picture to --output."""
    files: dict[str, Callable[[], bytes]] = {"json": lambda: to_json(found)}
    if options.output and found.predictions:
        title = f"{name.capitalize()} from {found.source}"
        drawn = list(found.predictions)
        drawn[: pictures.MOST] = map(_refined, drawn[: pictures.MOST])
        files["html"] = lambda: page.render(found, drawn, title)
        files["png"] = lambda: pictures.render(drawn)
    named = {f"{name}.{kind}": render for kind, render in files.items()}
    _tell(text(found), named, options)


def tell_changes(found: Sequence[Sensitivity], options: PredictionOptions) -> None:
    """Print what changes would do; write JSON and picture to --output."""
    files = {
        "whatif.json": lambda: changes_json(found),
        "whatif.png": lambda: pictures.changes(found),
    }
    _tell(changes_text(found), files, options)


def _tell(
    lines: str, files: Mapping[str, Callable[[], bytes]], options: PredictionOptions
) -> None:
    """Write the files; print the first one, which is JSON, or the text."""
    if options.output:
        report_files.write_files(files, options.output, force=False)
    if options.format == "json":
        print(next(iter(files.values()))().decode(), end="")
    else:
        terminal.tell(lines)


def _refined(prediction: Prediction) -> Prediction:
    """Return a prediction that is fine enough to draw, with powers of two.

    A simulation stays as it is.
    """
    if prediction.is_simulated:
        return prediction
    known = {point.devices for point in prediction.points}
    known.update(point.devices for point in prediction.curve.points)
    powers = {2**k for k in range(max(known).bit_length()) if 2**k > min(known)}
    finer = predicting.predict(prediction.curve, sorted(known | powers))
    return dataclasses.replace(prediction, points=finer.points)


def track_record(sources: Sequence[Path]) -> PredictionReport:
    """Return how often the predictions in folders and their subfolders held."""
    sources = sources or [DEFAULT]
    cases = _cases_below(sources).values()
    record = (records.tally(cases), *(case.statement() for case in cases))
    return PredictionReport(" ".join(map(str, sources)), record=record)


def _cases_below(
    sources: Sequence[Path], without: Path | None = None
) -> dict[object, Case]:
    """Return the cases of folders and all their subfolders, except one of them."""
    found = [
        Path(place)
        for source in sources
        for place, below, _ in os.walk(source)
        if predictions.FOLDER in below
    ]
    cases: dict[object, Case] = {}
    for folder in sorted(found):
        if without is None or folder.resolve() != without.resolve():
            try:
                every = every_series(folder, PredictionOptions())
            except entry.Refusal:  # it has no runs any more
                continue
            cases |= records.of_folder(folder, [series.rows for series in every])
    return cases
