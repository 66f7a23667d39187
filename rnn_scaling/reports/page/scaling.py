"""The page of a scaling report, made from its Summary."""

import dataclasses
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from rnn_scaling.analysis.attribution import Attribution, Part
from rnn_scaling.analysis.metrics import EFFICIENCY
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports import (
    cautions,
    conclusions,
    repeat_commands,
    scaling_data,
    series_statements,
    series_table,
    table,
)
from rnn_scaling.reports.page import document, drawings
from rnn_scaling.reports.page.document import (
    Block,
    Body,
    Folded,
    Items,
    Key,
    Live,
    PageSection,
    Terms,
    Text,
)
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.summary_builder import MOST as MOST_JUDGED
from rnn_scaling.reports.wording import phrase, sentence, sentences
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import counted

MOST_COMMANDS = 200  # series with commands
# Facts of the environment next to the title, and words after them.
FIRST_FACTS = {"GPUs": "", "CPU": "", "CPU cores of the machine": " cores"}
Content = TypeVar("Content")
READING = ("rates", "speedup", "intervals", "parts", "files")


def render(summary: Summary) -> bytes:
    """Return the page as UTF-8."""
    name = entry.plain(Path(summary.name).resolve().name) or summary.name
    groups = scaling_data.groups(summary)
    chart = drawings.glance(groups)
    curves = drawings.curves(groups, EFFICIENCY.name if chart else "")
    return document.page(
        f"Scaling of {name}",
        _about(summary),
        conclusions.answer_text(summary),
        _overview(summary),
        scaling_data.explorer(summary, groups),
        _sections(summary, curves),
        first=[Live("chart", chart)],
        remarks=conclusions.overview_text(summary),
        notes=_notes(summary),
    )


def _about(summary: Summary) -> list[str]:
    """Return runs, machine, models and dates."""
    texts = [counted(summary.num_runs, "run")]
    facts = {fact.name: fact.text for fact in summary.facts}
    for name, noun in FIRST_FACTS.items():
        if name in facts:
            texts.append(f"{facts[name]}{noun}")
    models = list(dict.fromkeys(series.model for series in summary.series))
    has_one_model = len(models) == 1
    texts.append(
        f"model {models[0]}" if has_one_model else counted(len(models), "model")
    )
    started = [run.environment.started for row in summary.rows for run in row.records]
    if days := sorted({start[:10] for start in started if start}):
        texts.append(" to ".join(dict.fromkeys((days[0], days[-1]))))
    return texts


def _overview(summary: Summary) -> document.Overview:
    """Return the table of all series; each line links to the details of its series."""
    sections = series_table.sections(summary)
    groups = []
    for section, (_, series) in zip(sections, summary.tables):
        addresses = [f"#series-{summary.positions[member]}" for member in series]
        groups.append((section.title, list(zip(addresses, section.grids[0].lines))))
    style = "certified" if summary.is_certified else ""
    head = sections[0].grids[0].head
    return document.Overview(head, groups, "All series", style)


def _notes(summary: Summary) -> list[str]:
    statements = []
    if kinds := "; ".join(conclusions.interval_kinds(summary.series)):
        statements.append(Statement("page-intervals", kinds))
    if len({member.is_strong_scaling for member in summary.series}) == 2:
        statements.append(Statement("page-mixed"))
    return list(map(sentence, statements))


def _sections(summary: Summary, curves: Sequence[Block]) -> list[PageSection]:
    """Return the sections below the first screen."""
    measured = summary.measured
    limitations = cautions.caution_texts(summary)
    title = f"Limitations ({len(limitations)})"
    steady = sentences(_steady(summary))
    runs = f"All runs ({summary.num_runs})"
    over_devices = "Over the number of devices"
    return [
        PageSection("cautions", title, [Items(limitations)] if limitations else []),
        PageSection("runs", runs, [Live("runs")], "live"),
        PageSection("curves", over_devices, curves, "static"),
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


def _losses(measured: Sequence[SeriesSummary]) -> list[Block]:
    """Return the measurable losses as bars and tables, and why others are not split."""
    known = []
    for series in measured:
        if series.largest_row and series.largest_row.loss:
            known.append((series, series.largest_row.loss))
    split = [(series, loss) for series, loss in known if loss.is_significant]
    if not split:
        return _untold(known)
    noise = series_statements.noise_text([loss for _, loss in split])
    picture, *more = drawings.losses([(series.title, loss) for series, loss in split])
    bodies = []
    for series in measured:
        parts = table.parts_section(series)
        if parts.grids:
            titled = dataclasses.replace(parts, title=series.title)
            bodies.append(Body(titled, series.title, True))
    points = "Points of efficiency lost, by number of devices"
    told = {part.name for _, loss in split for part in loss.significant_parts}
    unit = split[0][0].unit
    keys = [
        Key(name.value, phrase(Statement(name.value, values={"unit": unit})))
        for name in Part
        if name in told
    ]
    return [
        Text(sentence(Statement("reading-of-losses", values={"noise": noise}))),
        Live("bars", [picture]),
        *more,
        Folded(points, bodies, is_printed=False),
        Terms(keys, "meaning"),
        *_untold(known),
    ]


def _untold(losses: Sequence[tuple[SeriesSummary, Attribution]]) -> list[Block]:
    """Return why losses have no parts; one paragraph for series with the same reason."""
    reasons = []
    for series, loss in losses:
        reasons.append(
            (sentences(series_statements.unsplit_statements(loss)), series.title)
        )
    blocks: list[Block] = []
    for text, names in _by_content(reasons):
        who = "All series" if len(names) == len(losses) else "; ".join(names)
        blocks.append(Text(text if len(losses) == 1 else f"{who}: {text}"))
    return blocks


def _by_content(
    titled: Iterable[tuple[Content, str]],
) -> list[tuple[Content, list[str]]]:
    """Return each content that is not empty, with the titles that have it."""
    titles: dict[Content, list[str]] = {}
    for content, title in titled:
        if content:
            titles.setdefault(content, []).append(title)
    return list(titles.items())


def _rates(summary: Summary) -> list[Block]:
    """Return the rows of each series; notes that all share are printed once."""
    details = [_series_section(series) for series in summary.series]
    notes = [detail.notes for detail in details]
    shared = (
        [note for note in notes[0] if all(note in other for other in notes)]
        if notes
        else []
    )
    blocks: list[Block] = [Text(str(note), "note") for note in shared]
    if len(details) > 1:
        lines = [series_statements.series_text(series) for series in summary.series]
        blocks.append(Folded("Each series in a sentence", [Items(lines)]))
    for series, detail in zip(summary.series, details):
        own = tuple(note for note in detail.notes if note not in shared)
        body = Body(dataclasses.replace(detail, notes=own), series.title)
        place = f"series-{summary.positions[series]}"
        is_open = len(details) == 1
        blocks.append(Folded(series.title, [body], is_open=is_open, id=place))
    return blocks


def _series_section(series: SeriesSummary) -> Section:
    """Return every row of a series, and which amount of work is constant."""
    row = series.rows[-1].row
    rates = table.series_rates(series)
    kind = "weak-scaling"
    size = row.batch_size
    if series.is_strong_scaling:
        kind = "strong-scaling"
        size = row.options["global_batch_size"]
    elif size is None:
        kind = "scaling-unknown"
    work = Statement(kind, values={"size": size, "samples": row.samples})
    first, *others = rates.grids
    grids = (dataclasses.replace(first, caption="Every row"), *others)
    return Section(series.title, grids, (sentence(work), *rates.notes))


def _steady(summary: Summary) -> list[Statement]:
    """State how many runs became steady, and how the rate would change from there."""
    rows = [row for series in summary.series for row in series.rows]
    states = [run.state for row in rows for run in row.steady]
    moves = [0.001]
    for state in states:
        if state.start is not None and state.move is not None:
            moves.append(abs(state.move))
    steady = len(moves) - 1
    short = sum(state.kind == "too short" for state in states)
    unjudged = summary.num_unjudged if states else 0
    cases: dict[str, tuple[float, dict[str, float]]] = {
        "steady-runs": (short < len(states), {"steady": steady, "runs": len(states)}),
        "steady-move": (steady, {"move": 100 * max(moves)}),
        "steady-too-short": (short, {"short": short}),
        "steady-unjudged": (unjudged, {"judged": MOST_JUDGED, "unjudged": unjudged}),
    }
    return [
        Statement(kind, values=values)
        for kind, (holds, values) in cases.items()
        if holds
    ]


def _workers(measured: Sequence[SeriesSummary]) -> list[Block]:
    """Return start-up times, and the ranks of the most workers, of each series."""
    blocks: list[Block] = []
    for series in measured:
        bodies = [
            Body(section, f"{section.title}, {series.title}", has_title=True)
            for section in table.worker_sections(series)
        ]
        if bodies:
            blocks.append(Folded(series.title, bodies, "start-up"))
    return blocks[: document.MOST_FIGURES]


def _padding(summary: Summary) -> list[Block]:
    section = table.padding_section(summary)
    if section is None:
        return []
    return [*map(Text, section.sentences), *map(_table, section.grids)]


def _failures(summary: Summary) -> list[Block]:
    blocks: list[Block] = []
    if summary.failures:
        lines = [
            [run.file, run.title, str(run.num_devices), run.reason]
            for run in summary.failures
        ]
        head = ["File", "Series", "Devices", "Reason"]
        blocks.append(_table(Grid("Runs that measured nothing", head, lines, (1, 3))))
    if summary.left_out:
        title = "Files that this report does not use"
        blocks += [Text(title, "h3"), Items(summary.left_out)]
    return blocks


def _again(summary: Summary) -> list[Block]:
    """Return commands that make the report, missing runs, and each series again."""
    needed = []
    for series in summary.series[: document.MOST_FIGURES]:
        commands = tuple(
            map(summary.command_for_folder, conclusions.missing_run_commands(series))
        )
        needed.append((commands, series.title))
    missing = [("; ".join(names), lines) for lines, names in _by_content(needed)]
    again = [
        (series.title, repeat_commands.commands(series))
        for series in summary.series[:MOST_COMMANDS]
    ]
    report = f"{entry.program()} report {shlex.quote(summary.name)}"
    blocks: list[Block] = [
        Text("This command makes this page and its files:", "note"),
        document.Command(report, "the report"),
    ]
    if missing:
        title = "Runs that would complete the analysis"
        blocks.append(Folded(title, _commands(missing, "missing run")))
    sweeps = "The sweep of each series, with its loss analysis"
    return [*blocks, Folded(sweeps, _commands(again, "sweep"), is_printed=False)]


def _commands(titled: Sequence[tuple[str, Sequence[str]]], noun: str) -> list[Block]:
    blocks: list[Block] = []
    for title, lines in titled:
        blocks.append(Text(title, "note"))
        for k, line in enumerate(lines, 1):
            blocks.append(document.Command(line, f"{noun} {k} for {title}"))
    return blocks


def _environment(summary: Summary) -> list[Block]:
    keys = [Key(fact.name, fact.text) for fact in summary.facts]
    facts = Folded("Machine, versions and settings", [Terms(keys, "facts")])
    if summary.differences:
        lines = [
            [found.name, found.first, found.second, found.effect, found.severity]
            for found in summary.differences
        ]
        head = ["Difference", "Most runs", "Others", "Effect", "Severity"]
        grid = Grid("Differences between the runs", head, lines, (1, 2, 3, 4))
        return [Text(grid.caption, "h3"), _table(grid), facts]
    if summary.num_runs > 1:
        return [Text(sentence(Statement("runs-comparable"))), facts]
    return [facts]


def _reading(summary: Summary) -> list[Block]:
    counts = dict.fromkeys(
        (series.unit, series.rows[0].row.items) for series in summary.series
    )
    statements = [
        Statement("unit-meaning", unit, {"items": items}) for unit, items in counts
    ]
    statements += [Statement(f"reading-of-{what}", summary.unit) for what in READING]
    return [Items(list(map(sentence, statements)))]


def _table(grid: Grid) -> Body:
    """Return a table whose heading is above it."""
    return Body(Section("", (grid,)))
