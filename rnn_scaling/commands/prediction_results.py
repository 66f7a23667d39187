"""What `predict` and `whatif` find, from the series of a folder or a table and from predictions that folders keep."""

import dataclasses
import datetime
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rnn_scaling.analysis import prices
from rnn_scaling.analysis.prediction import changes, predicting, sizing
from rnn_scaling.analysis.prediction import track_record as records
from rnn_scaling.analysis.prediction.changes import Sensitivity
from rnn_scaling.analysis.prediction.curves import CannotPredict, Prediction
from rnn_scaling.analysis.prediction.from_rows import MeasuredSeries
from rnn_scaling.analysis.prediction.sizing import Sizes
from rnn_scaling.analysis.prediction.track_record import Case
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.commands.prediction_options import (
    PredictionOptions,
    PredictOptions,
    WhatifOptions,
)
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
DEFAULT = Path("results")  # whose subfolders hold predictions


def predict(source: Path, options: PredictOptions) -> PredictionReport:
    """Predicts the chosen series, and keeps the predictions of a folder. Raises Refusal if none can be predicted."""
    [listed] = prices.read(options.machines, options.machine)
    every = every_series(source, options)
    rows = [row for series in every for row in series.rows]

    def answer(series: MeasuredSeries) -> tuple[MeasuredSeries, Prediction, Sizes]:
        if options.num_devices:
            found = series.predict(options.num_devices, options.far)
        else:
            series = series.as_machines()
            found = series.predict(series.default_devices)
        priced = listed.match(series.rows[-1].good[0]) if series.rows else listed.chosen
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


def _keep(folder: Path, made: Iterable[tuple[MeasuredSeries, Prediction]]) -> None:
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        for series, prediction in made:
            predictions.keep(
                records.as_kept(prediction, series.rows, now, entry.VERSION), folder
            )
    except OSError as e:
        entry.warn(
            f"{folder / predictions.FOLDER}: {e.strerror or e}; the prediction is not kept"
        )


def answered(
    items: Iterable[Any], answer: Callable[[Any], Answer]
) -> tuple[list[Answer], tuple[Statement, ...]]:
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


def whatif(options: WhatifOptions) -> list[Sensitivity]:
    """What the changes do to each series on each number of devices. Raises Refusal if nothing can be said."""
    new_link = options.stated_link  # of the change, and not of the runs
    every = every_series(
        options.source, dataclasses.replace(options, link_gbit=None, latency_us=None)
    )
    rows = [row for series in every for row in series.rows]
    factors = {name: getattr(options, name) for name in changes.FACTORS}
    asked = [
        changes.Change(name, factor)
        for name, factor in factors.items()
        if factor is not None
    ]
    asked += [changes.Change(changes.LINK, link=new_link)] if new_link else []

    def answer(series: MeasuredSeries) -> list[Sensitivity]:
        curve = series.curve
        devices = options.num_devices or (curve.points[-1].devices,)
        prediction = series.predict(devices, options.far)
        devices = tuple(point.devices for point in prediction.points)
        left_out = tuple(
            statement
            for statement in prediction.statements
            if statement.kind == "prediction-left-out-far"
        )
        share = sizing.fixed_share(series.rows[-1], rows) if series.rows else None
        compared = changes.compared(curve, asked)
        batch = next(
            (change for change in compared if change.kind == changes.BATCH), None
        )
        made = []
        for count in devices:
            found = changes.sensitivity(prediction, count, compared, share)
            if len(compared) < len(asked):
                found = dataclasses.replace(
                    found,
                    statements=(*found.statements, Statement("whatif-link-left-out")),
                )
            stated = (
                rows,
                count,
                batch.factor if batch else 1.0,
                options.devices_per_machine,
            )
            if (
                series.rows
                and batch
                and (gib := sizing.memory_gib(series.rows[-1], *stated))
            ):
                memory = Statement(
                    "size-memory",
                    values={"change": batch.title, "gib": interval_values(gib)},
                )
                found = dataclasses.replace(
                    found, statements=(*found.statements, memory)
                )
            found = dataclasses.replace(
                found, statements=(*found.statements, *left_out)
            )
            made.append(found)
        return made

    return [
        found
        for several in answered(chosen(every, options.series), answer)[0]
        for found in several
    ]


def tell(found: PredictionReport, options: PredictionOptions, name: str) -> None:
    """Prints predictions or simulations, and writes their JSON, page and picture to --output. Raises Refusal."""
    files: dict[str, Callable[[], bytes]] = {"json": lambda: to_json(found)}
    if options.output and found.predictions:
        title = f"{name.capitalize()} from {found.source}"
        drawn = list(found.predictions)
        drawn[: pictures.MOST] = map(_refined, drawn[: pictures.MOST])
        files["html"] = lambda: page.render(found, drawn, title)
        files["png"] = lambda: pictures.render(drawn)
    _tell(
        text(found),
        {f"{name}.{kind}": render for kind, render in files.items()},
        options,
    )


def tell_changes(found: Sequence[Sensitivity], options: PredictionOptions) -> None:
    """Prints what changes would do, and writes the JSON and the picture to --output."""
    files = {
        "whatif.json": lambda: changes_json(found),
        "whatif.png": lambda: pictures.changes(found),
    }
    _tell(changes_text(found), files, options)


def _tell(
    lines: str, files: Mapping[str, Callable[[], bytes]], options: PredictionOptions
) -> None:
    """Writes the files; prints the first one, which is JSON, or the text."""
    if options.output:
        report_files.write(files, options.output, force=False)
    if options.format == "json":
        print(next(iter(files.values()))().decode(), end="")
    else:
        terminal.tell(lines)


def _refined(prediction: Prediction) -> Prediction:
    """The prediction also on the measured numbers and the powers of two, for a curve; a simulation as it is."""
    if prediction.is_simulated:
        return prediction
    known = {
        *(point.devices for point in prediction.points),
        *(point.devices for point in prediction.curve.points),
    }
    powers = {2**k for k in range(max(known).bit_length()) if 2**k > min(known)}
    return dataclasses.replace(
        prediction,
        points=predicting.predict(prediction.curve, sorted(known | powers)).points,
    )


def track_record(sources: Sequence[Path]) -> PredictionReport:
    """How often the predictions in folders and their subfolders held."""
    cases = _cases_below(sources or [DEFAULT]).values()
    record = (records.tally(cases), *(case.statement() for case in cases))
    return PredictionReport(" ".join(map(str, sources or [DEFAULT])), record=record)


def _cases_below(
    sources: Sequence[Path], without: Path | None = None
) -> dict[object, Case]:
    """The cases of folders and all their subfolders, but for one of them."""
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
                cases |= records.of_folder(folder, [series.rows for series in every])
            except entry.Refusal:  # it has no runs any more
                continue
    return cases
