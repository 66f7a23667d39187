"""The report as Markdown that is also readable as plain text.

The table of a series has devices, batch size, seconds, words/s and speedup.

`registry.REPORTS` names this module for table.md; `train` prints the table of one run.
"""

import dataclasses
import operator
from collections.abc import Iterator, Sequence

from rnn_scaling.analysis.attribution import UNEXPLAINED, Attribution
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import (
    EFFICIENCY,
    ENERGY,
    MODEL_METRICS,
    RATE,
    SPEEDUP,
    Metric,
    find_common_unit,
)
from rnn_scaling.analysis.rows import Row, build_rows, select_metrics
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.analysis.steps.parts import split_steps
from rnn_scaling.records.own_files import MARK
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import (
    cautions,
    certificates,
    cluster,
    columns,
    environment,
    learning,
    start_up,
    steps,
)
from rnn_scaling.reports.columns import (
    NUM_DEVICES,
    RowColumn,
    SeriesColumn,
    format_cells_by_header,
    make_metric_column,
)
from rnn_scaling.reports.sections import (
    Columns,
    Grid,
    Section,
    explain_numbers,
    explain_rows,
    format_markdown,
    make_grid,
    with_baselines,
)
from rnn_scaling.reports.series_statements import format_noise, state_unsplit_losses
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.wording import (
    format_interval,
    format_interval_kind,
    format_marks,
    format_plain,
    has_interval,
    make_interval_notes,
    write_sentence,
    write_sentences,
)
from rnn_scaling.system.files.markdown import escape
from rnn_scaling.system.files.terminal import format_count

_UNKNOWN = "n/a"


def make_sections(summary: Summary, is_brief: bool = False) -> list[Section]:
    """Return the summary's tables of series or, if it compares models, of models.

    A single table has no title. The speedup, or the efficiency, comes first, so that a
    phone shows it.

    Args:
      summary: The summary.
      is_brief: Whether the table is for a terminal and has fewer columns.
    """
    tables = []
    for title, series in summary.tables:
        columns = make_columns(
            summary, series if is_brief else summary.series, is_brief
        )
        section_title = title if len(summary.tables) > 1 else ""
        grid = make_grid("", format_cells_by_header(columns), series)
        tables.append(Section(section_title, (grid,), tuple(state_marks(series))))
    return tables


def state_marks(series: Sequence[SeriesSummary]) -> list[Statement]:
    """Return the lines that explain the marks of a table of series."""
    rows = [member.largest_row for member in series if member.largest_row]
    return explain_rows(with_baselines(rows))


def make_common_devices_suffix(series: Sequence[SeriesSummary]) -> str:
    """Return " on 2 devices" or " on 4 workers"; "" if series have different most devices."""
    rows = [member.largest_row for member in series if member.largest_row]
    if len({row.num_devices for row in rows}) != 1:
        return ""
    places = {row.devices.removesuffix(" of one device each") for row in rows}
    if len(places) == 1:
        return f" on {places.pop()}"
    return f" on {format_count(rows[0].num_devices, 'device')}"


def make_columns(
    summary: Summary, series: Sequence[SeriesSummary], is_brief: bool = False
) -> list[SeriesColumn]:
    """Return the columns, with the name of the metric that each shows, or "".

    The headings name the number of devices that all series share.
    """
    rows = [member.largest_row for member in series if member.largest_row]
    is_scaled = any(row.num_devices > 1 for row in rows)
    compares_models = summary.has_many_models
    suffix = make_common_devices_suffix(series)
    unit = find_common_unit(member.unit for member in series)

    name = SeriesColumn("", operator.attrgetter("title"), "Series")
    if compares_models:
        name = SeriesColumn("", operator.attrgetter("model"), "Model")
    columns = [name]
    if not suffix:
        columns.append(_make_largest_row_column(NUM_DEVICES.header, NUM_DEVICES))
    elif is_brief:
        # The first heading has the devices once, because a terminal is narrow.
        if is_scaled:
            columns = [dataclasses.replace(name, header=suffix.strip().capitalize())]
        suffix = ""
    rate_name = RATE.with_unit(unit).name
    heading = f"{unit.capitalize()}/s"
    rate = SeriesColumn(rate_name, _format_rate_cell, f"{heading}{suffix}")
    speedup = _make_metric_column(f"Speedup{suffix}", SPEEDUP)
    efficiency = _make_metric_column(f"Efficiency{suffix} (%)", EFFICIENCY)
    # Each table begins with its most important number, because a phone shows only that.
    if compares_models:
        columns.append(efficiency)
        columns += [
            _make_metric_column(metric.column, metric) for metric in MODEL_METRICS
        ]
    elif is_brief:
        columns += [rate, speedup, efficiency] if is_scaled else [rate]
    else:
        columns += [speedup, efficiency, rate] if is_scaled else []
        base_metric = "" if is_scaled else rate_name
        columns.append(
            SeriesColumn(base_metric, _format_base_rate_cell, f"{heading} on 1 device")
        )
    if not is_brief:
        columns.append(SeriesColumn("", _format_runs_cell, "Runs"))
    if summary.is_certified:
        columns.append(
            SeriesColumn("", _format_certificate_cell, certificates.COLUMN_TITLE)
        )
    return columns


def _make_largest_row_column(
    heading: str, column: RowColumn, metric: str = ""
) -> SeriesColumn:
    """Return the column with a cell of the row on the most devices."""

    def format_cell(series: SeriesSummary) -> str:
        row = series.largest_row
        return column.cell(row) if row else _UNKNOWN

    return SeriesColumn(metric, format_cell, heading)


def _make_metric_column(heading: str, metric: Metric) -> SeriesColumn:
    return _make_largest_row_column(heading, make_metric_column(metric), metric.name)


def _format_certificate_cell(series: SeriesSummary) -> str:
    return certificates.format_verdict(series.rows)


def _format_rate_cell(series: SeriesSummary) -> str:
    """Return the rate on the most devices, or "failed" if no run succeeded."""
    row = series.largest_row
    return format_interval(row.rate, 1) if row else "failed"


def _format_base_rate_cell(series: SeriesSummary) -> str:
    """Return the rate on one device, from which speedup and efficiency are computed."""
    row = series.largest_row
    baseline = row.baseline if row else None
    return format_interval(baseline.rate, 1) if baseline else _UNKNOWN


def _format_runs_cell(series: SeriesSummary) -> str:
    """Return the numbers of runs that count on one device and on the most devices."""
    row = series.largest_row
    if row is None:
        return "none succeeded"
    counts = [len(row.counted_runs)]
    if row.baseline:
        counts.insert(0, len(row.baseline.counted_runs))
    text = " and ".join(map(str, dict.fromkeys(counts)))
    return f"{text}, diverged" if series.num_diverged else text


_IN_THE_REST = "in the rest"
ROUNDING = 1e-9  # smaller shares of imbalance are errors of floating point
PADDING = "Padding and imbalance"
_MAX_BATCH_COUNTS = 3  # numbers of batches that a heading lists


def render(summary: Summary) -> bytes:
    """Return Markdown whose last line marks it as a file of this project."""
    return f"{format_text(summary)}{MARK}".encode()


def format_text(summary: Summary) -> str:
    """Return the tables: all series, each series, padding and learning.

    A series has rates, lost points, traced steps and workers. The meaning of ± is below
    each table.
    """
    opening = "".join(
        f"{paragraph}\n\n" for paragraph in cautions.write_opening_paragraphs(summary)
    )
    if len(summary.series) > 1:
        opening += f"{format_markdown(make_sections(summary), level=3)}\n"

    parts = []
    for series in summary.series:
        parts.append(
            format_markdown(
                [list_series_rates(series), make_parts_section(series)], level=3
            )
        )
        parts.append(format_markdown(_make_step_sections(series), level=4))
    if padding := make_padding_section(summary):
        parts.append(format_markdown([padding], level=3))
    if summary.learning:
        section = learning.make_section(summary.learning, summary.row_titles)
        parts.append(format_markdown([section], level=3))
    # Titles and notes contain texts of records too, so everything is escaped.
    return escape(opening + "\n".join(filter(None, parts)))


def list_series_rates(series: SeriesSummary) -> Section:
    """Return the rates of a series."""
    return make_rates_section(series.rows, series.title)


def make_rates_section(rows: Sequence[Row], title: str = "") -> Section:
    """Return the table of rates, and a table of further metrics if there are any."""
    metrics = select_metrics(rows)
    main_metrics = [metric for metric in metrics if metric.is_main]
    further_metrics = [metric for metric in metrics if not metric.is_main]
    is_single = _is_single_run(rows)
    if is_single:
        main_metrics = [
            metric for metric in main_metrics if metric.name != EFFICIENCY.name
        ]

    grids = [_make_rates_grid(rows, main_metrics, is_single)]
    if further_metrics:
        further_columns = columns.format_cells_by_header(
            [*_place_columns(rows), *_make_metric_columns(further_metrics, is_single)]
        )
        grids.append(make_grid("Other metrics", further_columns, rows))
    named_intervals = []
    for metric in (*main_metrics, *further_metrics):
        named_intervals += [(metric.title, row.shown_metric(metric)) for row in rows]
    notes: list[Statement | str] = [
        *make_interval_notes(named_intervals),
        *explain_rows(rows),
        *_make_energy_source_lines(rows, further_metrics),
    ]
    return Section(title, grids, notes)


def _is_single_run(rows: Sequence[Row]) -> bool:
    """Return whether there is only one run, which has no interval and no comparison."""
    if len(rows) > 1 or len(rows[0].records) > 1:
        return False
    rate = rows[0].rate
    return rate is None or not rate.ends


def _make_step_sections(series: SeriesSummary) -> list[Section]:
    """Return the parts of traced steps, the start-up, and the ranks of the most workers."""
    sections = []
    for row in series.rows:
        if parts := split_steps(row.good_runs):
            title = f"Where a step goes on {row.devices}"
            sections.append(steps.make_section(parts, title))
    return [*sections, *make_worker_sections(series)]


def make_worker_sections(series: SeriesSummary) -> list[Section]:
    """Return start-up and training, and the ranks of the most workers."""
    sections = [start_up.make_section(series.rows, "Start-up")]
    row = series.largest_row
    if row:
        sections.append(cluster.make_row_section(row, f"Ranks on {row.devices}"))
    return [section for section in sections if section]


def make_parts_section(series: SeriesSummary) -> Section:
    """Return the points of efficiency that each part takes, by number of devices."""
    attributions = _list_significant_losses(series)
    names: dict[str, None] = {}
    for attribution in attributions:
        names.update(
            (part.name, None) for part in attribution.parts if part.is_significant
        )

    lines = [_make_parts_line(attribution, list(names)) for attribution in attributions]
    head = ["Devices", "All causes", *names, UNEXPLAINED.capitalize()]
    grids: tuple[Grid, ...] = ()
    if lines:
        grids = (Grid("Percentage points of efficiency lost, by cause", head, lines),)
    return Section("", grids, tuple(_list_parts_notes(series)))


def _list_significant_losses(series: SeriesSummary) -> list[Attribution]:
    losses = filter(None, map(series.losses.get, series.rows))
    return [loss for loss in losses if loss.is_significant]


def _make_parts_line(attribution: Attribution, names: Sequence[str]) -> list[str]:
    """Return the points of one number of devices, with a cell for each name."""
    cells = dict.fromkeys(names, "n/a")
    for part in attribution.parts:
        if part.points:
            cells[part.name] = _IN_THE_REST
    for part in attribution.significant_parts:
        cells[part.name] = format_interval(part.points, 1)
    unexplained = "0"
    if attribution.unexplained in attribution.displayed_parts:
        unexplained = format_interval(attribution.unexplained.points, 1)
    total = format_interval(attribution.loss_points, 1)
    devices = str(attribution.row.num_devices)
    return [devices, total, *(cells[name] for name in names), unexplained]


def make_padding_section(summary: Summary) -> Section | None:
    """Return a line for each row with padding or uneven towers; None without any."""
    rows = [row for row in summary.rows if row.padding or row.imbalance > ROUNDING]
    if not rows:
        return None
    grid_columns: Columns = {
        "Series": lambda row: summary.row_titles[row],
        columns.NUM_DEVICES.header: columns.NUM_DEVICES.cell,
        f"{summary.unit.capitalize()}/s": lambda row: format_interval(row.rate, 1),
        columns.PADDING.header: columns.PADDING.cell,
        columns.IMBALANCE.header: columns.IMBALANCE.cell,
    }
    caption = "Padding, and waiting for the tower with the longest sentences"
    notes = (
        state("reading-of-padding", unit=summary.unit),
        *explain_numbers(row.rate for row in rows),
    )
    return Section(PADDING, (make_grid(caption, grid_columns, rows),), notes)


def render_runs(records: Sequence[RunRecord]) -> str:
    """Return the table of a training for the terminal, and the meaning of its unit."""
    rows = build_rows(records)
    notes = list(dict.fromkeys(f"{row.unit}: {row.items}." for row in rows))
    for statement in environment.make_statements(records):
        if statement.kind == environment.UPDATES_SKIPPED:
            notes.append(write_sentence(statement))
    return make_rates_table(rows) + "".join(f"\n{note}\n" for note in notes)


def make_rates_table(rows: Sequence[Row]) -> str:
    """Return the table of rates, with a line for each kind of ± in it."""
    return format_markdown([make_rates_section(rows)])


def _make_energy_source_lines(
    rows: Sequence[Row], metrics: Sequence[Metric]
) -> list[str]:
    """Return the sources of energies without an interval; notes name the others."""
    lines: dict[str, None] = {}
    for metric in metrics:
        if metric.compute != ENERGY.compute:
            continue
        for row in rows:
            value = row.metric(metric)
            if value and not has_interval(value):
                lines[
                    f"{metric.title.capitalize()}: {format_interval_kind(value.kind)}."
                ] = None
    return list(lines)


def _list_parts_notes(series: SeriesSummary) -> list[Statement | str]:
    """Return the meaning of ± and of the rest, and why some rows have no parts."""
    split_losses = _list_significant_losses(series)
    points: list[Interval | None] = []
    for attribution in split_losses:
        points += [
            attribution.loss_points,
            *(part.points for part in attribution.displayed_parts),
        ]
    notes: list[Statement | str] = [
        *make_interval_notes([("points", value) for value in points]),
        *explain_numbers(points),
    ]
    if with_rest := [
        attribution
        for attribution in split_losses
        if attribution.unexplained in attribution.displayed_parts
    ]:
        noise = format_noise(with_rest)
        notes.append(
            f"{UNEXPLAINED}: parts within {noise}, and parts whose runs are missing."
        )
    for row in series.rows:
        loss = series.losses.get(row)
        if loss and (reasons := state_unsplit_losses(loss)):
            notes.append(f"On {row.devices}: {write_sentences(reasons)}")
    return notes


def _place_columns(rows: Sequence[Row]) -> Iterator[RowColumn]:
    """Yield the columns of devices and, in a distributed mode, of workers."""
    is_on_gpus = all(row.options["device"] == "gpu" for row in rows)
    header = "GPU number" if is_on_gpus else "Device number"
    yield dataclasses.replace(columns.NUM_DEVICES, header=header)
    if any(row.is_distributed for row in rows):
        yield columns.NUM_WORKERS


def _make_rates_grid(
    rows: Sequence[Row], metrics: Sequence[Metric], is_single: bool
) -> Grid:
    seconds_header = f"Total time{_format_batches(rows)} (s)"
    row_columns = [*_place_columns(rows), columns.BATCH_SIZE]
    if any(len(row.records) > 1 for row in rows):
        row_columns.append(columns.RUNS_OK)
    row_columns.append(dataclasses.replace(columns.SECONDS, header=seconds_header))
    row_columns += _make_metric_columns(metrics, is_single)
    if any(map(certificates.find_row_certificate, rows)):
        row_columns.append(columns.CERTIFICATE)
    return make_grid("", columns.format_cells_by_header(row_columns), rows)


def _format_batches(rows: Sequence[Row]) -> str:
    """Return " to process 20 batches"; "" if no run has a number of batches."""
    counts: set[int] = set()
    for row in rows:
        counts.update(
            len(run.batches.seconds[run.batches.warmup :]) for run in row.good_runs
        )
    counts -= {0}
    if not counts:
        failed_rows = [row for row in rows if not row.good_runs]
        counts = {row.options["num_batches"] or 0 for row in failed_rows} - {0}
    if not counts:
        return ""
    numbers = "/".join(map(str, sorted(counts)))
    if len(counts) > _MAX_BATCH_COUNTS:
        numbers = f"{min(counts)} to {max(counts)}"
    return f" to process {numbers} batches"


def _make_metric_columns(metrics: Sequence[Metric], is_single: bool) -> list[RowColumn]:
    """Return the columns of metrics.

    The numbers of a single run have no interval, and no speedup over itself.
    """
    if is_single:
        return [_make_single_run_column(metric) for metric in metrics]
    return [columns.make_metric_column(metric) for metric in metrics]


def _make_single_run_column(metric: Metric) -> RowColumn:
    def format_cell(row: Row) -> str:
        value = metric.to_printed_unit(row.metric(metric))
        if value is None or metric.ideal:
            return "n/a"
        return f"{format_plain(value.value, metric.digits)}{format_marks(value)}"

    return dataclasses.replace(columns.make_metric_column(metric), text=format_cell)
