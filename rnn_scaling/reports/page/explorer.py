"""What the page's script draws: lines of points, and the runs behind them, as one JSON object.

The script knows nothing of reports, histories or machines. The first metric and the first axis are shown first.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Metric:
    """A number that points and runs have, in the unit that is printed. Any metric can be the horizontal axis too."""

    name: str  # a key of `values`, and in the address
    title: str
    unit: str = ""
    digits: int = 2  # decimals at most
    ideal: str = ""  # the dashed line: "n" is the number on the axis, "one" is 1 (100 of a share in %), "" is none


@dataclasses.dataclass(frozen=True)
class Axis:
    """What the horizontal axis can be, besides a metric."""

    name: str  # a key of `x`, and in the address
    title: str
    kind: str = "number"  # or "log"; "time": x is an ISO 8601 date; "order": x is any text
    order: Sequence[str] = ()  # of these texts; empty: that of the points


@dataclasses.dataclass(frozen=True)
class Point:
    """One mark of a line."""

    x: Mapping[str, float | str]  # axis -> where
    values: Mapping[str, Sequence[float | None]]  # metric -> value, and the ends of its interval (None: has none)
    runs: Sequence[int] = ()  # places in `Explorer.runs`
    label: str = ""  # besides the line's title: "2 devices"
    href: str = ""  # of a point without runs: where a click leads


@dataclasses.dataclass(frozen=True)
class Line:
    """A series: one colour, and one switch in the legend."""

    title: str
    options: Mapping[str, str]  # what filters offer
    points: Sequence[Point]
    group: str = ""  # lines of different groups are never in one picture


@dataclasses.dataclass(frozen=True)
class Mark:
    """A vertical line with a text, where `axis` is shown."""

    axis: str
    at: float | str
    text: str


@dataclasses.dataclass(frozen=True)
class Run:
    """A run, for the table of runs and the panel that shows one."""

    name: str  # its file; in the address
    title: str
    options: Mapping[str, str]  # those in which runs differ are columns and filters
    status: str
    values: Mapping[str, float] = dataclasses.field(default_factory=dict)  # metric -> value
    step_ms: Sequence[float] = ()  # of every step, or the least and the most of each `bucket` steps in turn
    steps: int = 0  # how many there are
    bucket: int = 0  # 0: every step
    warmup: int = 0  # steps that the rate leaves out
    steady: int | None = None  # the step from which the times are steady; None: none, or not judged
    phases: Mapping[str, float] = dataclasses.field(default_factory=dict)  # name -> seconds
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)  # machine, versions, settings
    log: str = ""
    command: str = ""  # that repeats it


@dataclasses.dataclass(frozen=True)
class Explorer:
    """All that the script needs."""

    metrics: Sequence[Metric]
    axes: Sequence[Axis]
    lines: Sequence[Line]
    runs: Sequence[Run] = ()
    marks: Sequence[Mark] = ()
    parts: Sequence[str] = ()  # metrics that sum up to a bar for each line, at its last point that has any


def to_json(explorer: Explorer) -> str:
    """The data as JSON that can stand inside a <script>; what the options and facts of all runs share is there once."""
    fields = {**vars(explorer), "shared": {}}
    runs = [dict(vars(run)) for run in explorer.runs]
    for name in ("options", "facts"):
        shared = dict(set.intersection(*(set(run[name].items()) for run in runs))) if runs else {}
        fields["shared"][name] = {key: value for run in runs[:1] for key, value in run[name].items() if key in shared}
        for run in runs:
            run[name] = {key: value for key, value in run[name].items() if key not in shared}
    text = json.dumps({**fields, "runs": runs}, default=vars, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
