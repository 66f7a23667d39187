"""The data of the interactive page as one JSON object: lines of points, and their runs.

The script does not depend on reports, histories or machines. The first metric and the first axis are the defaults.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Metric:
    """A number of points and runs, in the printed unit. Every metric can also be the horizontal axis."""

    name: str  # a key of `values`, and in the address
    title: str
    unit: str = ""
    digits: int = 2  # most decimals
    ideal: str = ""  # the dashed line: "n" is the number on the axis, "one" is 1 (100 of a share in %), "" is none


@dataclasses.dataclass(frozen=True)
class Axis:
    """A choice for the horizontal axis, in addition to the metrics."""

    name: str  # a key of `x`, and in the address
    title: str
    kind: str = (
        "number"  # or "log"; "time": x is an ISO 8601 date; "order": x is any text
    )
    order: Sequence[str] = ()  # the texts in order; empty: as the points have them


@dataclasses.dataclass(frozen=True)
class Point:
    """One mark of a line."""

    x: Mapping[str, float | str]  # axis -> position
    values: Mapping[
        str, Sequence[float | None]
    ]  # metric -> value, low, high (None: no interval)
    runs: Sequence[int] = ()  # indices in `Explorer.runs`
    label: str = ""  # after the line's title: "2 devices"
    href: str = ""  # link of a point without runs
    is_predicted: bool = False  # hollow, and its interval is part of a band


@dataclasses.dataclass(frozen=True)
class Line:
    """A series: one colour, and one switch in the legend."""

    title: str
    points: Sequence[Point]
    group: str = ""  # a chart shows the lines of one group


@dataclasses.dataclass(frozen=True)
class Mark:
    """A vertical line with a text, on charts over `axis`."""

    axis: str
    at: float | str
    text: str


@dataclasses.dataclass(frozen=True)
class Run:
    """A run, for the table of runs and the run panel."""

    name: str  # its file; in the address
    title: str
    options: Mapping[str, str]  # columns of the table if runs differ in them
    status: str
    values: Mapping[str, float] = dataclasses.field(
        default_factory=dict
    )  # metric -> value
    step_ms: Sequence[
        float
    ] = ()  # of every step, or the minimum and maximum of each `bucket` steps
    steps: int = 0  # number of steps
    bucket: int = 0  # 0: every step
    warmup: int = 0  # steps that the rate excludes
    steady: int | None = None  # first steady step; None without one, or if not judged
    phases: Mapping[str, float] = dataclasses.field(
        default_factory=dict
    )  # name -> seconds
    facts: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # machine, versions, settings
    log: str = ""
    command: str = ""  # repeats the run


@dataclasses.dataclass(frozen=True)
class Explorer:
    """All data of the script."""

    metrics: Sequence[Metric]
    axes: Sequence[Axis]
    lines: Sequence[Line]
    runs: Sequence[Run] = ()
    marks: Sequence[Mark] = ()
    parts: Sequence[
        str
    ] = ()  # metrics that add up to a bar per line, from its last point that has any


def to_json(explorer: Explorer) -> str:
    """The data as JSON that is safe inside <script>. Options and facts that all runs share are stored once."""
    fields = {**vars(explorer), "shared": {}}
    runs = [dict(vars(run)) for run in explorer.runs]
    for name in ("options", "facts"):
        first = runs[0][name] if runs else {}
        shared = {
            key: text
            for key, text in first.items()
            if all(run[name].get(key) == text for run in runs)
        }
        fields["shared"][name] = shared
        for run in runs:
            run[name] = {
                key: text for key, text in run[name].items() if key not in shared
            }
    text = json.dumps(
        {**fields, "runs": runs}, default=vars, allow_nan=False, separators=(",", ":")
    )
    return text.replace("<", "\\u003c")
