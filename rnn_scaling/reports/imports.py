"""Imported logs as Markdown, CSV and JSON: rates, speedups, findings and other tables.

Like every report, it gets speedup and efficiency from `analysis.rows`.

Programs of users read the JSON, schema "rnn_scaling.import/2": keys may be added, but
never rename one or change its meaning.
"""

import csv
import dataclasses
import io
import itertools
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis import outliers
from rnn_scaling.analysis.audit import auditing
from rnn_scaling.analysis.audit.finding import Finding as AuditFinding
from rnn_scaling.analysis.confidence import Interval, divide_rates
from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP, Metric
from rnn_scaling.analysis.rows import Row, build_rows
from rnn_scaling.analysis.series_titles import group_by_series
from rnn_scaling.analysis.slow_links import state_slow_links
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.config.naming import TRAINER
from rnn_scaling.records.cell_numbers import PrintedNumber
from rnn_scaling.records.importers.mlperf import Mlperf
from rnn_scaling.records.importers.reading import ImportedRun, Reading
from rnn_scaling.records.record import RecordError, from_json, write
from rnn_scaling.records.tables import table as audit_tables
from rnn_scaling.reports import log_findings, mlperf_scores, table
from rnn_scaling.reports.wording import has_interval, write_sentence
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import (
    Table,
    Value,
    format_csv_cell,
    format_table,
)

_SCHEMA = "rnn_scaling.import/2"
_MARKDOWN_ROWS = 100
_SIZES = (TRAINER, "num_devices", "batch_size", "global_batch_size", "device")
# Options of the exchange between devices; one device exchanges nothing.
_EXCHANGE = re.compile(
    r"variables|sync|staged_vars|singlesess|horovod_on|hierarchical_copy|agg_small_grads|"
    r"gradient_repacking|compact_gradient|network_topology|server_protocol|"
    r"variable_consistency|nccl|all_?reduce"
)
_FINDING_COLUMNS = ("Where", "Strength", "Row", "Number", "Printed", "Relation")


@dataclasses.dataclass(frozen=True)
class Member:
    """One run with its row of the analysis."""

    source: str
    run: ImportedRun
    row: Row | None  # None if the rate or the number of devices is unknown

    @property
    def location(self) -> str:
        return f"{self.source}:{self.run.line}"

    @property
    def unit(self) -> str:
        return f"{self.run.record.unit}/s"

    @property
    def rate(self) -> float | None:
        throughput = self.run.record.throughput
        return throughput.items_per_second if throughput else None

    @property
    def series(self) -> str:
        """The options of the run without its size."""
        labels = []
        for name, value in self.run.options.items():
            if name in _SIZES:
                continue
            if value is True:
                labels.append(name)
            elif isinstance(value, str) and not value[:1].isdigit():
                labels.append(value)
            else:
                labels.append(f"{name} {value}")
        if self.run.options.get("device") == "cpu":
            labels.append("on CPUs")
        return ", ".join(labels)

    @property
    def global_batch_size(self) -> int | None:
        """Samples of all devices per step."""
        options = self.run.options
        if "batch_size" in options and "num_devices" in options:
            return int(options["batch_size"] * options["num_devices"])
        return options.get("global_batch_size")

    @property
    def scaling(self) -> str | None:
        """ "weak" or "strong"; None without a baseline on fewer devices."""
        row = self.row
        if row is None or row.baseline in (None, row) or not self.global_batch_size:
            return None
        return "strong" if row.options["global_batch_size"] else "weak"

    def metric(self, metric: Metric) -> float | None:
        """Return a metric of the row, or None if it is unknown."""
        value = self.row.metric(metric) if self.row else None
        return value.value if value else None


@dataclasses.dataclass(frozen=True)
class Imported:
    """The content of several logs."""

    readings: Sequence[Reading]
    by_unit: Mapping[str, Sequence[Member]]  # members in the order of the logs
    # Findings of the audit and number of comparisons of each unit, or None if nothing
    # was audited.
    audited: Sequence[tuple[Sequence[AuditFinding], int]] | None = None

    @property
    def rows(self) -> list[Row]:
        """The rows of the analysis."""
        rows = dict.fromkeys(member.row for member in self.members)
        return [row for row in rows if row is not None]

    @property
    def members(self) -> list[Member]:
        """The runs of all units."""
        return list(itertools.chain.from_iterable(self.by_unit.values()))


def collect(readings: Sequence[Reading], is_audited: bool) -> Imported:
    """Return the runs of all logs with their rows of the analysis."""
    comparable = []
    for reading in readings:
        for run in reading.runs:
            if run.record.throughput and run.options.get("num_devices"):
                comparable.append(run.record)
    rows: dict[int, Row] = {}
    for row in _lend_baselines(build_rows(comparable)):
        rows |= {id(record): row for record in row.records}

    by_unit: dict[str, list[Member]] = {}
    for reading in readings:
        for run in reading.runs:
            member = Member(reading.source, run, rows.get(id(run.record)))
            by_unit.setdefault(member.unit, []).append(member)
    audited = [audit(members) for members in by_unit.values()] if is_audited else None
    return Imported(readings, by_unit, audited)


def _lend_baselines(rows: Sequence[Row]) -> Iterator[Row]:
    """Give rows without a baseline one that differs only in the exchange.

    If several rows qualify, the fastest is used, so that a slow exchange does not
    flatter the speedup.
    """
    baselines = [row for row in rows if row.baseline is row and row.rate]
    for row in rows:
        candidates = [base for base in baselines if _work_key(base) == _work_key(row)]
        if row.baseline is None and candidates:
            fastest = max(candidates, key=_find_rate_or_zero)
            row = dataclasses.replace(row, one_device=fastest)
        yield row


def _find_rate_or_zero(row: Row) -> float:
    return row.rate.value if row.rate else 0.0


def _work_key(row: Row) -> tuple[object, ...]:
    """Return the facts that a row and its baseline must share."""
    options = {
        name: value
        for name, value in row.options.items()
        if name not in _SIZES and not _EXCHANGE.search(name)
    }
    work = row.global_batch_size if row.options["global_batch_size"] else row.batch_size
    return row.unit, row.options["device"], work, sorted(map(str, options.items()))


def make_statements(imported: Imported) -> list[Statement]:
    """Return the outliers of each log, of the scores and of the rates."""
    results = []
    for reading in imported.readings:
        results += state_slow_links(reading)
        for run in reading.runs:
            findings = run.record.log_findings or ()
            unit = run.record.unit
            results += log_findings.state_findings(reading.source, findings, unit)
    _, outlying_scores = mlperf_scores.find_scores(imported.readings)
    results += outlying_scores
    for members in imported.by_unit.values():
        results += _state_slow_repeats(members)
    for series in group_by_series(imported.rows):
        results += _state_smallest_baselines(series)
    for row in imported.rows:
        if _has_lent_baseline(row):
            results.append(state("import-lent-baseline", _label(row)))
    return results


def _state_slow_repeats(members: Sequence[Member]) -> Iterator[Statement]:
    """Yield a statement for each run that is far slower than its repeats."""
    by_row: dict[Row, list[Member]] = {}
    for member in members:
        if member.row is not None:
            by_row.setdefault(member.row, []).append(member)

    for row, repeats in by_row.items():
        rates = [member.rate or 0.0 for member in repeats]
        limit = outliers.find_slow_limit(rates)
        for member, rate in zip(repeats, rates):
            if rate < limit:
                slow_repeat = state(
                    "import-slow-repeat",
                    member.location,
                    rate=rate,
                    usual=statistics.median(rates),
                    count=len(rates) - 1,
                    unit=member.unit,
                    series=_label(row),
                    devices=row.num_devices,
                )
                yield slow_repeat


def _state_smallest_baselines(series: Sequence[Row]) -> list[Statement]:
    """Return the speedup from the smallest number of devices, if that is above 1."""
    rated = [row for row in series if row.rate]
    if len(rated) < 2 or rated[0].num_devices == 1 or rated[-1].baseline:
        return []
    first = rated[0]
    last = rated[-1]
    assert first.rate
    assert last.rate
    speedup = divide_rates(last.rate, first.rate)
    return [
        state(
            "import-from-smallest",
            _label(first),
            first=first.num_devices,
            last=last.num_devices,
            speedup=speedup.value,
            percent=100 * speedup.value * first.num_devices / last.num_devices,
        )
    ]


def _has_lent_baseline(row: Row) -> bool:
    baseline = row.one_device
    return baseline is not None and _exchange_options(baseline) != _exchange_options(
        row
    )


def _exchange_options(row: Row) -> dict[str, Any]:
    """Return the options of the exchange between devices."""
    options = row.options.items()
    return {name: value for name, value in options if _EXCHANGE.search(name)}


def _label(row: Row) -> str:
    record = row.records[0]
    return Member("", ImportedRun(0, record), row).series or str(record.config[TRAINER])


def _make_all_tables(imported: Imported) -> list[Table]:
    """Return the tables of rates, findings of the audit, scores, then of the logs."""
    tables = [_make_rates_table(unit, runs) for unit, runs in imported.by_unit.items()]
    for findings, comparisons in imported.audited or ():
        tables.append(_make_findings_table(findings, comparisons))
    scores, _ = mlperf_scores.find_scores(imported.readings)
    if scores:
        tables.append(scores)
    for reading in imported.readings:
        prefix = f"{reading.source}: " if len(imported.readings) > 1 else ""
        for printed_table in reading.tables:
            title = prefix + printed_table.title
            tables.append(dataclasses.replace(printed_table, title=title))
    return tables


def _make_rates_table(unit: str, members: Sequence[Member]) -> Table:
    """Return the runs of one unit by series and devices, as printed and as analysed."""
    columns: dict[str, Callable[[Member], Value]] = {
        "File": lambda member: member.location,
        "Series": lambda member: member.series or None,
        "Devices": lambda member: member.run.options.get("num_devices"),
        "Batch size per device": lambda member: member.run.options.get("batch_size"),
        "Global batch size": lambda member: member.global_batch_size,
        f"Rate ({unit})": lambda member: (
            _format_printed(member.run.rate) or member.rate
        ),
        "Speedup": lambda member: member.metric(SPEEDUP),
        "Efficiency": lambda member: member.metric(EFFICIENCY),
        "Scaling": lambda member: member.scaling,
    }
    permanent = {"File", "Devices", f"Rate ({unit})", "Speedup", "Efficiency"}
    ordered = sorted(
        members,
        key=lambda member: (member.series, member.run.options.get("num_devices", 0)),
    )
    cells: dict[str, list[Value]] = {}
    for title, cell in columns.items():
        values = list(map(cell, ordered))
        if title in permanent or any(values):
            cells[title] = values
    extra_names: dict[str, None] = {}
    for member in ordered:
        extra_names |= dict.fromkeys(member.run.extra)
    for name in extra_names:
        texts = [_format_printed(member.run.extra.get(name)) for member in ordered]
        if any(texts):
            cells[name[:1].upper() + name[1:]] = list(texts)
    return Table("Rates", tuple(cells), tuple(zip(*cells.values())))


def _format_printed(cell: PrintedNumber | None) -> str | None:
    return None if cell is None else cell.text


def audit(members: Sequence[Member]) -> tuple[list[AuditFinding], int]:
    """Return the findings of the audit for one unit, and the number of comparisons.

    Only runs with the same baseline are checked together, because different work must
    not be compared.
    """
    comparable: dict[object, list[Member]] = {}
    for member in members:
        row = member.row
        first = row.baseline or row if row else None
        comparable.setdefault(first or member.series, []).append(member)
    findings: list[AuditFinding] = []
    compared = 0
    for group in comparable.values():
        count, group_findings = auditing.check(_make_audit_table(group))
        compared += count
        findings += group_findings
    return findings, compared


def _make_audit_table(members: Sequence[Member]) -> audit_tables.Table:
    """Return runs as a table of texts, under headers that the audit reads."""
    cells: dict[str, Callable[[Member], object]] = {
        "series": lambda member: member.series,
        "devices": lambda member: member.run.options.get("num_devices"),
        "batch size": lambda member: member.run.options.get("batch_size"),
        "global batch size": lambda member: member.global_batch_size or None,
        "seconds": lambda member: _format_printed(member.run.extra.get("seconds")),
        "rate": lambda member: _format_printed(member.run.rate),
        "speedup": lambda member: _format_printed(
            member.run.extra.get("speedup as printed")
        ),
    }
    columns = {}
    for title, cell in cells.items():
        values = map(cell, members)
        texts = ["" if value is None else str(value) for value in values]
        if any(texts) or title in ("series", "devices"):
            columns[title] = texts
    lines = [member.run.line for member in members]
    rows = tuple(zip(lines, zip(*columns.values())))
    return audit_tables.Table(members[0].source, 0, tuple(columns), rows)


def _make_findings_table(findings: Sequence[AuditFinding], comparisons: int) -> Table:
    rows: list[tuple[Value, ...]] = []
    for finding in findings:
        for cell in finding.places:
            location = f"{finding.source}:{cell.line}"
            printed_cells = (cell.row, cell.column, cell.printed)
            rows.append((location, finding.strength, *printed_cells, finding.relation))
    title = f"Findings of the audit: {len(findings)} in {comparisons} comparisons"
    return Table(title, _FINDING_COLUMNS, tuple(rows))


def write_records(imported: Imported, folder: Path) -> Iterator[str]:
    """Write the runs as run records; return the errors of runs that have no record."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, member in enumerate(imported.members, 1):
        name = f"{Path(member.source).stem}-{number}.json"
        if member.row is None:
            reason = "the log has no rate of this run"
            if member.run.record.throughput:
                reason = "the log does not name the devices; add --num_devices=N"
            yield f"{member.location}: no record: {reason}"
            continue
        try:
            checked = from_json(member.run.record.to_json(), member.location)
            write(checked, folder / name)
        except RecordError as e:
            yield str(e)
        except OSError as e:
            yield f"{folder / name}: {e.strerror or e}"


def render_markdown(imported: Imported) -> str:
    """Return the tables with their notes, for readers."""
    paragraphs = []
    for full in _make_all_tables(imported):
        text = format_table(full.columns, full.rows[:_MARKDOWN_ROWS])
        paragraph = f"### {full.title}\n\n{text}"
        num_omitted = len(full.rows) - _MARKDOWN_ROWS
        if num_omitted > 0:
            paragraph += (
                f"\nRows that are not shown: {num_omitted}; --output=csv prints them\n"
            )
        paragraphs.append(paragraph)
    for series in group_by_series(imported.rows):
        speedups = [row.metric(SPEEDUP) for row in series]
        if any(speedup and has_interval(speedup) for speedup in speedups):
            text = table.make_rates_table(series)
            paragraphs.append(f"### {_label(series[0])}\n\n{text}")
    sentences = map(write_sentence, make_statements(imported))
    if lines := [f"- {line}\n" for line in sentences]:
        paragraphs.append("What stands out:\n" + "".join(lines))
    notes = []
    for reading in imported.readings:
        name = reading.format.partition(":")[0]
        notes += [f"- {name}: {note}\n" for note in reading.notes]
    if mlperf_scores.find_scores(imported.readings)[0]:
        notes.append(f"- {Mlperf.name}: {mlperf_scores.NOTE}\n")
    paragraphs.append("Notes:\n" + "".join(dict.fromkeys(notes)))
    return entry.make_printable("\n".join(paragraphs), lines=True)


def _render_csv(imported: Imported) -> str:
    """Return the tables one below the other: `# title`, header, rows, an empty line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for content in _make_all_tables(imported):
        out.write(f"# {entry.make_printable(content.title)}\n")
        writer.writerow(map(format_csv_cell, content.columns))
        writer.writerows(map(format_csv_cell, row) for row in content.rows)
        out.write("\n")
    return out.getvalue()


def render_json(imported: Imported) -> str:
    """Return each log, and the rates of all logs together."""
    remarks = make_statements(imported)
    document: dict[str, Any] = {
        "schema": _SCHEMA,
        "logs": [_make_log_json(reading) for reading in imported.readings],
        "rates": _make_rates_json(imported),
        "statements": [statement.data() for statement in remarks],
        "remarks": list(map(write_sentence, remarks)),
    }
    scores, _ = mlperf_scores.find_scores(imported.readings)
    if scores:
        document["scores"] = _make_table_json(scores)
    if imported.audited is not None:
        document["findings"] = []
        for findings, _ in imported.audited:
            document["findings"] += map(dataclasses.asdict, findings)
    return input_files.format_json(document)


def _make_log_json(reading: Reading) -> dict[str, Any]:
    points = []
    for run in reading.runs:
        extra_values = {name: cell.value for name, cell in run.extra.items()}
        member = Member(reading.source, run, None)
        points.append(
            {**_run_json(member), "options": run.options, "extra": extra_values}
        )
    tables: list[dict[str, Any]] = []
    if points:
        tables.append({"title": reading.format, "points": points})
    tables += map(_make_table_json, reading.tables)
    return {
        "format": reading.format,
        "source": reading.source,
        "tables": tables,
        "notes": list(reading.notes),
        "problems": [dataclasses.asdict(problem) for problem in reading.problems],
    }


def _run_json(member: Member) -> dict[str, Any]:
    return {
        "source": member.source,
        "line": member.run.line,
        "series": member.series,
        "devices": member.run.options.get("num_devices"),
        "batch_size": member.run.options.get("batch_size"),
        "global_batch_size": member.global_batch_size,
        "rate": member.rate,
        "unit": member.unit,
    }


def _make_rates_json(imported: Imported) -> list[dict[str, Any]]:
    """Return every rate with the results of its row."""
    members = imported.members
    locations = {id(member.run.record): member.location for member in members}
    rates = []
    for member in members:
        row = member.row
        baseline = row.baseline if row else None
        records = baseline.records if baseline else ()
        rates.append(
            {
                **_run_json(member),
                "runs": len(row.records) if row else 1,
                "mean_rate": row.rate.value if row and row.rate else member.rate,
                "speedup": member.metric(SPEEDUP),
                "efficiency": member.metric(EFFICIENCY),
                "speedup_interval": _list_interval_ends(
                    row.metric(SPEEDUP) if row else None
                ),
                "scaling": member.scaling,
                "baseline": [locations[id(record)] for record in records],
            }
        )
    return rates


def _list_interval_ends(interval: Interval | None) -> list[float | None] | None:
    if interval is None or not has_interval(interval):
        return None
    return [interval.low, interval.high]


def _make_table_json(content: Table) -> dict[str, Any]:
    rows = list(map(list, content.rows))
    return {"title": content.title, "columns": list(content.columns), "rows": rows}


RENDER: Mapping[str, Callable[[Imported], str]] = {
    "markdown": render_markdown,
    "csv": _render_csv,
    "json": render_json,
}
