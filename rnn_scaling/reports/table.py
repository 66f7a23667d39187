"""The seed's table: devices, batch size, seconds, words/s, speedup; as Markdown that also reads well as it is."""

import functools
from collections.abc import Iterable, Sequence

from rnn_scaling.analysis.attribution import UNEXPLAINED
from rnn_scaling.analysis.metrics import EFFICIENCY, ENERGY, Metric
from rnn_scaling.analysis.rows import Row, build_rows, measured_batches, select_metrics
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records.own_files import MARK
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import (
    cautions,
    certificates,
    cluster,
    learning,
    series_table,
    start_up,
    steps,
)
from rnn_scaling.reports.environment import skipped_updates
from rnn_scaling.reports.numbers import has_ends, has_interval, plain, plus_minus
from rnn_scaling.reports.sections import Columns, Grid, Section, make_grid, markdown
from rnn_scaling.reports.series_statements import noise_text, unsplit_statements
from rnn_scaling.reports.summary import SeriesSummary, Summary, mean_seconds
from rnn_scaling.reports.wording import sentence, sentences
from rnn_scaling.system.files.markdown import escaped

SEEDS_DIGITS = 3  # of seconds
IN_THE_REST = "in the rest"
ROUNDING = 1e-9  # shares of imbalance below it are the error of floating point
PADDING = "Padding and imbalance"


def render(summary: Summary) -> bytes:
    """Markdown with a last line that says whose file it is."""
    return f"{text(summary)}{MARK}".encode()


def text(summary: Summary) -> str:
    """All series in one table, then tables for each: rates, where the loss goes, where a traced step goes, its workers.

    What ± is stands below each. Then padding and learning, where there are such.
    """
    opening = "".join(f"{line}\n\n" for line in cautions.opening_paragraphs(summary))
    if len(summary.series) > 1:
        opening += f"{markdown(series_table.sections(summary), level=3)}\n"
    sections = []
    for series in summary.series:
        sections += [
            markdown([series_rates(series), parts_section(series)], level=3),
            markdown(step_sections(series), level=4),
        ]
    if padded := padding_section(summary):
        sections.append(markdown([padded], level=3))
    if summary.learning:
        sections.append(
            markdown([learning.section(summary.learning, summary.row_titles)], level=3)
        )
    return escaped(
        opening + "\n".join(filter(None, sections))
    )  # texts of records reach titles and notes as well


def series_rates(series: SeriesSummary) -> Section:
    return rates_section([row.row for row in series.rows], series.title)


def rates_section(rows: Sequence[Row], title: str = "") -> Section:
    """Rows in the form of the seed's tables, and the metrics for which those have no column."""
    metrics = select_metrics(rows)
    # A single run has nothing to be compared with, and no interval: the seed's own columns.
    is_plain = (
        len(rows) == 1
        and len(rows[0].records) == 1
        and not (rows[0].rate and rows[0].rate.ends)
    )
    seeds = [
        metric
        for metric in metrics
        if metric.always and not (is_plain and metric.name == EFFICIENCY.name)
    ]
    others = [metric for metric in metrics if not metric.always]
    notes = [
        *_notes(rows, [*seeds, *others]),
        *_sources(rows, others),
    ]  # a single run has only sources
    return Section(title, tuple(_grids(rows, seeds, others, is_plain)), tuple(notes))


def step_sections(series: SeriesSummary) -> list[Section]:
    """Where a step goes on each number of devices that was traced, start-up, and the ranks of the most workers."""
    traced = [
        (row.devices, row.step_parts)
        for row in series.rows
        if row.step_parts is not None
    ]
    sections = [
        steps.section(parts, f"Where a step goes on {devices}")
        for devices, parts in traced
    ]
    return [*sections, *worker_sections(series)]


def worker_sections(series: SeriesSummary) -> list[Section]:
    """Start-up against training, and the ranks of the most workers."""
    started = start_up.section([row.row for row in series.rows], "Start-up")
    most = series.largest_row
    ranks = cluster.row_section(most.row, f"Ranks on {most.devices}") if most else None
    return [section for section in (started, ranks) if section]


def parts_section(series: SeriesSummary) -> Section:
    """The points of efficiency that each part takes on every number of devices, where any part can be told."""
    losses = [
        (row.row.num_devices, row.loss)
        for row in series.rows
        if row.loss is not None and row.loss.is_significant
    ]
    names = list(
        dict.fromkeys(
            part.name
            for _, loss in losses
            for part in loss.parts
            if part.is_significant
        )
    )
    lines = []
    for count, loss in losses:
        printed = {
            part.name: plus_minus(part.points, 1) for part in loss.significant_parts
        }
        known = {part.name for part in loss.parts if part.points}
        cells = [
            printed.get(name, IN_THE_REST if name in known else "n/a") for name in names
        ]
        rest = (
            plus_minus(loss.unexplained.points, 1)
            if loss.unexplained in loss.displayed_parts
            else "0"
        )
        lines.append([str(count), plus_minus(loss.loss_points, 1), *cells, rest])
    head = ["Devices", "Whole loss", *names, UNEXPLAINED.capitalize()]
    grids = (
        (Grid("Points of efficiency lost, and to what", head, lines),) if lines else ()
    )
    return Section("", grids, tuple(_parts_notes(series)))


def padding_section(summary: Summary) -> Section | None:
    """A line for each row with padding or uneven towers; None if there is none."""
    rows = [
        row
        for series in summary.measured
        for row in series.rows
        if row.padding or row.imbalance > ROUNDING
    ]
    columns: Columns = {
        "Series": lambda row: summary.row_titles[row.row],
        "Devices": lambda row: str(row.row.num_devices),
        f"{summary.unit.capitalize()}/s": lambda row: plus_minus(row.row.rate, 1),
        "Padding (% of positions)": lambda row: (
            "n/a" if row.padding is None else f"{100 * row.padding:.1f}"
        ),
        "Waiting for the longest (% of time)": lambda row: (
            f"{100 * row.imbalance / (1 + row.imbalance):.1f}"
        ),
    }
    grid = make_grid(
        "Padding, and waiting for the tower with the longest sentences", columns, rows
    )
    note = Statement("reading-of-padding", values={"unit": summary.unit})
    return Section(PADDING, (grid,), (note,)) if rows else None


def render_runs(records: Sequence[RunRecord]) -> str:
    """The table for the terminal, and what it counts."""
    rows = build_rows(records)
    counted = dict.fromkeys(f"\n{row.unit}: {row.items}.\n" for row in rows)
    skipped = [f"\n{sentence(statement)}\n" for statement in skipped_updates(records)]
    return rates_table(rows) + "".join([*counted, *skipped])


def rates_table(rows: Sequence[Row]) -> str:
    """The rates in the form of the seed's table, and a line for each kind of ± that occurs in it."""
    return markdown([rates_section(rows)])


def _notes(rows: Sequence[Row], metrics: Sequence[Metric]) -> list[str]:
    kinds: dict[str, dict[str, bool]] = {}
    for metric in metrics:
        for value in (row.metric(metric) for row in rows):
            if value is not None and has_interval(value):
                columns = kinds.setdefault(value.kind, {})
                columns[metric.title] = columns.get(metric.title, False) or has_ends(
                    value
                )
    return [
        f"{_marks(columns.values())} {', '.join(columns)}: {kind}."
        for kind, columns in kinds.items()
    ]


def _sources(rows: Sequence[Row], metrics: Sequence[Metric]) -> list[str]:
    """The sources of energies without an interval; the others have it in their note."""
    values = [
        (metric.title, row.metric(metric))
        for metric in metrics
        if metric.compute == ENERGY.compute
        for row in rows
    ]
    lines = [
        f"{title.capitalize()}: {value.kind}."
        for title, value in values
        if value and not has_interval(value)
    ]
    return list(dict.fromkeys(lines))


def _marks(wide: Iterable[bool]) -> str:
    return " and ".join(
        mark
        for mark, is_there in (("±", not all(wide)), ("[low, high]", any(wide)))
        if is_there
    )


def _parts_notes(series: SeriesSummary) -> list[str]:
    """What ± is in the parts, what the rest is, and where nothing can be told."""
    rows = [row for row in series.rows if row.loss is not None]
    split_losses = [loss for row in rows if (loss := row.loss) and loss.is_significant]
    kinds: dict[str, list[bool]] = {}
    for value in (
        points
        for loss in split_losses
        for points in (
            loss.loss_points,
            *(part.points for part in loss.displayed_parts),
        )
    ):
        if value is not None and has_interval(value):
            kinds.setdefault(value.kind, []).append(has_ends(value))
    lines = [f"{_marks(wide)} points: {kind}." for kind, wide in kinds.items()]
    if with_rest := [
        loss for loss in split_losses if loss.unexplained in loss.displayed_parts
    ]:
        lines.append(
            f"{UNEXPLAINED}: parts within {noise_text(with_rest)}, and parts whose runs are missing."
        )
    causes = [(row.devices, unsplit_statements(row.loss)) for row in rows if row.loss]
    return [
        *lines,
        *(
            f"On {devices}: {sentences(statements)}"
            for devices, statements in causes
            if statements
        ),
    ]


def _grids(
    rows: Sequence[Row],
    seeds: Sequence[Metric],
    others: Sequence[Metric],
    is_plain: bool,
) -> list[Grid]:
    """The seed's table, and one of the other metrics where there are such."""
    devices = f"{'GPU' if all(row.options['device'] == 'gpu' for row in rows) else 'Device'} number"
    places: Columns = {devices: lambda row: str(row.num_devices)}
    if any(row.is_distributed for row in rows):
        places["Workers"] = lambda row: str(row.num_workers)
    columns = {**places, "Batch size": _batch_size}
    if any(len(row.records) > 1 for row in rows):
        columns["Runs"] = _runs
    columns |= {
        f"Total time{_batches(rows)} (s)": _seconds,
        **_numbers(seeds, is_plain),
    }
    if any(map(certificates.row_certificate, rows)):
        columns[certificates.COLUMN_TITLE] = lambda row: certificates.verdict_text(
            [row]
        )
    further = (
        [make_grid("Other metrics", {**places, **_numbers(others, is_plain)}, rows)]
        if others
        else []
    )
    return [make_grid("", columns, rows), *further]


def _batches(rows: Sequence[Row]) -> str:
    """ " to process 20 batches"; empty where no run tells how many it had."""
    good = {len(measured_batches(run)[0]) for row in rows for run in row.good_runs} - {
        0
    }
    counts = good or {
        row.options["num_batches"]
        for row in rows
        if row.options["num_batches"] and not row.good_runs
    }
    if not counts:
        return ""
    text = (
        "/".join(str(n) for n in sorted(counts))
        if len(counts) < 4
        else f"{min(counts)} to {max(counts)}"
    )
    return f" to process {text} batches"


def _batch_size(row: Row) -> str:
    total = row.options["global_batch_size"]
    return f"{total} in all" if total else str(row.batch_size or "n/a")


def _runs(row: Row) -> str:
    """Return the cell with the numbers of runs that count and that do not."""
    failed = len(row.records) - len(row.good_runs)
    parts = [str(len(row.counted_runs))]
    if row.disturbed_runs:
        parts.append(f"{len(row.disturbed_runs)} disturbed")
    if failed:
        parts.append(f"{failed} failed")
    return ", ".join(parts)


def _seconds(row: Row) -> str:
    taken = mean_seconds(row)
    unknown = "n/a" if row.good_runs else row.records[-1].status
    return unknown if taken is None else plain(taken, SEEDS_DIGITS)


def _numbers(metrics: Sequence[Metric], is_plain: bool) -> Columns:
    return {
        metric.column: functools.partial(_number, metric, is_plain)
        for metric in metrics
    }


def _number(metric: Metric, is_plain: bool, row: Row) -> str:
    """A metric; in the seed's own form without an interval, and without a speedup over itself."""
    value = metric.in_printed_unit(row.metric(metric))
    if is_plain and value is not None:
        return "n/a" if metric.ideal else plain(value.value, metric.digits)
    return plus_minus(value, metric.digits)
