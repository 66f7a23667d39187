"""The tables of anybody's document -> Curves: speed on numbers of devices, without repeats or records."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.analysis.prediction.answers import SPEEDUP
from rnn_scaling.analysis.prediction.curves import STRONG, WEAK, Curve, Knowledge, Link, MeasuredPoint
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.audit import auditing, derived, documents, numbers
from rnn_scaling.audit.derived import Series
from rnn_scaling.audit.tables import View, views
from rnn_scaling.commands.prediction_options import FolderSeries, PredictionOptions

MOST = 200  # series of a file
LONGEST_TITLE = 40  # letters of it in the name of a series
SHRINKS = 0.9  # seconds on the most devices, relative to the fewest, below which the total work is constant
_UNIT = re.compile(r"([A-Za-z]+)\s*(?:/|\bper\b|p(?=s\b))\s*(?:s|sec|secs|seconds?|min|minutes?|h|hr|hours?|days?)\b")
NOUNS = {"img": "images", "image": "images", "word": "words", "token": "tokens", "sample": "samples", "step": "steps"}
MIXED = ""  # the scaling of a table whose work follows no rule


def every_series(path: Path, options: PredictionOptions) -> list[FolderSeries]:
    """The series of a file's tables, in the order of their lines. Raises Refusal if it has none."""
    if options.links or options.link_gbit is not None or options.latency_us is not None:
        raise entry.Refusal("--links and --link_gbit need the bytes of a step, which a table does not have; omit them")
    try:
        tables = list(documents.tables(path))
    except OSError as e:
        raise entry.Refusal(f"{path}: {e.strerror or e}") from None
    except documents.UnreadableError as e:
        raise entry.Refusal(str(e)) from None
    titles = {table.line: table.title or table.caption for table in tables}
    first_views = (next(filter(derived.series, views(table)), None) for table in auditing.joined(tables))
    found = [(view, series) for view in first_views if view for series in derived.series(view)]
    made = [
        _series(view, series, titles, options.devices_per_machine)
        for view, series in sorted(found, key=lambda pair: pair[1].line)[:MOST]
        if all(point.devices.is_integer() for point in series.points)
    ]
    if not made:
        rule = "no table with a column of devices and one of rates, seconds or speedups on several numbers of them"
        raise entry.Refusal(f"{path}: {rule}; docs/audit.md lists the header words")
    return made


def _series(view: View, series: Series, titles: Mapping[int, str], per_machine: int | None) -> FolderSeries:
    column = next(column for column in view.columns if column.quantity == series.measure)
    above = max((line for line in titles if line <= series.line), default=view.table.line)
    title = numbers.plain(titles.get(above, ""))[:LONGEST_TITLE].strip(" #:*")
    name = ", ".join(filter(None, (title, series.name, f"line {series.line}")))
    is_time, stated = series.measure == "seconds", _scaling(view, {int(point.devices) for point in series.points})
    falls = is_time and series.points[-1].measured < SHRINKS * series.points[0].measured
    scaling = (STRONG if falls else WEAK) if stated is None else stated
    factor = column.factor if series.measure in ("rate", "each") else 1.0
    points = []
    for point in series.points:
        n, value = int(point.devices), point.measured
        rate = (1 if scaling == STRONG else n) / value if is_time else factor * value
        points.append(MeasuredPoint(n, float(f"{rate:.12g}"), rounding=point.rounding))
    kind = ("predict-falling-seconds" if scaling == STRONG else "predict-constant-seconds") if is_time else ""
    kind = kind or ("predict-constant-work" if stated is None else "")
    known = Knowledge(links=(Link(0.0, math.inf, per_machine),) if per_machine else ())
    unit, source = _unit(column.name, series.measure), f"{series.source}:{series.line}"
    return FolderSeries(
        Curve(name, unit, scaling, tuple(points), known, source),
        refusal=Statement("predict-mixed-table", name) if stated == MIXED else None,
        assumed=(Statement(kind, name),) if kind else (),
    )


def _unit(header: str, measure: str) -> str:
    """What a column counts a second; "items" if its header does not say."""
    if measure == "speedup":
        return SPEEDUP
    found = _UNIT.search(header) if measure != "seconds" else None
    word = found[1].lower() if found else "items"
    return "steps" if measure == "seconds" else NOUNS.get(word, word)


def _scaling(view: View, devices: set[int]) -> str | None:
    """Weak or strong by the batch sizes of the table, MIXED if they follow neither; None if it does not tell."""
    counts = view.columns[view.of("devices")[0]].items
    for quantity in ("global_batch", "batch"):
        for k in view.of(quantity):
            cells = {(int(n.low), i.number.value) for n, i in zip(counts, view.columns[k].items) if n and i}
            sizes = {n: size for n, size in cells if n in devices}
            if sizes.keys() != devices or sum(n in devices for n, _ in cells) > len(sizes):
                continue  # not known everywhere, or several on one number
            if len({*sizes.values()}) == 1:
                return STRONG if quantity == "global_batch" else WEAK
            if len({size / n for n, size in sizes.items()}) == 1:
                return WEAK
            return STRONG if len({size * n for n, size in sizes.items()}) == 1 else MIXED
    return None
