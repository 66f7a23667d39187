"""The data of charts: lines of points, and their runs.

The page's script draws them from JSON, and `pictures.charts` draws static pictures.
Neither depends on reports, histories or machines. The first metric and the first axis
are the defaults.

The field names of the dataclasses are the keys that the page's script reads: rename
them in both.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.reports.sections import explain_numbers
from rnn_scaling.reports.wording import write_sentence

_DIGITS = 6  # significant digits of a number in the page
# Fields of a metric that the script reads.
_METRIC_FIELDS = ("name", "title", "unit", "digits", "ideal")


@dataclasses.dataclass(frozen=True)
class Axis:
    """A choice for the horizontal axis, in addition to the metrics."""

    name: str  # a key of `x`, and in the address
    title: str
    # "number", "log"; "time": x is an ISO 8601 date; "order": x is any text; "metric": x
    # is the metric of this name. Only in static pictures, "amount": lines without marks.
    kind: str = "number"
    order: Sequence[str] = ()  # all texts of an axis of the kind "order"


@dataclasses.dataclass(frozen=True)
class Point:
    """One mark of a line."""

    x: Mapping[str, float | str]  # axis -> position
    values: Mapping[str, Interval]  # metric -> number in the printed unit
    runs: Sequence[int] = ()  # indices in `Explorer.runs`
    label: str = ""  # text after the line's title: "2 devices"
    href: str = ""  # link of a point without runs
    is_predicted: bool = False  # hollow, and its interval is part of a band


@dataclasses.dataclass(frozen=True)
class Line:
    """A series: one colour and shape, and one switch in the legend."""

    title: str
    points: Sequence[Point]
    group: str = ""  # a chart shows the lines of one group
    colour: int = 0  # numbers of a colour and of a shape
    shape: int = 0
    shared: str = ""  # heading of several lines: the words that their titles share
    short: str = ""  # the name below that heading; "" if it is the title
    anchor: str = ""  # id to which the line of the first table leads
    # Metric -> cell of the first table, for the last point.
    cells: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Mark:
    """A vertical line with a text, on charts over `axis`."""

    axis: str
    x: float | str
    text: str


@dataclasses.dataclass(frozen=True)
class Run:
    """A run in the table of runs and in the panel of a run."""

    name: str  # file name, as in the address
    title: str
    options: Mapping[str, str]  # columns of the table if runs differ in them
    status: str
    values: Mapping[str, float]  # metric -> value
    # Milliseconds of every step, or the minimum and maximum of each `bucket` steps.
    step_ms: Sequence[float | None]
    steps: int  # number of steps
    bucket: int  # 0: every step
    warmup: int  # steps that the rate excludes
    steady: int | None  # first steady step; None without one, or if not judged
    phases: Mapping[str, float]  # name -> seconds
    facts: Mapping[str, str]  # machine, versions, settings
    log: str
    command: str  # repeats the run


@dataclasses.dataclass(frozen=True)
class Explorer:
    """All data of the script."""

    metrics: Sequence[Metric]
    axes: Sequence[Axis]
    lines: Sequence[Line]
    runs: Sequence[Run] = ()
    marks: Sequence[Mark] = ()
    # Metrics that add up to a bar per line, from its last point that has any.
    parts: Sequence[str] = ()


def to_json(explorer: Explorer) -> str:
    """Return the data as JSON that is safe inside <script>.

    Options and facts that all runs share are stored once.
    """
    runs = [dict(vars(run)) for run in explorer.runs]
    shared = {}
    for name in ("options", "facts"):
        item_sets = [set(run[name].items()) for run in runs]
        common = set.intersection(*item_sets) if runs else set()
        first_items = runs[0][name].items() if runs else ()
        shared[name] = dict(item for item in first_items if item in common)
        for run in runs:
            run[name] = dict(item for item in run[name].items() if item not in common)
    content = {**vars(explorer), "runs": runs, "shared": shared}
    text = json.dumps(
        content, default=_to_json_data, allow_nan=False, separators=(",", ":")
    )
    return text.replace("<", "\\u003c")


def _to_json_data(value: Any) -> Any:
    """Return an interval as data, and another object as its fields.

    An interval is [value, low, high], and a sentence for each mark of the number.
    """
    if isinstance(value, Interval):
        ends = value.ends or (None, None)
        sentences = map(write_sentence, explain_numbers([value]))
        return [*map(round_briefly, (value.value, *ends)), *sentences]
    if isinstance(value, Metric):
        return {name: getattr(value, name) for name in _METRIC_FIELDS}
    return vars(value)


def round_briefly(value: float | None, digits: int = _DIGITS) -> float | None:
    """Return a number with few digits, or None if it is unknown or not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")
