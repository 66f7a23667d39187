"""python -m rnn_scaling predict FOLDER|TABLE: what more devices would do, with intervals and a track record."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rnn_scaling import entry
from rnn_scaling.commands.prediction_options import PredictionOptions
from rnn_scaling.models.config import option
from rnn_scaling.settings import flags

if TYPE_CHECKING:
    from rnn_scaling.analysis.prediction.curves import Curve
    from rnn_scaling.analysis.prediction.track_record import Case
    from rnn_scaling.analysis.rows import Row
    from rnn_scaling.analysis.statements import Statement

USAGE = """\
Predicts the rate on more devices than were measured, with 95 % intervals: from a folder of run records, or from
anybody's table of rates, speedups or seconds over numbers of devices (Markdown, HTML, CSV and what else audit reads).

    ./run.sh predict results/mine --num_devices=8,64,512
    ./run.sh predict results/mine --num_devices=64 --links=results/links/links.json
    ./run.sh predict results/mine --num_devices=64 --devices_per_machine=8 --link_gbit=100 --latency_us=5
    ./run.sh predict README.md --num_devices=16 --series=resnet50
    ./run.sh predict --track_record                     how often predictions were right

At least two numbers of devices must be measured; one, two and four give narrower intervals. A table has no repeats, so
its intervals are wider. Each prediction is kept in results/mine/predictions; those from a table are kept in --output.
When a predicted number of devices is measured later, predict and report say whether the interval held. --output
writes prediction.json. docs/predict.md explains the models, the intervals and how a hit is judged.

Exit status: 0 at least one series was predicted, 1 a file cannot be written, 2 nothing can be predicted, or wrong
use. Of --track_record: 0, also without a case."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions(PredictionOptions):
    """Predict."""

    sources: tuple[Path, ...] = flags.positional(
        "folder of run records, or a file with tables; folders with --track_record (default: results)",
        shown="SOURCE",
        several=True,
        default=(),
    )
    track_record: bool = option(False, "how often predictions in these folders and their subfolders were right")


@entry.command
def main(words: Sequence[str]) -> int:
    options = flags.read(words, USAGE, PredictOptions, "predict")
    if options.track_record:
        return _track_record(options)
    wrong = []
    if len(options.sources) != 1:
        given = " ".join(map(str, options.sources)) or "nothing"
        wrong.append(f"expected one folder of run records or one file with tables, got {given}; see predict --help")
    if not options.devices:
        wrong.append("--num_devices is missing; name the numbers of devices to predict for, as --num_devices=8,64")
    if wrong:
        raise entry.Refusal(*wrong)
    source = options.sources[0]
    if not source.exists():
        raise entry.Refusal(f"{source}: no such file or folder")
    return _folder(source, options) if source.is_dir() else _table(source, options)


@dataclasses.dataclass(frozen=True)
class _Wanted:
    """A series that is to be predicted; refusal: why it is not; assumed: by the reading of its table."""

    curve: Curve
    refusal: Statement | None = None
    assumed: tuple[Statement, ...] = ()
    rows: tuple[Row, ...] = ()
    files: tuple[tuple[str, ...], ...] = ()


def _folder(folder: Path, options: PredictOptions) -> int:
    from rnn_scaling.analysis.prediction import from_rows, track_record
    from rnn_scaling.commands import prediction_options, prediction_record

    every = prediction_options.every_series(folder, options)
    names = prediction_options.chosen([series.curve.name for series in every], options.series)
    mixed = from_rows.mixed_scalings([(series.curve, series.rows) for series in every])
    wanted = [
        _Wanted(series.curve, wrong or _unknown_bytes(series.curve, options), (), series.rows, series.files)
        for series, wrong in zip(every, mixed)
        if series.curve.name in names
    ]
    kept = prediction_record.kept_in(folder)
    measured = [found for series in every for found in track_record.of_rows(series.rows)]
    return _tell(folder, wanted, track_record.judge(kept.predictions, measured), folder, options)


def _unknown_bytes(curve: Curve, options: PredictOptions) -> Statement | None:
    from rnn_scaling.analysis.statements import Statement

    known = curve.knowledge
    is_needed = options.link_gbit is not None and known.algorithm != "none" and known.summed_bytes is None
    return Statement("predict-unknown-bytes", curve.name) if is_needed else None


def _table(path: Path, options: PredictOptions) -> int:
    from rnn_scaling.analysis.prediction import track_record
    from rnn_scaling.analysis.statements import Statement
    from rnn_scaling.commands import prediction_options, prediction_record, prediction_tables

    if given := [name for name in ("links", "link_gbit", "latency_us") if getattr(options, name) is not None]:
        raise entry.Refusal(f"--{given[0]} needs the bytes of a step, which a table does not contain; omit it")
    every = prediction_tables.curves(path, options.devices_per_machine)
    names = prediction_options.chosen([curve.name for curve, _ in every], options.series)
    wanted = [
        _Wanted(curve, None if curve.scaling else Statement("predict-mixed-table", curve.name), assumed)
        for curve, assumed in every
        if curve.name in names
    ]
    kept = prediction_record.kept_in(options.output) if options.output else None
    measured = prediction_record.of_curves(curve for curve, _ in every)
    cases = track_record.judge(kept.predictions, measured) if kept else []
    return _tell(path, wanted, cases, options.output, options)


def _tell(
    source: Path, wanted: Sequence[_Wanted], cases: Sequence[Case], keep_in: Path | None, options: PredictOptions
) -> int:
    """Predicts, keeps, writes and prints; `cases`: of the folder in which predictions are kept."""
    from rnn_scaling.analysis.prediction import answers, predicting
    from rnn_scaling.analysis.prediction.curves import CannotPredict
    from rnn_scaling.analysis.statements import Statement
    from rnn_scaling.commands import prediction_record
    from rnn_scaling.files import terminal
    from rnn_scaling.reports import prediction as report
    from rnn_scaling.reports import report_files
    from rnn_scaling.reports.wording import sentence

    predicted, refused = [], []
    for series in wanted:
        try:
            if series.refusal:
                raise CannotPredict(series.refusal)
            made = predicting.predict(series.curve, options.devices)
        except CannotPredict as e:
            refused.append(e.statement)
            continue
        predicted.append((series, dataclasses.replace(made, statements=(*series.assumed, *made.statements))))
    lines = [sentence(statement) for statement in refused]
    if not predicted:
        raise entry.Refusal(*lines)
    entry.warn(*lines)
    lines = []
    others = prediction_record.cases_below([prediction_record.DEFAULT], without=keep_in)
    total = {case.key: case for case in (*cases, *others)}
    record = (*answers.outcomes(cases), answers.track_record([*total.values()]))
    found = report.PredictionReport(str(source), tuple(made for _, made in predicted), tuple(refused), record)
    if options.output:
        report_files.write({"prediction.json": functools.partial(report.to_json, found)}, options.output, force=False)
    if keep_in:
        new = [prediction_record.to_keep(made, series.rows, series.files) for series, made in predicted]
        count = prediction_record.keep(filter(None, new), keep_in)
        lines = [sentence(Statement("predict-kept", values={"folder": str(keep_in), "count": count}))] if count else []
    if options.format == "json":
        print(report.to_json(found).decode(), end="")
    else:
        terminal.tell("\n".join([report.text(found), *lines, ""]))
    return entry.EXIT_OK


def _track_record(options: PredictOptions) -> int:
    from rnn_scaling.commands import prediction_record
    from rnn_scaling.files import terminal
    from rnn_scaling.reports import prediction as report

    folders = options.sources or (prediction_record.DEFAULT,)
    if missing := [f"{folder}: no such folder" for folder in options.sources if not folder.is_dir()]:
        raise entry.Refusal(*missing)
    cases = prediction_record.cases_below(folders)
    if options.format == "json":
        print(report.record_json(cases, [str(folder) for folder in folders]).decode(), end="")
    else:
        terminal.tell(report.record_text(cases))
    return entry.EXIT_OK
