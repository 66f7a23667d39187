"""The page and the picture of a history: curves over commits and dates, with steps."""

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.history.curves import Curve, Point, Timeline
from rnn_scaling.analysis.metrics import METRICS, RATE
from rnn_scaling.reports import explorer
from rnn_scaling.reports import history as report
from rnn_scaling.reports.page import document, drawings
from rnn_scaling.reports.page.document import Body, Items, Live, PageSection
from rnn_scaling.reports.pictures import charts
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.reports.wording import sentences

RELATIVE = explorer.Metric("relative", "relative rate", "% of the first entry", 1)
COMMIT = "commit"
DAY = "measured"
MOST_TEXTS = 3  # at one mark


def render(shown: Timeline, name: str, commit_url: str) -> bytes:
    """Return the page as UTF-8.

    Args:
      shown: The history.
      name: Its name.
      commit_url: URL of commits without the hash, "" if unknown.
    """
    table = report.table(shown)
    size, *others = map(sentences, report.paragraphs(shown))
    changes = [step.change.value for curve in shown.curves for step in curve.steps]
    steps = others[: len(changes)]
    remarks = others[len(changes) :]
    lead = [size]
    if changes:
        lead.append(steps[changes.index(min(changes))])
    lines = []
    for entry_name, entry in zip(_names(shown), shown.entries):
        subject = entry.commit.subject if entry.commit else ""
        machine = entry.machine.name
        lines.append(
            [entry_name, subject or "", entry.measured or "", machine, entry.label]
        )
    head = ["Entry", "Subject", "Measured", "Machine", "Label"]
    entries = Section("", (Grid("Entries", head, lines, (1, 2, 3, 4)),))
    curves = [("#steps", line[:-1]) for line in table.lines]
    picture = drawings.picture(chart(shown), "fig-history", "Rate over the entries")
    return document.page(
        f"History of {name}",
        list(dict.fromkeys(entry.machine.name for entry in shown.entries)),
        " ".join(lead),
        document.Overview(table.head[:-1], [("", curves)], "Curves"),
        _data(shown, commit_url),
        [
            PageSection("steps", f"Steps ({len(steps)})", [Items(steps or [size])]),
            PageSection("entries", f"Entries ({len(lines)})", [Body(entries)]),
        ],
        first=[Live("chart", [picture])],
        notes=remarks,
    )


def chart(shown: Timeline) -> charts.Chart:
    """Return the relative rates over the entries, with the steps."""
    data = _data(shown, "")
    return charts.Chart(RELATIVE, data.axes[0], data.lines, marks=data.marks)


def to_png(shown: Timeline) -> bytes:
    """Return the picture as a PNG file."""
    return charts.png(chart(shown))


def _names(shown: Timeline) -> list[str]:
    """Return the commit of each entry; further entries of a commit get a number."""
    names = [entry.name for entry in shown.entries]
    numbered = []
    for place, name in enumerate(names):
        count = names[: place + 1].count(name)
        numbered.append(f"{name} ({count})" if count > 1 else name)
    return numbered


def _data(shown: Timeline, commit_url: str) -> explorer.Explorer:
    names = _names(shown)
    used: set[str] = set()
    lines = []
    for k, curve in enumerate(shown.curves):
        points = []
        for point in curve.points:
            used.update(point.configuration.metrics)
            points.append(_point(curve, point, names, commit_url))
        lines.append(explorer.Line(curve.title, points, colour=k, shape=k // 6))
    known = [RATE, *(metric for name, metric in METRICS.items() if name in used)]
    axes = [explorer.Axis(COMMIT, "commit", "order", names)]
    if all(entry.measured for entry in shown.entries):
        axes.append(explorer.Axis(DAY, "date of measurement", "time"))
    metrics = [RELATIVE, *map(explorer.Metric.of, known)]
    return explorer.Explorer(metrics, axes, lines, marks=_marks(shown, names))


def _point(
    curve: Curve, point: Point, names: list[str], commit_url: str
) -> explorer.Point:
    rate = point.rate
    commit = point.entry.commit
    relative = rate.scaled(100 / curve.points[0].rate.value)
    values = {RATE.name: rate, RELATIVE.name: relative}
    for name in point.configuration.metrics:
        if (mean := point.metric(name)) is not None and name in METRICS:
            values[name] = Interval(mean * METRICS[name].factor)
    name = names[point.place]
    words = [name, commit.subject if commit else None, point.entry.label]
    return explorer.Point(
        {COMMIT: name, DAY: point.entry.measured or ""},
        values,
        label=", ".join(filter(None, words)),
        href=f"{commit_url}{commit.hash}" if commit and commit_url else "",
    )


def _marks(shown: Timeline, names: list[str]) -> list[explorer.Mark]:
    """Return marks for steps and for changes of the machine."""
    texts: dict[int, list[str]] = {}
    machines = [entry.machine.name for entry in shown.entries]
    for place, (before, machine) in enumerate(zip(machines, machines[1:]), 1):
        if machine != before:
            texts[place] = [machine]
    for curve in shown.curves:
        for step, cut in zip(curve.steps, curve.levels.cuts):
            text = f"{100 * (step.change.value - 1):+.1f} %"
            texts.setdefault(curve.points[cut].place, []).append(text)
    marks = []
    for place, found in texts.items():
        more = " ..." if len(found) > MOST_TEXTS else ""
        text = ", ".join(found[:MOST_TEXTS]) + more
        marks.append(explorer.Mark(COMMIT, names[place], text))
        day = shown.entries[place].measured or ""
        marks.append(explorer.Mark(DAY, day, text))
    return marks
