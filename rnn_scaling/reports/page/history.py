"""The page of a history: curves over commits and dates, with their steps."""

from collections.abc import Iterator

from rnn_scaling.analysis.history.curves import Curve, Point, Timeline
from rnn_scaling.analysis.metrics import METRICS, RATE
from rnn_scaling.reports import history as report
from rnn_scaling.reports.page import document, explorer
from rnn_scaling.reports.page.document import Body, Items, Live, PageSection, figure_of
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.reports.wording import sentences

RELATIVE = explorer.Metric("relative", "relative rate", "% of the first entry", 1)
COMMIT, DAY = "commit", "measured"
MOST_TEXTS = 3  # at one mark


def render(shown: Timeline, name: str, commit_url: str) -> bytes:
    """The page as UTF-8; commit_url: URL of commits without the hash, "" if unknown."""
    grid, paragraphs = report.table(shown), report.paragraphs(shown)
    machines = dict.fromkeys(entry.machine.name for entry in shown.entries)
    title, texts = "Rate over the entries", list(map(sentences, paragraphs))
    changes = [step.change.value for curve in shown.curves for step in curve.steps]
    steps = texts[1 : 1 + len(changes)]
    worst = [steps[changes.index(min(changes))]] if changes else []
    lines = [
        [
            name,
            (entry.commit and entry.commit.subject) or "",
            entry.measured or "",
            entry.machine.name,
            entry.label,
        ]
        for name, entry in zip(_names(shown), shown.entries)
    ]
    entries = Grid(
        "Entries",
        ["Entry", "Subject", "Measured", "Machine", "Label"],
        lines,
        (1, 2, 3, 4),
    )
    return document.page(
        f"History of {name}",
        list(machines),
        " ".join(texts[:1] + worst),
        document.Overview(
            grid.head[:-1],
            [("", [("#steps", line[:-1]) for line in grid.lines])],
            "Curves",
        ),
        _data(shown, commit_url),
        [
            PageSection("steps", f"Steps ({len(steps)})", [Items(steps or texts[:1])]),
            PageSection(
                "entries",
                f"Entries ({len(shown.entries)})",
                [Body(Section("", (entries,)))],
            ),
        ],
        first=[
            Live(
                "chart",
                [figure_of(report.svg(shown), "fig-history", title, " ".join(texts))],
            )
        ],
        notes=texts[1 + len(steps) :],
    )


def _names(shown: Timeline) -> list[str]:
    """The commit of each entry; further entries of a commit get a number."""
    names = [entry.name for entry in shown.entries]
    counts = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return [
        f"{name} ({count})" if count > 1 else name for name, count in zip(names, counts)
    ]


def _data(shown: Timeline, commit_url: str) -> explorer.Explorer:
    names = _names(shown)
    used = {
        name
        for curve in shown.curves
        for point in curve.points
        for name in point.configuration.metrics
    }
    known = [RATE, *(metric for name, metric in METRICS.items() if name in used)]
    numbers = [
        explorer.Metric(metric.name, metric.title, metric.unit, metric.digits)
        for metric in known
    ]
    axes = [explorer.Axis(COMMIT, "commit", "order", names)]
    if all(entry.measured for entry in shown.entries):
        axes.append(explorer.Axis(DAY, "date of measurement", "time"))
    lines = [
        explorer.Line(
            curve.title,
            [_point(curve, point, names, commit_url) for point in curve.points],
        )
        for curve in shown.curves
    ]
    return explorer.Explorer(
        [RELATIVE, *numbers], axes, lines, marks=[*_marks(shown, names)]
    )


def _point(
    curve: Curve, point: Point, names: list[str], commit_url: str
) -> explorer.Point:
    rate, commit, first = point.rate, point.entry.commit, curve.points[0].rate.value
    ends = [rate.value, rate.low, rate.high]
    values = {
        RATE.name: ends,
        RELATIVE.name: [end and 100 * end / first for end in ends],
    }
    for name in point.configuration.metrics:
        if (mean := point.metric(name)) is not None and name in METRICS:
            values[name] = [mean * METRICS[name].factor, None, None]
    words = [names[point.place], commit.subject if commit else None, point.entry.label]
    address = f"{commit_url}{commit.hash}" if commit and commit_url else ""
    x: dict[str, float | str] = {
        COMMIT: names[point.place],
        DAY: point.entry.measured or "",
    }
    return explorer.Point(x, values, label=", ".join(filter(None, words)), href=address)


def _marks(shown: Timeline, names: list[str]) -> Iterator[explorer.Mark]:
    """Steps, and changes of the machine."""
    machines = [entry.machine.name for entry in shown.entries]
    marks = {
        k: [name] for k, name in enumerate(machines) if k and name != machines[k - 1]
    }
    for curve in shown.curves:
        for step, cut in zip(curve.steps, curve.levels.cuts):
            marks.setdefault(curve.points[cut].place, []).append(
                f"{100 * (step.change.value - 1):+.1f} %"
            )
    for place, texts in marks.items():
        text = ", ".join(texts[:MOST_TEXTS]) + (
            " ..." if len(texts) > MOST_TEXTS else ""
        )
        yield explorer.Mark(COMMIT, names[place], text)
        yield explorer.Mark(DAY, shown.entries[place].measured or "", text)
