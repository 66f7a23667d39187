"""The page of a scaling report, made from its Summary."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.attribution import MEANING, Attribution
from rnn_scaling.analysis.metrics import EFFICIENCY, ITEMS
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports import (
    cautions,
    conclusions,
    repeat_commands,
    series_statements,
    series_table,
    table,
)
from rnn_scaling.reports.page import document, drawings, scaling_data
from rnn_scaling.reports.page.document import (
    Block,
    Body,
    Folded,
    Group,
    Items,
    Key,
    Live,
    PageSection,
    Terms,
    Text,
)
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.summary_builder import MOST as MOST_JUDGED
from rnn_scaling.reports.wording import sentence, sentences
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import counted

MOST_COMMANDS = 200  # series with commands
FIRST_FACTS = (
    "GPUs",
    "CPU",
    "CPU cores of the machine",
)  # of the environment, next to the title


def render(summary: Summary) -> bytes:
    """The page as UTF-8."""
    name = entry.plain(Path(summary.name).resolve().name) or summary.name
    chart = drawings.glance(summary)
    return document.page(
        f"Scaling of {name}",
        _about(summary),
        conclusions.lead(summary),
        _overview(summary),
        scaling_data.explorer(summary),
        _sections(summary, shown=EFFICIENCY.name if chart else ""),
        first=[Live("chart", chart)],
        remarks=conclusions.overview(summary),
        notes=_notes(summary),
    )


def _about(summary: Summary) -> list[str]:
    """Runs, machine, models and dates."""
    texts = {fact.name: fact.text for fact in summary.facts}
    models = list(dict.fromkeys(series.model for series in summary.series))
    started = [run.environment.started for row in summary.rows for run in row.records]
    days = sorted({start[:10] for start in started if start})
    return [
        counted(summary.runs, "run"),
        *(
            f"{texts[name]} cores" if "cores" in name else texts[name]
            for name in FIRST_FACTS
            if name in texts
        ),
        f"model {models[0]}" if len(models) == 1 else counted(len(models), "model"),
        *([" to ".join(dict.fromkeys((days[0], days[-1])))] if days else []),
    ]


def _overview(summary: Summary) -> document.Overview:
    """The table of all series; each line links to the details of its series."""
    sections = series_table.sections(summary)
    groups = []
    for section, (_, series) in zip(sections, summary.tables):
        addresses = [f"#series-{summary.positions[member]}" for member in series]
        groups.append((section.title, list(zip(addresses, section.grids[0].lines))))
    head = sections[0].grids[0].head
    return document.Overview(
        head, groups, "All series", "certified" * summary.is_certified
    )


def _notes(summary: Summary) -> list[str]:
    kinds = "; ".join(conclusions.kinds(summary.series))
    is_mixed = len({member.strong for member in summary.series}) == 2
    statements = [Statement("page-intervals", kinds)] if kinds else []
    statements += [Statement("page-mixed")] if is_mixed else []
    return [*map(sentence, statements)]


def _sections(summary: Summary, shown: str) -> list[PageSection]:
    """The sections below the first screen; `shown`: the metric of its picture, or ""."""
    measured, limitations = summary.measured, cautions.lines(summary)
    steady = sentences(_steady(summary))
    return [
        PageSection(
            "cautions",
            f"Limitations ({len(limitations)})",
            [Items(limitations)] if limitations else [],
        ),
        PageSection("runs", f"All runs ({summary.runs})", [Live("runs")], "live"),
        PageSection(
            "curves", "Over the number of devices", _curves(summary, shown), "static"
        ),
        drawings.learning_section(summary),
        PageSection("loss", "Where efficiency is lost", _losses(measured)),
        drawings.steps_section(measured),
        drawings.counts_section(summary),
        PageSection("rates", "Every row", _rates(summary)),
        PageSection("steady", "Steady state", [Text(steady)] if steady else []),
        PageSection("workers", "Start-up and workers", _workers(measured)),
        PageSection("padding", table.PADDING, _padding(summary)),
        PageSection("failures", "Failed runs", _failures(summary)),
        PageSection("again", "Measure again", _again(summary)),
        PageSection("environment", "Environment", _environment(summary)),
        PageSection("reading", "How to read this", _reading(summary)),
    ]


def _curves(summary: Summary, shown: str) -> list[Block]:
    """A static picture of every metric but `shown`, with separate pictures for weak and strong scaling."""
    groups, blocks = figures.groups(summary), list[Block]()
    for k, (name, series) in enumerate(groups):
        suffix, group = f"-{k}" if k else "", name if len(groups) > 1 else ""
        drawn = [metric for metric in figures.drawn(series) if metric.name != shown]
        pictures = [
            drawings.curve(series, metric, f"fig-{metric.name}{suffix}", group)
            for metric in drawn
        ]
        blocks += [Text(group, "h3")] if group else []
        blocks += [Group("figures", pictures), *drawings.undrawn(len(series), "series")]
    return blocks


def _losses(measured: Sequence[SeriesSummary]) -> list[Block]:
    """The measurable losses as bars and tables, and why other losses are not split."""
    known = [
        (series, series.largest.loss)
        for series in measured
        if series.largest and series.largest.loss
    ]
    split = [(series, loss) for series, loss in known if loss.is_told]
    blocks: list[Block] = []
    if split:
        noise = series_statements.noise_of([loss for _, loss in split])
        picture, *more = drawings.bars([(series.title, loss) for series, loss in split])
        tables = [(series.title, table.parts_section(series)) for series in measured]
        bodies = [
            Body(dataclasses.replace(made, title=title), title, True)
            for title, made in tables
            if made.grids
        ]
        unit, names = (
            split[0][0].unit,
            {part.name for _, loss in split for part in loss.told},
        )
        meaning = [
            Key(name, text.replace(ITEMS, unit))
            for name, text in MEANING.items()
            if name in names
        ]
        reading = Text(
            sentence(Statement("reading-of-losses", values={"noise": noise}))
        )
        points = Folded(
            "Points of efficiency lost, by number of devices", bodies, is_printed=False
        )
        blocks = [
            reading,
            Live("bars", [picture]),
            *more,
            points,
            Terms(meaning, "meaning"),
        ]
    return [*blocks, *_untold(known)]


def _untold(losses: Sequence[tuple[SeriesSummary, Attribution]]) -> list[Block]:
    """Why a loss has no parts, and what would show them; one paragraph for series with the same reason."""
    titles: dict[str, list[str]] = {}
    for series, loss in losses:
        if text := sentences(series_statements.unmeasured(loss)):
            titles.setdefault(text, []).append(series.title)
    if len(losses) == 1:
        return [Text(text) for text in titles]
    return [
        Text(
            f"{'All series' if len(names) == len(losses) else '; '.join(names)}: {text}"
        )
        for text, names in titles.items()
    ]


def _rates(summary: Summary) -> list[Block]:
    """The rows of each series; notes that all series share are printed once."""
    details = [_series_section(series) for series in summary.series]
    shared = (
        [
            note
            for note in details[0].notes
            if all(note in detail.notes for detail in details)
        ]
        if details
        else []
    )
    blocks: list[Block] = [Text(str(note), "note") for note in shared]
    if len(details) > 1:
        lines = [series_statements.sentence(series) for series in summary.series]
        blocks.append(Folded("Each series in a sentence", [Items(lines)]))
    for series, detail in zip(summary.series, details):
        kept = dataclasses.replace(
            detail, notes=tuple(note for note in detail.notes if note not in shared)
        )
        body = Body(kept, series.title)
        blocks.append(
            Folded(
                series.title,
                [body],
                is_open=len(details) == 1,
                id=f"series-{summary.positions[series]}",
            )
        )
    return blocks


def _series_section(series: SeriesSummary) -> Section:
    """Every row of a series, and which amount of work is constant."""
    rows, rates = [row.row for row in series.rows], table.rates_of(series)
    size, total = rows[-1].batch_size, rows[-1].config["global_batch_size"]
    kind = (
        "strong-scaling"
        if series.strong
        else "scaling-unknown"
        if size is None
        else "weak-scaling"
    )
    values = {"size": total if series.strong else size, "samples": rows[-1].samples}
    grids = (dataclasses.replace(rates.grids[0], caption="Every row"), *rates.grids[1:])
    return Section(
        series.title, grids, (sentence(Statement(kind, values=values)), *rates.notes)
    )


def _steady(summary: Summary) -> list[Statement]:
    """How many runs became steady, and how much the rate would change from there."""
    states = [
        run.state
        for series in summary.series
        for row in series.rows
        for run in row.steady
    ]
    moves = [
        abs(state.move)
        for state in states
        if state.start is not None and state.move is not None
    ]
    short = sum(state.kind == "too short" for state in states)
    values = {"judged": MOST_JUDGED, "unjudged": summary.unjudged}
    found = [
        (
            short < len(states),
            Statement(
                "steady-runs", values={"steady": len(moves), "runs": len(states)}
            ),
        ),
        (
            moves,
            Statement(
                "steady-move",
                values={"move": max([0.1, *(100 * move for move in moves)])},
            ),
        ),
        (short, Statement("steady-too-short", values={"short": short})),
        (states and summary.unjudged, Statement("steady-unjudged", values=values)),
    ]
    return [statement for is_held, statement in found if is_held]


def _workers(measured: Sequence[SeriesSummary]) -> list[Block]:
    """Start-up times, and the ranks of the largest number of workers, for each series with workers."""
    blocks: list[Block] = []
    for series in measured:
        sections = table.workers(series)
        bodies = [
            Body(section, f"{section.title}, {series.title}", has_title=True)
            for section in sections
        ]
        blocks += [Folded(series.title, bodies, "start-up")] if bodies else []
    return blocks[: document.MOST_FIGURES]


def _padding(summary: Summary) -> list[Block]:
    section = table.padding_section(summary)
    return (
        [*map(Text, section.sentences), *map(_table, section.grids)] if section else []
    )


def _failures(summary: Summary) -> list[Block]:
    lines = [
        [run.file, run.title, str(run.num_devices), run.reason]
        for run in summary.failures
    ]
    grid = Grid(
        "Runs that measured nothing",
        ["File", "Series", "Devices", "Reason"],
        lines,
        (1, 3),
    )
    blocks: list[Block] = [_table(grid)] if lines else []
    if summary.left_out:
        blocks += [
            Text("Files that this report does not use", "h3"),
            Items(summary.left_out),
        ]
    return blocks


def _again(summary: Summary) -> list[Block]:
    """Commands that make this report, measure missing runs, and repeat each series."""
    titles: dict[tuple[str, ...], list[str]] = {}
    for series in summary.series[
        : document.MOST_FIGURES
    ]:  # series that need the same commands share an entry
        if commands := conclusions.missing(series):
            titles.setdefault(tuple(map(summary.supplying, commands)), []).append(
                series.title
            )
    missing = [("; ".join(names), commands) for commands, names in titles.items()]
    again = [
        (series.title, repeat_commands.commands(series))
        for series in summary.series[:MOST_COMMANDS]
    ]
    return [
        Text("This command makes this page and its files:", "note"),
        document.Command(
            f"{entry.program()} report {shlex.quote(summary.name)}", "the report"
        ),
        *(
            [
                Folded(
                    "Runs that would complete the analysis",
                    _commands(missing, "missing run"),
                )
            ]
            if missing
            else []
        ),
        Folded(
            "The sweep of each series, with its loss analysis",
            _commands(again, "sweep"),
            is_printed=False,
        ),
    ]


def _commands(titled: Sequence[tuple[str, Sequence[str]]], noun: str) -> list[Block]:
    blocks: list[Block] = []
    for title, lines in titled:
        blocks.append(Text(title, "note"))
        blocks += [
            document.Command(line, f"{noun} {k} for {title}")
            for k, line in enumerate(lines, 1)
        ]
    return blocks


def _environment(summary: Summary) -> list[Block]:
    head = ["Difference", "Most runs", "Others", "Effect", "Severity"]
    lines = [
        [found.what, found.a, found.b, found.effect, found.severity]
        for found in summary.differences
    ]
    terms = Terms([Key(fact.name, fact.text) for fact in summary.facts], "facts")
    facts = Folded("Machine, versions and settings", [terms])
    if lines:
        grid = Grid("Differences between the runs", head, lines, (1, 2, 3, 4))
        return [Text(grid.caption, "h3"), _table(grid), facts]
    return [
        *([Text(sentence(Statement("runs-comparable")))] if summary.runs > 1 else []),
        facts,
    ]


def _reading(summary: Summary) -> list[Block]:
    counts = dict.fromkeys(
        (series.unit, series.rows[0].row.items) for series in summary.series
    )
    counted_items = [
        sentence(Statement("unit-meaning", unit, {"items": items}))
        for unit, items in counts
    ]
    kinds = (
        "reading-of-rates",
        "reading-of-speedup",
        "reading-of-intervals",
        "reading-of-parts",
        "reading-of-files",
    )
    lines = [sentence(Statement(kind, summary.unit)) for kind in kinds]
    return [Items([*counted_items, *lines])]


def _table(grid: Grid) -> Body:
    """A table whose heading is above it."""
    return Body(Section("", (grid,)))
