"""The series of a folder of runs, or of the tables of anybody's document, as curves to predict from."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.analysis.machines import by_machine
from rnn_scaling.analysis.prediction import from_rows
from rnn_scaling.analysis.prediction.answers import SPEEDUP
from rnn_scaling.analysis.prediction.curves import STRONG, WEAK, Curve, Knowledge, Link, MeasuredPoint
from rnn_scaling.analysis.rows import Row, with_baselines
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.audit import auditing, derived, documents, numbers
from rnn_scaling.audit.tables import View, views
from rnn_scaling.commands.prediction_options import PredictionOptions
from rnn_scaling.links import stored
from rnn_scaling.records import folder as folders

MOST = 200  # series of a file
LONGEST_TITLE = 40  # letters of it in the name of a series
SHRINKS = 0.9  # seconds on the most devices, relative to the fewest, below which the total work is constant
MIXED = ""  # the scaling of a table whose work follows no rule
_UNIT = re.compile(r"([A-Za-z]+)\s*(?:/|\bper\b)\s*(?:s|sec|seconds?|min|minutes?|h|hours?)\b")


@dataclasses.dataclass(frozen=True)
class FolderSeries:
    """A series: its curve, and the rows of the curve's points, none for a table."""

    curve: Curve
    rows: tuple[Row, ...] = ()
    refusal: Statement | None = None  # why it cannot be predicted
    assumed: tuple[Statement, ...] = ()  # by the reading of its table


def every_series(source: Path, options: PredictionOptions) -> list[FolderSeries]:
    """All series of a folder's runs, or of a file's tables in the order of their lines. Raises Refusal without any."""
    try:
        return _of_folder(source, options) if source.is_dir() else _of_tables(source, options)
    except OSError as e:
        raise entry.Refusal(f"{source}: {e.strerror or e}") from None
    except documents.UnreadableError as e:
        raise entry.Refusal(str(e)) from None


def chosen(every: Sequence[FolderSeries], text: str) -> list[FolderSeries]:
    """The series whose names contain the text of --series. Raises Refusal if none does."""
    if kept := [series for series in every if text.lower() in series.curve.name.lower()]:
        return kept
    names = "; ".join(series.curve.name for series in every[:5])
    raise entry.Refusal(f"--series={text} is in no name of a series; there are: {names}")


def _of_folder(folder: Path, options: PredictionOptions) -> list[FolderSeries]:
    stated = options.stated_link  # wrong flags are reported before thousands of files are read
    links = from_rows.Links(stored.read(options.links) if options.links else {}, stated, options.devices_per_machine)
    content = folders.read(folder)
    entry.warn(*(f"{line}; left out" for line in content.left_out))
    machines, made = by_machine([file.record for file in content.runs]), []
    for machine, records in machines.items():
        found = from_rows.series(with_baselines(records), links)
        for (curve, rows), refusal in zip(found, from_rows.refusals(found, stated)):
            name = f"{curve.name}, {machine}" if len(machines) > 1 else curve.name
            made.append(FolderSeries(dataclasses.replace(curve, name=name, source=str(folder)), rows, refusal))
    if not made:
        reason = "no run measured a rate" if content.runs else f"{content.nothing}{folders.elsewhere(folder)}"
        raise entry.Refusal(f"{folder}: {reason}")
    return made


def _of_tables(path: Path, options: PredictionOptions) -> list[FolderSeries]:
    if options.links or options.link_gbit is not None or options.latency_us is not None:
        raise entry.Refusal("--links and --link_gbit need the bytes of a step, which a table does not have; omit them")
    tables = list(documents.tables(path))
    titles = {table.line: table.title or table.caption for table in tables}
    first_views = (next(filter(derived.series, views(table)), None) for table in auditing.joined(tables))
    found = [(view, series) for view in first_views if view for series in derived.series(view)]
    kept = sorted((pair for pair in found if _is_counted(pair[1])), key=lambda pair: pair[1].line)
    if not kept:
        rule = "no table with a column of devices and one of rates, seconds or speedups on several numbers of them"
        raise entry.Refusal(f"{path}: {rule}; docs/audit.md lists the header words")
    return [_of_table(view, series, titles, options.devices_per_machine) for view, series in kept[:MOST]]


def _is_counted(series: derived.Series) -> bool:
    return all(float(point.devices).is_integer() for point in series.points)


def _of_table(view: View, series: derived.Series, titles: Mapping[int, str], per_machine: int | None) -> FolderSeries:
    above = max((line for line in titles if line <= series.line), default=view.table.line)
    title = numbers.plain(titles.get(above, ""))[:LONGEST_TITLE].strip(" #:*")
    name = ", ".join(filter(None, (title, series.name, f"line {series.line}")))
    stated = _scaling(view, {int(point.devices) for point in series.points})
    falls = series.points[-1].measured < SHRINKS * series.points[0].measured
    is_constant = series.measure == "seconds" and (falls or "epoch" in series.name.lower())  # the work, with any batch
    scaling = (STRONG if is_constant else WEAK) if stated is None else stated
    work = STRONG if is_constant else scaling
    kind = f"predict-{work}-seconds" if series.measure == "seconds" else "predict-constant-work"
    unit, points = _points(view, series, work)
    known = Knowledge(links=(Link(0.0, math.inf, per_machine),) if per_machine else ())
    return FolderSeries(
        Curve(name, unit, scaling, points, known, f"{series.source}:{series.line}"),
        refusal=Statement("predict-mixed-table", name) if stated == MIXED else None,
        assumed=(Statement(kind, name),) if stated is None or series.measure == "seconds" else (),
    )


def _points(view: View, series: derived.Series, work: str) -> tuple[str, tuple[MeasuredPoint, ...]]:
    """(what is counted a second, "items" if the header does not say, the points of a series)."""
    columns = [column for column in view.columns if column.quantity == series.measure]
    column = next(column for column in columns if series.name.endswith(column.name))
    cells = zip(view.columns[view.of("devices")[0]].items, column.items)
    rounding = {int(n.low): math.log(item.high / item.low) / 2 for n, item in cells if n and item and item.low > 0}
    values = [(int(point.devices), point.measured) for point in series.points]
    if series.measure == "speedup":
        unit, rates = SPEEDUP, values
    else:
        found, values = _UNIT.search(column.name), [(n, column.factor * value) for n, value in values]
        unit, rates = found[1].lower() if found else "items", values
    if series.measure == "seconds":
        unit, rates = "steps", [(n, (1 if work == STRONG else n) / value) for n, value in values]
    return unit, tuple(MeasuredPoint(n, float(f"{r:.12g}"), rounding=rounding.get(n, 1.0)) for n, r in rates)


def _scaling(view: View, devices: set[int]) -> str | None:
    """Weak or strong by the batch sizes of the table, MIXED if they follow neither; None if it does not tell."""
    counts = view.columns[view.of("devices")[0]].items
    for k in (*view.of("global_batch"), *view.of("batch")):
        cells = {(int(n.low), i.number.value) for n, i in zip(counts, view.columns[k].items) if n and i}
        sizes = {n: size for n, size in cells if n in devices}
        if sizes.keys() == devices and sum(n in devices for n, _ in cells) == len(sizes):
            if len({*sizes.values()}) == 1:
                return STRONG if view.columns[k].quantity == "global_batch" else WEAK
            if len({size / n for n, size in sizes.items()}) == 1:
                return WEAK
            return STRONG if len({size * n for n, size in sizes.items()}) == 1 else MIXED
    return None
