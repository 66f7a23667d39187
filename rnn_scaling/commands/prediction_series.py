"""The series of a folder of runs, or of the tables of anybody's document, as curves to predict from."""

import dataclasses
import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import entry, registry
from rnn_scaling.analysis.machines import by_machine
from rnn_scaling.analysis.prediction import from_rows
from rnn_scaling.analysis.prediction.costs import exchange_s
from rnn_scaling.analysis.prediction.curves import (
    STRONG,
    WEAK,
    Curve,
    Knowledge,
    Link,
    MeasuredPoint,
)
from rnn_scaling.analysis.prediction.from_rows import MeasuredSeries
from rnn_scaling.analysis.prediction.predicting import SPEEDUP
from rnn_scaling.analysis.rows import with_baselines
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.audit import derived, documents, numbers
from rnn_scaling.audit.tables import Column, Item, View, views
from rnn_scaling.commands.prediction_options import PredictionOptions
from rnn_scaling.files import input_files
from rnn_scaling.links.series import ALL_REDUCE
from rnn_scaling.records import folder as folders

MOST = 200  # series of a file
LONGEST_TITLE = 40  # letters of it in the name of a series
SHRINKS = 0.9  # seconds on the most devices, relative to the fewest, below which the total work is constant
LINKS_SCHEMA = "rnn_scaling.links/1"
MIXED = ""  # the scaling of a table whose work follows no rule
_UNIT = re.compile(
    r"([A-Za-z]+)\s*(?:/|\bper\b)\s*(?:s|sec|seconds?|min|minutes?|h|hours?)\b"
)


def every_series(source: Path, options: PredictionOptions) -> list[MeasuredSeries]:
    """All series of a folder's runs, or of a file's tables in the order of their lines. Raises Refusal without any."""
    try:
        return (
            _of_folder(source, options)
            if source.is_dir()
            else _of_tables(source, options)
        )
    except OSError as e:
        raise entry.Refusal(f"{source}: {e.strerror or e}") from None
    except documents.UnreadableError as e:
        raise entry.Refusal(str(e)) from None


def chosen(every: Sequence[MeasuredSeries], text: str) -> list[MeasuredSeries]:
    """The series whose names contain the text of --series. Raises Refusal if none does."""
    if kept := [
        series for series in every if text.lower() in series.curve.name.lower()
    ]:
        return kept
    names = "; ".join(series.curve.name for series in every[:5])
    raise entry.Refusal(f"--series={text} matches no series; there are: {names}")


def _of_folder(folder: Path, options: PredictionOptions) -> list[MeasuredSeries]:
    stated = (
        options.stated_link
    )  # wrong flags are reported before thousands of files are read
    links = from_rows.Links(
        read_links(options.links) if options.links else {},
        stated,
        options.devices_per_machine,
    )
    content = folders.read(folder)
    entry.warn(*(f"{line}; left out" for line in content.left_out))
    machines, made = by_machine([file.record for file in content.runs]), []
    for machine, records in machines.items():
        for series in from_rows.series(with_baselines(records), links):
            name = (
                f"{series.curve.name}, {machine}"
                if len(machines) > 1
                else series.curve.name
            )
            curve = dataclasses.replace(series.curve, name=name, source=str(folder))
            made.append(dataclasses.replace(series, curve=curve))
    if not made:
        reason = (
            "no run measured a rate"
            if content.runs
            else f"{content.nothing}{folders.elsewhere(folder)}"
        )
        raise entry.Refusal(f"{folder}: {reason}")
    return made


def _of_tables(path: Path, options: PredictionOptions) -> list[MeasuredSeries]:
    if options.links or options.link_gbit is not None or options.latency_us is not None:
        raise entry.Refusal(
            "--links and --link_gbit need the bytes of a step, which a table does not have; omit them"
        )
    first_views = (
        next(filter(derived.series, views(table)), None)
        for table in documents.tables(path)
    )
    pairs = (
        (view, series)
        for view in first_views
        if view
        for series in derived.series(view)
    )
    first = itertools.islice(pairs, MOST)
    found = [
        (view, series)
        for view, series in first
        if all(point.devices % 1 == 0 for point in series.points)
    ]
    if not found:
        rule = "no table with a column of devices and one of rates, seconds or speedups on several numbers of them"
        raise entry.Refusal(f"{path}: {rule}; docs/audit.md lists the header words")
    size = options.devices_per_machine
    known = Knowledge(links=(Link(0.0, math.inf, size),) if size else ())
    return [_of_table(view, series, known) for view, series in found]


def _of_table(view: View, series: derived.Series, known: Knowledge) -> MeasuredSeries:
    title = numbers.plain(view.table.title or view.table.caption)[:LONGEST_TITLE].strip(
        " #:*"
    )
    name = ", ".join(filter(None, (title, series.name, f"line {series.line}")))
    stated, takes_time = (
        _scaling(view, {point.devices for point in series.points}),
        series.measure == "seconds",
    )
    falls = series.points[-1].measured < SHRINKS * series.points[0].measured
    is_constant = takes_time and (
        falls or "epoch" in series.name.lower()
    )  # the work, with any batch
    scaling = (STRONG if is_constant else WEAK) if stated is None else stated
    work = STRONG if is_constant else scaling
    unit, points = _points(view, series, work)
    curve = Curve(name, unit, scaling, points, known, f"{series.source}:{series.line}")
    if stated == MIXED:
        return MeasuredSeries(curve, refusal=Statement("predict-mixed-table", name))
    kind = f"predict-{work}-seconds" if takes_time else "predict-constant-work"
    return MeasuredSeries(
        curve, assumed=(Statement(kind, name),) if stated is None or takes_time else ()
    )


def _points(
    view: View, series: derived.Series, work: str
) -> tuple[str, tuple[MeasuredPoint, ...]]:
    """(what is counted a second, "items" if the header does not say, the points of a series)."""
    columns = [column for column in view.columns if column.quantity == series.measure]
    column = next(column for column in columns if series.name.endswith(column.name))
    rounding = {
        n: math.log(item.high / item.low) / 2
        for n, item in _cells(view, column)
        if item.low > 0
    }
    factor = 1.0 if series.measure == "speedup" else column.factor
    rates = {int(point.devices): factor * point.measured for point in series.points}
    found = _UNIT.search(column.name)
    unit = (
        SPEEDUP
        if series.measure == "speedup"
        else found[1].lower()
        if found
        else "items"
    )
    if series.measure == "seconds":
        unit, rates = (
            "steps",
            {n: (1 if work == STRONG else n) / seconds for n, seconds in rates.items()},
        )
    points = (
        MeasuredPoint(n, float(f"{r:.12g}"), rounding=rounding.get(n, 1.0))
        for n, r in rates.items()
    )
    return unit, tuple(points)


def _scaling(view: View, devices: set[float]) -> str | None:
    """Weak or strong by the batch sizes of the table, MIXED if they follow neither; None if it does not tell."""
    for k in (*view.of("global_batch"), *view.of("batch")):
        column = view.columns[k]
        sizes = {
            (n, item.number.value) for n, item in _cells(view, column) if n in devices
        }
        cells = {
            (n, size) for n, size in sizes if size % 1 == 0
        }  # and no "First batch (s)"
        if len(cells) == len(devices) == len({n for n, _ in cells}):
            constant = STRONG if column.quantity == "global_batch" else WEAK
            rules = [
                (constant, {size for _, size in cells}),
                (WEAK, {size / n for n, size in cells}),
            ]
            rules.append((STRONG, {size * n for n, size in cells}))
            return next((scaling for scaling, sizes in rules if len(sizes) == 1), MIXED)
    return None


def _cells(view: View, column: Column) -> list[tuple[float, Item]]:
    """(devices, item) of the rows that have both."""
    counts = view.columns[view.of("devices")[0]].items
    return [(n.low, item) for n, item in zip(counts, column.items) if n and item]


def read_links(path: Path) -> dict[str, Link]:
    """The link behind each all-reduce that links.json has measured and fitted, by its name; "": the fastest one."""
    try:
        fields = input_files.parse_json(input_files.read_text(path))
        if fields["schema"] != LINKS_SCHEMA:
            raise ValueError
        series = [
            one
            for one in fields["series"]
            if one["kind"] == ALL_REDUCE and one["fit"] and not one["error"]
        ]
        found = {
            one["name"].partition("#")[0]: _link(one, fields["device"])
            for one in series
        }
        return {**found, "": max(found.values(), key=lambda link: link.bytes_per_s)}
    except OSError as e:
        raise entry.Refusal(f"--links={path}: {e.strerror or e}") from None
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        rule = f"expected {LINKS_SCHEMA} with a fitted all-reduce; ./run.sh links --measure=all_reduce makes one"
        raise entry.Refusal(f"--links={path}: {rule}") from None


def _link(series: dict[str, Any], device: str) -> Link:
    """The link with which the same algorithm over the same ranks takes alpha + bytes / beta, as the fit says."""
    ranks, fit = series["ranks"], series["fit"]
    algorithm = registry.messages_of(series["name"].partition("#")[0]) or "ring"
    messages = exchange_s(algorithm, ranks, 1.0, 0.0, [Link(1.0, math.inf)])
    sent = exchange_s(
        algorithm, ranks, 1.0, 0.0, [Link(0.0, 1.0)]
    )  # bytes one after the other, for each byte
    alpha_s, bytes_per_s = (
        1e-6 * fit["alpha_us"] / messages,
        1e9 * fit["beta_gb_per_s"] * sent,
    )
    return Link(max(0.0, alpha_s), bytes_per_s, ranks if device == "gpu" else None)
