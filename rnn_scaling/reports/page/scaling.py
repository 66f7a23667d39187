"""The page of a scaling report, made from its Summary.

`registry.REPORTS` names this module; `report_files` calls `render`. Every number comes
from the `Summary`.
"""

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rnn_scaling.analysis.attribution import Attribution, LossPartName
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.metrics import EFFICIENCY
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.analysis.steady_state import StateKind
from rnn_scaling.reports import (
    cautions,
    conclusions,
    repeat_commands,
    scaling_data,
    series_statements,
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
from rnn_scaling.reports.summary import MAX_JUDGED, SeriesSummary, Summary
from rnn_scaling.reports.wording import write_sentence, write_sentences
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import format_count

# Smallest change of a rate that is printed, "0.1 %"; a smaller one is "at most" this.
_MIN_PRINTED_CHANGE = 0.001
_MAX_COMMANDS = 200  # series with commands
# Facts of the environment next to the title, and the nouns after them.
_FIRST_FACTS = {"GPUs": "", "CPU model": "", "CPU cores": " cores"}
_READING = ("rates", "speedup", "intervals", "parts", "files")


def render(summary: Summary) -> bytes:
    """Return the page as UTF-8."""
    name = entry.make_plain(Path(summary.name).resolve().name) or summary.name
    groups = scaling_data.list_groups(summary)
    chart = drawings.draw_glance(groups)
    curves = drawings.draw_curves(groups, EFFICIENCY.name if chart else "")
    headlines, details = conclusions.answer_paragraphs(summary)
    remarks = [*details, conclusions.format_overview(summary)]
    return document.render_page(
        f"Scaling of {name}",
        about=_write_about_texts(summary),
        lead=" ".join(headlines),
        overview=_make_overview(summary),
        explorer=scaling_data.make_explorer(summary, groups),
        sections=_list_sections(summary, curves),
        first=[Live("chart", chart)],
        remarks=list(filter(None, remarks)),
        notes=_make_overview_notes(summary),
    )


def _write_about_texts(summary: Summary) -> list[str]:
    """Return runs, machine, models and dates."""
    texts = [format_count(summary.num_runs, "run")]
    facts = {fact.name: fact.text for fact in summary.facts}
    for name, noun in _FIRST_FACTS.items():
        if name in facts:
            texts.append(f"{facts[name]}{noun}")
    models = list(dict.fromkeys(series.model for series in summary.series))
    has_one_model = len(models) == 1
    texts.append(
        f"model {models[0]}" if has_one_model else format_count(len(models), "model")
    )
    start_times = [run.environment.started for run in summary.records]
    if days := sorted({start[:10] for start in start_times if start}):
        texts.append(" to ".join(dict.fromkeys((days[0], days[-1]))))
    return texts


def _make_overview(summary: Summary) -> document.Overview:
    """Return the table of all series; each line links to the details of its series."""
    sections = table.make_sections(summary)
    groups = []
    for section, (_, series) in zip(sections, summary.tables):
        addresses = [
            f"#{scaling_data.make_series_anchor(summary, member)}" for member in series
        ]
        groups.append((section.title, list(zip(addresses, section.grids[0].lines))))
    style = "certified" if summary.is_certified else ""
    head = sections[0].grids[0].head
    metrics = {
        column.header: column.name
        for column in table.make_columns(summary, summary.series)
        if column.name
    }
    place = table.make_common_devices_suffix(summary.series)
    return document.Overview(
        head,
        groups=groups,
        caption="All series",
        style=style,
        metrics=metrics,
        place=place,
    )


def _make_overview_notes(summary: Summary) -> list[str]:
    shown: list[SeriesSummary] = []
    for _, members in summary.tables:
        shown += members
    statements = table.state_marks(shown)
    if kinds := "; ".join(conclusions.list_interval_kinds(summary.series)):
        statements.append(state("page-intervals", kinds))
    if len({member.is_strong_scaling for member in summary.series}) == 2:
        statements.append(state("page-mixed"))
    return list(map(write_sentence, statements))


def _list_sections(summary: Summary, curves: Sequence[Block]) -> list[PageSection]:
    """Return the sections below the first screen."""
    measured_series = summary.measured
    limitations = cautions.format_cautions(summary)
    title = f"Limitations ({len(limitations)})"
    steady = write_sentences(_state_steady_runs(summary))
    runs = f"All runs ({summary.num_runs})"
    over_devices = "Over the number of devices"
    return [
        PageSection("cautions", title, [Items(limitations)] if limitations else []),
        PageSection("runs", runs, [Live("runs")], "live"),
        PageSection("curves", over_devices, curves, "static"),
        drawings.make_learning_section(summary),
        PageSection(
            "loss", "Where efficiency is lost", _make_loss_blocks(measured_series)
        ),
        drawings.make_steps_section(measured_series),
        drawings.make_counts_section(summary),
        PageSection("rates", "Every row", _make_rate_blocks(summary)),
        PageSection("steady", "Steady state", [Text(steady)] if steady else []),
        PageSection(
            "workers", "Start-up and workers", _make_worker_blocks(measured_series)
        ),
        PageSection("padding", table.PADDING, _make_padding_blocks(summary)),
        PageSection("failures", "Failed runs", _make_failure_blocks(summary)),
        PageSection("again", "Measure again", _make_repetition_blocks(summary)),
        PageSection("environment", "Environment", _make_environment_blocks(summary)),
        PageSection("reading", "How to read this", _make_reading_blocks(summary)),
    ]


def _make_loss_blocks(measured_series: Sequence[SeriesSummary]) -> list[Block]:
    """Return significant losses as bars and tables, and why others are not split."""
    attributions = [
        (series, series.largest_loss)
        for series in measured_series
        if series.largest_loss
    ]
    split_losses = [
        (series, attribution)
        for series, attribution in attributions
        if attribution.is_significant
    ]
    if not split_losses:
        return _make_unsplit_loss_blocks(attributions)
    noise = series_statements.format_noise(
        [attribution for _, attribution in split_losses]
    )
    picture, *notes = drawings.draw_losses(
        [(series.title, attribution) for series, attribution in split_losses]
    )
    title = "Points of efficiency lost, by number of devices"
    return [
        Text(write_sentence(state("reading-of-losses", noise=noise))),
        Live("bars", [picture]),
        *notes,
        Folded(title, _make_loss_table_blocks(measured_series), is_printed=False),
        Terms(_list_meanings(split_losses), "meaning"),
        *_make_unsplit_loss_blocks(attributions),
    ]


def _make_loss_table_blocks(measured_series: Sequence[SeriesSummary]) -> list[Block]:
    """Return the lost points of each series whose loss is split."""
    blocks: list[Block] = []
    for series in measured_series:
        parts = table.make_parts_section(series)
        if parts.grids:
            section = dataclasses.replace(parts, title=series.title)
            blocks.append(Body(section, series.title, has_title=True))
    return blocks


def _list_meanings(
    split_losses: Sequence[tuple[SeriesSummary, Attribution]],
) -> list[Key]:
    """Return the meaning of each significant part."""
    significant: set[str] = set()
    for _, attribution in split_losses:
        significant.update(part.name for part in attribution.significant_parts)
    unit = split_losses[0][0].unit
    return [
        Key(name.value, write_sentence(state(name.value, unit=unit)))
        for name in LossPartName
        if name in significant
    ]


def _make_unsplit_loss_blocks(
    attributions: Sequence[tuple[SeriesSummary, Attribution]],
) -> list[Block]:
    """Return why losses have no parts; one paragraph for series with the same reason."""
    titles_of_all = [series.title for series, _ in attributions]
    reasons = [
        write_sentences(series_statements.state_unsplit_losses(attribution))
        for _, attribution in attributions
    ]
    blocks: list[Block] = []
    for text, titles in group_by(titles_of_all, reasons).items():
        if not text:
            continue
        if len(attributions) > 1:
            subject = "; ".join(titles)
            if len(titles) == len(attributions):
                subject = "All series"
            text = f"{subject}: {text}"
        blocks.append(Text(text))
    return blocks


def _make_rate_blocks(summary: Summary) -> list[Block]:
    """Return the rows of each series; notes that all share are printed once."""
    details = [_make_series_section(series) for series in summary.series]
    note_lists = [detail.notes for detail in details]
    shared_notes = list(note_lists[0]) if details else []
    for notes in note_lists[1:]:
        shared_notes = [note for note in shared_notes if note in notes]
    blocks: list[Block] = [Text(str(note), "note") for note in shared_notes]
    if len(details) > 1:
        lines = [series_statements.format_series(series) for series in summary.series]
        blocks.append(Folded("Each series in a sentence", [Items(lines)]))
    for series, detail in zip(summary.series, details):
        own_notes = tuple(note for note in detail.notes if note not in shared_notes)
        body = Body(dataclasses.replace(detail, notes=own_notes), series.title)
        anchor = scaling_data.make_series_anchor(summary, series)
        is_open = len(details) == 1
        blocks.append(Folded(series.title, [body], is_open=is_open, id=anchor))
    return blocks


def _make_series_section(series: SeriesSummary) -> Section:
    """Return every row of a series, and a sentence on the constant amount of work."""
    row = series.rows[-1]
    rates = table.list_series_rates(series)
    kind = "weak-scaling"
    size = row.batch_size
    if series.is_strong_scaling:
        kind = "strong-scaling"
        size = row.options["global_batch_size"]
    elif size is None:
        kind = "scaling-unknown"
    work = state(kind, size=size, samples=row.samples)
    first = dataclasses.replace(rates.grids[0], caption="Every row")
    grids = (first, *rates.grids[1:])
    return Section(series.title, grids, (write_sentence(work), *rates.notes))


def _state_steady_runs(summary: Summary) -> Iterator[Statement]:
    """State how many runs became steady, and how the rate would change from there."""
    steady_states = summary.steady_states.values()
    num_short = sum(steady.kind == StateKind.TOO_SHORT for steady in steady_states)
    changes = [
        abs(steady.change)
        for steady in steady_states
        if steady.start is not None and steady.change is not None
    ]
    if num_short < len(steady_states):
        yield state("steady-runs", steady=len(changes), runs=len(steady_states))
    if changes:
        percent = 100 * max(*changes, _MIN_PRINTED_CHANGE)
        yield state("steady-move", move=percent)
    if num_short:
        yield state("steady-too-short", short=num_short)
    if steady_states and summary.num_unjudged:
        yield state("steady-unjudged", judged=MAX_JUDGED, unjudged=summary.num_unjudged)


def _make_worker_blocks(measured_series: Sequence[SeriesSummary]) -> list[Block]:
    """Return the start-up times of each series, and the ranks of its largest job."""
    blocks: list[Block] = []
    for series in measured_series:
        bodies = [
            Body(section, f"{section.title}, {series.title}", has_title=True)
            for section in table.make_worker_sections(series)
        ]
        if bodies:
            blocks.append(Folded(series.title, bodies, "start-up"))
    return blocks[: document.MAX_FIGURES]


def _make_padding_blocks(summary: Summary) -> list[Block]:
    section = table.make_padding_section(summary)
    if section is None:
        return []
    return [*map(Text, section.sentences), *map(_make_captioned_table, section.grids)]


def _make_failure_blocks(summary: Summary) -> list[Block]:
    """Return the runs that measured nothing, and the files that are not used."""
    blocks: list[Block] = []
    if summary.failures:
        lines = [
            [run.file, run.title, str(run.num_devices), run.reason]
            for run in summary.failures
        ]
        head = ["File", "Series", "Devices", "Reason"]
        blocks.append(
            _make_captioned_table(
                Grid("Runs that measured nothing", head, lines, (1, 3))
            )
        )
    if summary.left_out:
        title = "Files that this report does not use"
        blocks += [Text(title, "h3"), Items(summary.left_out)]
    return blocks


def _make_repetition_blocks(summary: Summary) -> list[Block]:
    """Return commands that repeat the report and each series, and make missing runs."""
    first = summary.series[: document.MAX_FIGURES]
    needed_commands = [
        tuple(
            map(
                summary.command_for_folder,
                conclusions.list_missing_run_commands(series),
            )
        )
        for series in first
    ]
    groups = group_by([series.title for series in first], needed_commands)
    missing_commands = [
        ("; ".join(titles), lines) for lines, titles in groups.items() if lines
    ]
    sweeps = [
        (series.title, repeat_commands.list_commands(series))
        for series in summary.series[:_MAX_COMMANDS]
    ]
    report = f"{entry.get_program_name()} report {shlex.quote(summary.name)}"
    blocks: list[Block] = [
        Text("This command makes this page and its files:", "note"),
        document.Command(report, "the report"),
    ]
    if missing_commands:
        title = "Runs that would complete the analysis"
        blocks.append(
            Folded(title, _make_command_blocks(missing_commands, "missing run"))
        )
    title = "The sweep of each series, with its loss analysis"
    return [
        *blocks,
        Folded(title, _make_command_blocks(sweeps, "sweep"), is_printed=False),
    ]


def _make_command_blocks(
    titled: Sequence[tuple[str, Sequence[str]]], noun: str
) -> list[Block]:
    blocks: list[Block] = []
    for title, lines in titled:
        blocks.append(Text(title, "note"))
        for k, line in enumerate(lines, 1):
            blocks.append(document.Command(line, f"{noun} {k} for {title}"))
    return blocks


def _make_environment_blocks(summary: Summary) -> list[Block]:
    """Return the machines, versions and conditions of the runs."""
    keys = [Key(fact.name, fact.text) for fact in summary.facts]
    facts = Folded("Machine, versions and settings", [Terms(keys, "facts")])
    if summary.differences:
        lines = [
            [line.name, line.first, line.second, line.effect, line.severity]
            for line in summary.differences
        ]
        head = ["Difference", "Most runs", "Others", "Effect", "Severity"]
        grid = Grid("Differences between the runs", head, lines, (1, 2, 3, 4))
        return [Text(grid.caption, "h3"), _make_captioned_table(grid), facts]
    if summary.num_runs > 1:
        return [Text(write_sentence(state("runs-comparable"))), facts]
    return [facts]


def _make_reading_blocks(summary: Summary) -> list[Block]:
    statements = cautions.state_units(summary.rows)
    statements += cautions.state_kernels(summary)
    statements += [state(f"reading-of-{topic}", summary.unit) for topic in _READING]
    return [Items(list(map(write_sentence, statements)))]


def _make_captioned_table(grid: Grid) -> Body:
    """Return a table whose heading is above it."""
    return Body(Section("", (grid,)))
