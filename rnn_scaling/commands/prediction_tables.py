"""The tables of anybody's document -> Curves: speed on numbers of devices, without repeats or records."""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.analysis.prediction.answers import SPEEDUP
from rnn_scaling.analysis.prediction.curves import STRONG, WEAK, Curve, Knowledge, Link, MeasuredPoint
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.audit import auditing, derived, documents, numbers
from rnn_scaling.audit.derived import Series
from rnn_scaling.audit.tables import View, views

MOST = 200  # series of a file
LONGEST_TITLE = 40  # letters of it in the name of a series
SHRINKS = 0.9  # seconds on the most devices, relative to the fewest, below which the total work is constant
_UNIT = re.compile(r"([A-Za-z]+)\s*(?:/|\bper\b|p(?=s\b))\s*(?:s|sec|secs|seconds?|min|minutes?|h|hr|hours?|days?)\b")
NOUNS = {"img": "images", "image": "images", "word": "words", "token": "tokens", "sample": "samples", "step": "steps"}
MIXED = ""  # the scaling of a table whose work follows no rule


Assumed = tuple[Curve, tuple[Statement, ...]]  # a curve, and what its reading assumes


def curves(path: Path, devices_per_machine: int | None = None) -> list[Assumed]:
    """A curve for each series of a file's tables. Raises Refusal if it has none."""
    try:
        tables = list(documents.tables(path))
        titles = {table.line: table.title or table.caption for table in tables}
        made = [item for table in auditing.joined(tables) for item in _of_views(views(table), titles)][:MOST]
    except OSError as e:
        raise entry.Refusal(f"{path}: {e.strerror or e}") from None
    except documents.UnreadableError as e:
        raise entry.Refusal(str(e)) from None
    if not made:
        rule = "no table with a column of devices and one of rates, seconds or speedups on several numbers of them"
        raise entry.Refusal(f"{path}: {rule}; docs/audit.md lists the header words")
    made.sort(key=lambda item: int(item[0].source.rpartition(":")[2]))
    if devices_per_machine is None:
        return made
    known = Knowledge(links=(Link(0.0, math.inf, devices_per_machine),))
    return [(dataclasses.replace(curve, knowledge=known), assumed) for curve, assumed in made]


def _of_views(found: list[View], titles: Mapping[int, str]) -> Iterator[Assumed]:
    """The series of the first view that has some; `titles` of the tables by their lines."""
    for view in found:
        if made := derived.series(view):
            for series in made:
                if all(point.devices == int(point.devices) for point in series.points):
                    yield _curve(view, series, titles)
            return


def _curve(view: View, series: Series, titles: Mapping[int, str]) -> Assumed:
    column = next(column for column in view.columns if column.quantity == series.measure)
    sizes = [(int(point.devices), point.measured) for point in series.points]
    stated = _scaling(view, series)
    falls = series.measure == "seconds" and sizes[-1][1] < SHRINKS * sizes[0][1]
    scaling = stated if stated is not None else STRONG if falls else WEAK
    factor = column.factor if series.measure in ("rate", "each") else 1.0
    rates = [factor * value for _, value in sizes]
    if series.measure == "seconds":
        rates = [(1 if scaling == STRONG else n) / value for n, value in sizes]
    points = [
        MeasuredPoint(n, float(f"{rate:.12g}"), rounding=point.rounding)
        for (n, _), rate, point in zip(sizes, rates, series.points)
    ]
    above = max((line for line in titles if line <= series.line), default=view.table.line)
    title = numbers.plain(titles.get(above, ""))[:LONGEST_TITLE].strip(" #:*")
    name = ", ".join(filter(None, (title, series.name, f"line {series.line}")))
    unit, source = _unit(column.name, series.measure), f"{series.source}:{series.line}"
    assumed = []
    if series.measure == "seconds":
        assumed.append(Statement("predict-falling-seconds" if scaling == STRONG else "predict-constant-seconds", name))
    elif stated is None:
        assumed.append(Statement("predict-constant-work", name))
    return Curve(name, unit, scaling, tuple(points), source=source), tuple(assumed)


def _unit(header: str, measure: str) -> str:
    """What a column counts a second; "items" if its header does not say."""
    if measure == "speedup":
        return SPEEDUP
    found = _UNIT.search(header) if measure != "seconds" else None
    word = found[1].lower() if found else "items"
    return "steps" if measure == "seconds" else NOUNS.get(word, word)


def _scaling(view: View, series: Series) -> str | None:
    """Weak or strong by the batch sizes of the table, MIXED if they follow neither; None if it has none."""
    counts = view.columns[view.of("devices")[0]].items
    wanted = {int(point.devices) for point in series.points}
    for quantity in ("global_batch", "batch"):
        for k in view.of(quantity):
            sizes: dict[int, set[float]] = {}
            for n, item in zip(counts, view.columns[k].items):
                if n and item and int(n.low) in wanted:
                    sizes.setdefault(int(n.low), set()).add(item.number.value)
            if sizes.keys() == wanted and all(len(values) == 1 for values in sizes.values()):
                return _judged({n: values.pop() for n, values in sizes.items()}, quantity == "global_batch")
    return None


def _judged(sizes: Mapping[int, float], is_total: bool) -> str:
    """The scaling, by the batch size on each number of devices."""
    if len({*sizes.values()}) == 1:
        return STRONG if is_total else WEAK
    if len({size / n for n, size in sizes.items()}) == 1:
        return WEAK
    return STRONG if len({size * n for n, size in sizes.items()}) == 1 else MIXED
