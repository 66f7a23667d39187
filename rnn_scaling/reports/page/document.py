"""One HTML page that opens from disk: nothing in it is fetched, and its words and numbers are those of the Summary."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.analysis.attribution import MEANING, Attribution
from rnn_scaling.analysis.metrics import EFFICIENCY, ITEMS, Metric
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports import (
    cautions,
    conclusions,
    loss_statements,
    padding,
    repeat_commands,
    series_statements,
    series_table,
    table,
)
from rnn_scaling.reports.numbers import has_interval, plus_minus
from rnn_scaling.reports.page import drawings, inside
from rnn_scaling.reports.page.parts import (
    MOST_FIGURES,
    Block,
    Body,
    Command,
    Folded,
    Group,
    Items,
    Key,
    Legend,
    PageSection,
    Terms,
    Text,
    unbroken,
)
from rnn_scaling.reports.pictures import curves, figures
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.summary_builder import MOST as MOST_JUDGED
from rnn_scaling.reports.wording import sentence, sentences

TEMPLATES = Path(__file__).parent / "template"
MOST_COMMANDS = 200  # series with commands of their own


def render(summary: Summary) -> bytes:
    """The page as UTF-8."""
    import jinja2

    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"unbroken": unbroken, "kind": lambda block: type(block).__name__}
    page = environment.get_template("page.html").render(**_context(summary))
    return page.encode()


def _context(summary: Summary) -> dict[str, Any]:
    limitations = cautions.lines(summary)
    return {
        "schema": REPORT_SCHEMA,
        "name": entry.plain(Path(summary.name).resolve().name) or summary.name,
        "runs": summary.runs,
        "unit": summary.unit,
        "counted": list(dict.fromkeys((member.unit, member.rows[0].row.items) for member in summary.series)),
        "lead": conclusions.lead(summary),
        "remarks": conclusions.overview(summary),
        # Each line of the table of all series leads to the details of its series.
        "overview": [
            (
                section.title,
                section.grids[0].head,
                list(zip(map(summary.positions.get, series), section.grids[0].lines)),
            )
            for section, (_, series) in zip(series_table.sections(summary), summary.tables)
        ],
        "is_certified": summary.is_certified,
        "is_mixed": len({member.strong for member in summary.series}) == 2,
        "limitations": len(limitations),
        "kinds": conclusions.kinds(summary.series),
        "glance": drawings.glance(summary),
        "sections": [section for section in _sections(summary, limitations) if section.blocks],
    }


def _sections(summary: Summary, limitations: Sequence[str]) -> list[PageSection]:
    """All below the first screen; those without blocks are left out."""
    measured = summary.measured
    return [
        PageSection("cautions", "Limitations", "Limitations", [Items(limitations)] if limitations else []),
        _curves(summary),
        inside.learning_section(summary),
        PageSection("loss", "Loss", "Where efficiency is lost", _losses(measured)),
        inside.steps_section(measured),
        inside.counts_section(summary),
        PageSection("rates", "Every row", "Every row", _rates(summary)),
        PageSection("steady", "Steady state", "Steady state", _steady(summary)),
        PageSection("workers", "Start-up", "Start-up and workers", _workers(measured)),
        PageSection("padding", "Padding", padding.TITLE, _padding(summary)),
        PageSection("failures", "Failed runs", "Failed runs", _failures(summary)),
        PageSection("again", "Measure again", "Measure again", _again(summary)),
        PageSection("environment", "Environment", "Environment", _environment(summary)),
    ]


def _curves(summary: Summary) -> PageSection:
    """The pictures of weak and of strong scaling that the first screen does not have, each with a legend of its own."""
    groups = figures.groups(summary)
    blocks: list[Block] = []
    for k, (name, series) in enumerate(groups):
        if metrics := _metrics_over_devices(series):
            suffix, group = f"-{k}" if k else "", name if len(groups) > 1 else ""
            frames = [curves.frame_of(series, metric) for metric in metrics]
            keys = [*drawings.swatches(series), *drawings.marks(*frames)]
            blocks += [
                *([Text(group, "h3")] if group else []),
                Group(
                    "figures",
                    [drawings.curve(series, metric, f"fig-{metric.name}{suffix}", group) for metric in metrics],
                ),
                Legend(", ".join(filter(None, ["Lines over the number of devices", group])), keys),
                *drawings.undrawn(len(series), "series"),
            ]
    is_printed = any(drawings.is_curve(series) for _, series in groups)  # else the dots of the first screen say it all
    return PageSection("curves", "Curves", "Over the number of devices", blocks, is_printed)


def _metrics_over_devices(series: Sequence[SeriesSummary]) -> list[Metric]:
    rows = [row.row for member in series for row in member.rows if row.row.rate]
    if len({row.num_devices for row in rows}) < 2:
        return []  # one number of devices makes no line
    shown = EFFICIENCY.name if drawings.is_curve(series) else ""
    return [
        metric for metric in figures.drawn(series) if metric.name != shown and any(row.metric(metric) for row in rows)
    ]


def _losses(measured: Sequence[SeriesSummary]) -> list[Block]:
    """Waterfalls of the series whose parts differ from 0, and the names of the others."""
    known = [(series, series.largest.loss) for series in measured if series.largest and series.largest.loss]
    split_losses = [(series, loss) for series, loss in known if loss.is_told]
    return [*(_split_losses(measured, split_losses) if split_losses else []), *_untold(known)]


def _split_losses(
    measured: Sequence[SeriesSummary], losses: Sequence[tuple[SeriesSummary, Attribution]]
) -> list[Block]:
    drawn, undrawn = losses[:MOST_FIGURES], losses[MOST_FIGURES:]
    noise = loss_statements.noise_of([loss for _, loss in losses])
    waterfalls = []
    for k, (series, loss) in enumerate(drawn):
        numbers = Folded("Numbers of this loss", [_loss_body(series, loss)], series.title, is_printed=False)
        waterfalls.append(Group("loss", [Text(series.title, "h3"), drawings.loss(series, loss, k), numbers]))
    # One number of devices alone stands next to its waterfall already.
    splits = [(series.title, table.parts_section(series)) for series in measured]
    bodies = [
        Body(dataclasses.replace(split, title=title), title, has_title=True)
        for title, split in splits
        if split.grids and len(split.grids[0].lines) > 1
    ]
    unit, names = losses[0][0].unit, {part.name for _, loss in losses for part in loss.told}
    meaning = [Key(name, meaning=text.replace(ITEMS, unit)) for name, text in MEANING.items() if name in names]
    return [
        Text(sentence(Statement("reading-of-losses", values={"noise": noise}))),
        Legend("Bars of the losses", drawings.bars([loss for _, loss in drawn])),
        Group("figures wide", waterfalls),
        *(Folded(f"Loss: {series.title}", [_loss_body(series, loss)]) for series, loss in undrawn),
        *([Folded("Points of efficiency lost, by number of devices", bodies, is_printed=False)] if bodies else []),
        Terms(meaning, "meaning"),
    ]


def _untold(losses: Sequence[tuple[SeriesSummary, Attribution]]) -> list[Block]:
    """Why no part is shown, and what would show it; one paragraph for series with the same reason."""
    titles: dict[str, list[str]] = {}
    for series, loss in losses:
        if text := sentences(loss_statements.unmeasured(loss)):
            titles.setdefault(text, []).append(series.title)
    if len(losses) == 1:
        return [Text(text) for text in titles]
    return [
        Text(f"{'All series' if len(names) == len(losses) else '; '.join(names)}: {text}")
        for text, names in titles.items()
    ]


def _loss_body(series: SeriesSummary, loss: Attribution) -> Body:
    lines = [[part.name, plus_minus(part.points, 1), plus_minus(part.value, 1)] for part in loss.shown]
    lines.append(["whole loss", plus_minus(loss.loss_points, 1), plus_minus(loss.loss, 1)])
    values = [*(part.points for part in loss.shown), loss.loss_points]
    kinds = dict.fromkeys(value.kind for value in values if value and has_interval(value))
    caption = f"Loss on {loss.row.devices} against {loss.row.num_devices} times one device"
    grid = Grid(caption, ["Part", "Points of efficiency", f"{series.unit.capitalize()}/s"], lines)
    notes = tuple(Statement("loss-interval", kind) for kind in kinds)
    return Body(Section(series.title, (grid,), notes), series.title)


def _rates(summary: Summary) -> list[Block]:
    """The rows of each series; what holds for all of them is said once."""
    details = [_series_section(series) for series in summary.series]
    shared = [note for note in details[0].notes if all(note in detail.notes for detail in details)] if details else []
    blocks: list[Block] = [Text(str(note), "note") for note in shared]
    if len(details) > 1:
        lines = [series_statements.sentence(series) for series in summary.series]
        blocks.append(Folded("Each series in a sentence", [Items(lines)]))
    for series, detail in zip(summary.series, details):
        kept = dataclasses.replace(detail, notes=tuple(note for note in detail.notes if note not in shared))
        body = Body(kept, series.title)
        blocks.append(Folded(series.title, [body], is_open=len(details) == 1, id=f"series-{summary.positions[series]}"))
    return blocks


def _series_section(series: SeriesSummary) -> Section:
    """Every row, and what the series keeps constant."""
    rows, rates = [row.row for row in series.rows], table.rates_of(series)
    size, total = rows[-1].batch_size, rows[-1].config["global_batch_size"]
    kind = "strong-scaling" if series.strong else "scaling-unknown" if size is None else "weak-scaling"
    values = {"size": total if series.strong else size, "samples": rows[-1].samples}
    grids = (dataclasses.replace(rates.grids[0], caption="Every row"), *rates.grids[1:])
    return Section(series.title, grids, (sentence(Statement(kind, values=values)), *rates.notes))


def _steady(summary: Summary) -> list[Block]:
    """Pictures of batch times, and where each run became steady."""
    runs = [(row.row, run) for series in summary.measured for row in series.rows for run in row.steady]
    if not runs:
        return []
    head = ["Run", "Devices", "Kind", "Skipped", "Steady from batch", "Headline would move"]
    lines = []
    for row, run in runs:
        state = run.state
        start = "n/a" if state.start is None else str(state.start)
        move = "n/a" if state.move is None else f"{100 * state.move:+.1f} %"
        lines.append([run.file, str(row.num_devices), state.kind, str(run.record.batches.warmup), start, move])
    grid = Grid("Steady state of each run", head, lines, (2,))
    reading = Text(sentence(Statement("reading-of-times")))
    pictures = Group("figures small", drawings.times(summary.measured))
    unjudged = Statement("steady-unjudged", values={"judged": MOST_JUDGED, "unjudged": summary.unjudged})
    return [
        Text(sentences(_steady_statements(summary))),
        Folded("Batch times on one device and on the most devices", [reading, pictures], is_printed=False),
        Folded(grid.caption, [_table(grid)], is_printed=False),
        *([Text(sentence(unjudged), "note")] if summary.unjudged else []),
    ]


def _steady_statements(summary: Summary) -> list[Statement]:
    """How many runs were steady, and how much it matters where that is judged to begin."""
    states = [run.state for series in summary.series for row in series.rows for run in row.steady]
    moves = [abs(state.move) for state in states if state.start is not None and state.move is not None]
    short = sum(state.kind == "too short" for state in states)
    found = []
    if short < len(states):
        found.append(Statement("steady-runs", values={"steady": len(moves), "runs": len(states)}))
    if moves:
        found.append(Statement("steady-move", values={"move": max(0.1, 100 * max(moves))}))
    return [*found, *([Statement("steady-too-short", values={"short": short})] if short else [])]


def _workers(measured: Sequence[SeriesSummary]) -> list[Block]:
    """Start-up against training, and the ranks of the most workers, of each series that has any."""
    blocks: list[Block] = []
    for series in measured:
        sections = table.workers(series)
        bodies = [Body(section, f"{section.title}, {series.title}", has_title=True) for section in sections]
        blocks += [Folded(series.title, bodies, "start-up")] if bodies else []
    return blocks[:MOST_FIGURES]


def _padding(summary: Summary) -> list[Block]:
    section = padding.section(summary)
    return [*map(Text, section.sentences), *map(_table, section.grids)] if section else []


def _failures(summary: Summary) -> list[Block]:
    lines = [[f.file, f.title, str(f.num_devices), f.reason] for f in summary.failures]
    grid = Grid("Runs that measured nothing", ["File", "Series", "Devices", "Reason"], lines, (1, 3))
    blocks: list[Block] = [_table(grid)] if lines else []
    if summary.left_out:
        blocks += [Text("Files that this report does not use", "h3"), Items(summary.left_out)]
    return blocks


def _again(summary: Summary) -> list[Block]:
    """Commands that make the report, supply missing runs, and repeat each series."""
    titles: dict[tuple[str, ...], list[str]] = {}
    for series in summary.series[:MOST_FIGURES]:  # those that need the same are one entry
        if commands := conclusions.missing(series):
            titles.setdefault(tuple(map(summary.supplying, commands)), []).append(series.title)
    missing = [("; ".join(names), commands) for commands, names in titles.items()]
    again = [(series.title, repeat_commands.commands(series)) for series in summary.series[:MOST_COMMANDS]]
    return [
        Text("This command makes this page and its files:", "note"),
        Command(f"{entry.program()} report {shlex.quote(summary.name)}", "the report"),
        *([Folded("Runs that would answer more", _commands(missing, "missing run"))] if missing else []),
        Folded(
            "The sweep of each series, with the runs that its loss analysis needs",
            _commands(again, "sweep"),
            is_printed=False,
        ),
    ]


def _commands(titled: Sequence[tuple[str, Sequence[str]]], noun: str) -> list[Block]:
    blocks: list[Block] = []
    for title, lines in titled:
        blocks.append(Text(title, "note"))
        blocks += [Command(line, f"{noun} {k} for {title}") for k, line in enumerate(lines, 1)]
    return blocks


def _environment(summary: Summary) -> list[Block]:
    head = ["Difference", "Most runs", "Others", "Effect", "Severity"]
    lines = [[d.what, d.a, d.b, d.effect, d.severity] for d in summary.differences]
    terms = Terms([Key(fact.name, meaning=fact.text) for fact in summary.facts], "facts")
    facts = Folded("Machine, versions and settings", [terms])
    if lines:
        grid = Grid("Differences between the runs", head, lines, (1, 2, 3, 4))
        return [Text(grid.caption, "h3"), _table(grid), facts]
    return [*([Text(sentence(Statement("runs-comparable")))] if summary.runs > 1 else []), facts]


def _table(grid: Grid) -> Body:
    """A table of which the headings above say what it is."""
    return Body(Section("", (grid,)))
