"""python -m rnn_scaling predict FOLDER|TABLE: what more devices would do, with intervals and a track record."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rnn_scaling import entry
from rnn_scaling.commands.prediction_options import PredictionOptions, chosen
from rnn_scaling.models.config import option
from rnn_scaling.settings import flags

if TYPE_CHECKING:
    from rnn_scaling.analysis.prediction.track_record import Case
    from rnn_scaling.analysis.statements import Statement
    from rnn_scaling.commands.prediction_options import FolderSeries
    from rnn_scaling.records.predictions import KeptPrediction
    from rnn_scaling.reports.prediction import PredictionReport

DEFAULT = Path("results")  # whose subfolders hold predictions
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
    return _predict(options.sources[0], options)


def _predict(source: Path, options: PredictOptions) -> int:
    from rnn_scaling.analysis.prediction import predicting, track_record
    from rnn_scaling.analysis.prediction.curves import CannotPredict
    from rnn_scaling.reports import prediction as report
    from rnn_scaling.reports.wording import sentence

    every = _series(source, options)
    names = chosen([series.curve.name for series in every], options.series)
    measured = [track_record.of_curve(series.curve, series.rows) for series in every]
    keep_in = source if source.is_dir() else options.output
    kept = _kept(keep_in) if keep_in else ()
    made, refused = [], []
    for series, points in zip(every, measured):
        if series.curve.name not in names:
            continue
        try:
            if series.refusal:
                raise CannotPredict(series.refusal)
            prediction = predicting.predict(series.curve, options.devices)
        except CannotPredict as e:
            refused.append(e.statement)
            continue
        assumed = (*series.assumed, *prediction.statements)
        made.append((dataclasses.replace(prediction, statements=assumed), points))
    lines = [sentence(statement) for statement in refused]
    if not made:
        raise entry.Refusal(*lines)
    entry.warn(*lines)
    record = _record(track_record.judge(kept, measured), _cases([DEFAULT], without=keep_in))
    _print(report.PredictionReport(str(source), tuple(p for p, _ in made), tuple(refused), record), options)
    if keep_in:
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        _keep([track_record.kept(*pair, date, entry.VERSION) for pair in made], keep_in)
    return entry.EXIT_OK


def _series(source: Path, options: PredictionOptions) -> list[FolderSeries]:
    """The series of a folder or of a table. Raises Refusal if there are none."""
    from rnn_scaling.commands import prediction_options, prediction_tables

    is_file = source.exists() and not source.is_dir()
    return (prediction_tables.every_series if is_file else prediction_options.every_series)(source, options)


def _print(found: PredictionReport, options: PredictOptions) -> None:
    from rnn_scaling.files import terminal
    from rnn_scaling.reports import prediction as report
    from rnn_scaling.reports import report_files

    content = functools.partial(report.to_json, found)
    if options.output:
        report_files.write({"prediction.json": content}, options.output, force=False)
    print(content().decode(), end="") if options.format == "json" else terminal.tell(report.text(found))


def _keep(made: Sequence[KeptPrediction], folder: Path) -> None:
    """Adds predictions to those of a folder; a warning if it cannot be written."""
    from rnn_scaling.records import predictions

    kept = predictions.read(folder)  # again: another process may have added the same since
    try:
        for new in made:
            predictions.keep(new, folder, kept)
    except OSError as e:
        entry.warn(f"{folder / predictions.FOLDER}: {e.strerror or e}; the prediction is not kept")


def _kept(folder: Path) -> Sequence[KeptPrediction]:
    """The predictions that are kept in a folder; warns about files that are left out."""
    from rnn_scaling.records import predictions

    found = predictions.read(folder)
    entry.warn(*(f"{line}; left out" for line in found.left_out))
    return found.predictions


def _cases(folders: Iterable[Path], without: Path | None = None) -> list[Case]:
    """The predictions in folders and all their subfolders, but for one folder, that were measured since."""
    from rnn_scaling.analysis.prediction import track_record
    from rnn_scaling.records import predictions

    cases: list[Case] = []
    for place, below, _ in (found for folder in folders for found in os.walk(folder)):
        below.sort()
        if predictions.FOLDER in below and not (without and os.path.realpath(place) == os.path.realpath(without)):
            kept, measured = _kept(Path(place)), []
            tables = {Path(old.source.rpartition(":")[0]) for old in kept if ":" in old.source}
            for source in (Path(place), *sorted(path for path in tables if path.is_file())):
                with contextlib.suppress(entry.Refusal):  # it has no runs, or no tables any more
                    measured += [track_record.of_curve(s.curve, s.rows) for s in _series(source, PredictionOptions())]
            cases += track_record.judge(kept, measured)
    return cases


def _record(cases: Sequence[Case], others: Sequence[Case] = ()) -> tuple[Statement, ...]:
    """How often intervals held in all cases, and hits and misses of the first ones."""
    from rnn_scaling.analysis.prediction import track_record

    every = [*{case.key: case for case in (*cases, *others)}.values()]
    return track_record.tally(every), *(case.statement() for case in cases)


def _track_record(options: PredictOptions) -> int:
    from rnn_scaling.analysis.prediction import track_record
    from rnn_scaling.reports import prediction as report

    if missing := [f"{folder}: no such folder" for folder in options.sources if not folder.is_dir()]:
        raise entry.Refusal(*missing)
    folders = options.sources or (DEFAULT,)
    cases = [*{case.key: case for case in _cases(folders)}.values()]
    total, *single = _record(cases)
    record = (total, *track_record.by_factor(cases), *single)
    _print(report.PredictionReport(" ".join(map(str, folders)), record=record), options)
    return entry.EXIT_OK
