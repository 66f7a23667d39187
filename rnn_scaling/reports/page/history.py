"""The page and the picture of a history: curves over commits and dates.

The command `history show` writes the results of `render` and `to_png`.
"""

import itertools

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.history.curves import Curve, Point, Timeline
from rnn_scaling.analysis.interval_kinds import IntervalKind
from rnn_scaling.analysis.metrics import METRICS, RATE, Metric
from rnn_scaling.reports import explorer
from rnn_scaling.reports import history as report
from rnn_scaling.reports.page import document, drawings
from rnn_scaling.reports.page.document import Body, Items, Live, PageSection
from rnn_scaling.reports.pictures import charts
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.reports.wording import format_signed_percent, write_sentences

_RELATIVE = Metric("relative", "relative rate", "% of the first entry", digits=1)
COMMIT = "commit"
_DAY = "measured"
_MAX_TEXTS = 3  # texts at one mark


def render(timeline: Timeline, name: str, commit_url: str) -> bytes:
    """Return the page as UTF-8.

    Args:
      timeline: The history.
      name: The name of the history.
      commit_url: URL of commits without the hash; "" if unknown.
    """
    table = report.make_table(timeline)
    size, *paragraphs = map(write_sentences, report.make_paragraphs(timeline))
    changes: list[float] = []
    for curve in timeline.curves:
        changes += [point.change.value for point in curve.change_points]
    change_texts = paragraphs[: len(changes)]
    remarks = paragraphs[len(changes) :]
    lead = [size]
    if changes:
        lead.append(change_texts[changes.index(min(changes))])
    lines = []
    for entry_name, entry in zip(_name_entries(timeline), timeline.entries):
        subject = entry.commit.subject if entry.commit else ""
        machine = entry.machine.name
        date = entry.measured or ""
        lines.append([entry_name, subject or "", date, machine, entry.label])
    head = ["Entry", "Subject", "Measured", "Machine", "Label"]
    entries = Section("", (Grid("Entries", head, lines, (1, 2, 3, 4)),))
    curves = [("#change-points", line[:-1]) for line in table.lines]
    picture = drawings.draw_picture(
        make_chart(timeline), "fig-history", "Rate over the entries"
    )
    return document.render_page(
        f"History of {name}",
        about=list(dict.fromkeys(entry.machine.name for entry in timeline.entries)),
        lead=" ".join(lead),
        overview=document.Overview(table.head[:-1], [("", curves)], "Curves"),
        explorer=_make_explorer(timeline, commit_url),
        sections=[
            PageSection(
                "change-points",
                f"Change points ({len(changes)})",
                [Items(change_texts or [size])],
            ),
            PageSection("entries", f"Entries ({len(lines)})", [Body(entries)]),
        ],
        first=[Live("chart", [picture])],
        notes=remarks,
    )


def make_chart(timeline: Timeline) -> charts.Chart:
    """Return the relative rates over the entries, with the change points."""
    data = _make_explorer(timeline, "")
    return charts.Chart(_RELATIVE, data.axes[0], data.lines, marks=data.marks)


def to_png(timeline: Timeline) -> bytes:
    """Return the picture as a PNG file."""
    return charts.draw_png(make_chart(timeline))


def _name_entries(timeline: Timeline) -> list[str]:
    """Return the commit of each entry; later entries of the same commit get a number."""
    names = [entry.name for entry in timeline.entries]
    unique_names = []
    for k, name in enumerate(names):
        count = names[: k + 1].count(name)
        unique_names.append(f"{name} ({count})" if count > 1 else name)
    return unique_names


def _make_explorer(timeline: Timeline, commit_url: str) -> explorer.Explorer:
    names = _name_entries(timeline)
    used_names: set[str] = set()
    lines = []
    for k, curve in enumerate(timeline.curves):
        points = []
        for point in curve.points:
            used_names.update(point.configuration.metrics)
            points.append(_make_point(curve, point, names, commit_url))
        lines.append(explorer.Line(curve.title, points, colour=k, shape=k // 6))
    metrics = [RATE]
    metrics += [metric for name, metric in METRICS.items() if name in used_names]
    axes = [explorer.Axis(COMMIT, "commit", "order", names)]
    if all(entry.measured for entry in timeline.entries):
        axes.append(explorer.Axis(_DAY, "date of measurement", "time"))
    return explorer.Explorer(
        [_RELATIVE, *metrics], axes, lines, marks=_make_marks(timeline, names)
    )


def _make_point(
    curve: Curve, point: Point, names: list[str], commit_url: str
) -> explorer.Point:
    rate = point.rate
    commit = point.entry.commit
    first = (curve.quiet_points or curve.points)[0]
    relative = rate.scaled(100 / first.rate.value)
    values = {RATE.name: rate, _RELATIVE.name: relative}
    for name in point.configuration.metrics:
        if (mean := point.metric(name)) is not None and name in METRICS:
            kind = IntervalKind(notes=rate.kind.inherited_notes)
            values[name] = Interval(mean * METRICS[name].factor, kind=kind)
    name = names[point.index]
    labels = [name, commit.subject if commit else None, point.entry.label]
    return explorer.Point(
        {COMMIT: name, _DAY: point.entry.measured or ""},
        values,
        label=", ".join(filter(None, labels)),
        href=f"{commit_url}{commit.hash}" if commit and commit_url else "",
    )


def _make_marks(timeline: Timeline, names: list[str]) -> list[explorer.Mark]:
    """Return marks at change points and at changes of the machine."""
    texts: dict[int, list[str]] = {}
    machines = [entry.machine.name for entry in timeline.entries]
    for k, (previous, machine) in enumerate(itertools.pairwise(machines), 1):
        if machine != previous:
            texts[k] = [machine]
    for curve in timeline.curves:
        for change_point, cut in zip(curve.change_points, curve.levels.cuts):
            text = format_signed_percent(change_point.change.value)
            texts.setdefault(curve.quiet_points[cut].index, []).append(text)
    marks = []
    for k, entry_texts in texts.items():
        text = ", ".join(entry_texts[:_MAX_TEXTS])
        if len(entry_texts) > _MAX_TEXTS:
            text += " ..."
        marks.append(explorer.Mark(COMMIT, names[k], text))
        day = timeline.entries[k].measured or ""
        marks.append(explorer.Mark(_DAY, day, text))
    return marks
