"""Imported logs as tables, CSV and JSON: the rates and what follows from them, then the rest.

Speedup and efficiency are those of `analysis.rows`, as in every report.
"""

import csv
import dataclasses
import io
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.audit import auditing
from rnn_scaling.analysis.audit.finding import Finding as AuditFinding
from rnn_scaling.analysis.confidence import Interval, ratio
from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP, Metric
from rnn_scaling.analysis.rows import Row, build_rows
from rnn_scaling.analysis.series_titles import group_by_series
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.naming import TRAINER
from rnn_scaling.records.importers import mlperf_scores, outliers
from rnn_scaling.records.importers.mlperf import Mlperf
from rnn_scaling.records.importers.reading import (
    Finding,
    FindingKind,
    ImportedRun,
    Reading,
)
from rnn_scaling.records.printed_number import Printed
from rnn_scaling.records.record import RecordError, from_json, write
from rnn_scaling.records.tables import table as audit_tables
from rnn_scaling.reports import log_findings, table
from rnn_scaling.reports.numbers import has_interval
from rnn_scaling.reports.wording import sentence
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import Table, Value, csv_cell, markdown_table

SCHEMA = "rnn_scaling.import/2"
MARKDOWN_ROWS = 100
_SIZES = (TRAINER, "num_devices", "batch_size", "global_batch_size", "device")
# Options that say how values are exchanged: on one device nothing is.
_EXCHANGE = re.compile(
    r"variables|sync|staged_vars|singlesess|horovod_on|hierarchical_copy|agg_small_grads|"
    r"gradient_repacking|compact_gradient|network_topology|server_protocol|"
    r"variable_consistency|nccl|all_?reduce"
)
_FINDING_COLUMNS = ("Where", "Strength", "Row", "Number", "Printed", "Relation")


@dataclasses.dataclass(frozen=True)
class Member:
    """One run, and the row of the analysis that it is in."""

    source: str
    run: ImportedRun
    row: Row | None  # None without a rate, or on an unknown number of devices

    @property
    def place(self) -> str:
        return f"{self.source}:{self.run.line}"

    @property
    def unit(self) -> str:
        """The unit of its rate."""
        return f"{self.run.record.unit or 'items'}/s"

    @property
    def rate(self) -> float | None:
        throughput = self.run.record.throughput
        return throughput.items_per_second if throughput else None

    @property
    def series(self) -> str:
        """The options of the run without its size."""
        words = []
        for name, value in self.run.options.items():
            if name in _SIZES:
                continue
            if value is True:
                words.append(name)
            elif isinstance(value, str) and not value[:1].isdigit():
                words.append(value)
            else:
                words.append(f"{name} {value}")
        if self.run.options.get("device") == "cpu":
            words.append("on CPUs")
        return ", ".join(words)

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
        """Return a metric of its row; None if it is not known."""
        value = self.row.metric(metric) if self.row else None
        return value.value if value else None


@dataclasses.dataclass(frozen=True)
class Imported:
    """The content of several logs."""

    readings: Sequence[Reading]
    # By unit, in the order of the logs.
    members: Mapping[str, Sequence[Member]]
    # Findings of the audit and number of comparisons by unit; None without the audit.
    audited: Sequence[tuple[Sequence[AuditFinding], int]] | None = None

    @property
    def rows(self) -> list[Row]:
        """The rows of the analysis."""
        rows = [each.row for members in self.members.values() for each in members]
        return list(dict.fromkeys(row for row in rows if row is not None))


def collect(readings: Sequence[Reading], is_audited: bool) -> Imported:
    """Return the runs of all logs with their rows of the analysis."""
    runs = [(reading.source, run) for reading in readings for run in reading.runs]
    known = [
        run.record
        for _, run in runs
        if run.record.throughput and run.options.get("num_devices")
    ]
    rows = _with_lent_baselines(build_rows(known))
    row_of = {id(record): row for row in rows for record in row.records}
    by_unit: dict[str, list[Member]] = {}
    for source, run in runs:
        member = Member(source, run, row_of.get(id(run.record)))
        by_unit.setdefault(member.unit, []).append(member)
    audited = [audit(members) for members in by_unit.values()] if is_audited else None
    return Imported(readings, by_unit, audited)


def _with_lent_baselines(rows: Sequence[Row]) -> list[Row]:
    """Return the rows; those without a baseline get one that differs in the exchange.

    If several do, it is the fastest: no speedup is flattered by a slow mode.
    """
    alone = [row for row in rows if row.baseline is row and row.rate]
    lent = []
    for row in rows:
        fitting = [one for one in alone if _work(one) == _work(row)]
        if row.baseline is None and fitting:
            fastest = max(fitting, key=_rate)
            row = dataclasses.replace(row, one_device=fastest)
        lent.append(row)
    return lent


def _rate(row: Row) -> float:
    return row.rate.value if row.rate else 0.0


def _work(row: Row) -> tuple[object, ...]:
    """Return the facts that a row and its baseline must share."""
    options = {
        name: value
        for name, value in row.options.items()
        if name not in _SIZES and not _EXCHANGE.search(name)
    }
    work = row.global_batch_size if row.options["global_batch_size"] else row.batch_size
    return row.unit, row.options["device"], work, sorted(map(str, options.items()))


def statements(imported: Imported) -> list[Statement]:
    """Return the outliers of each log, of the scores and of the rates."""
    found = []
    for reading in imported.readings:
        found += [
            _statement(f"{reading.source}:{each.line}", each)
            for each in reading.findings
        ]
        for run in reading.runs:
            findings = run.record.log_findings or ()
            unit = run.record.unit or "items"
            found += log_findings.log_statements(reading.source, findings, unit)
    _, of_scores = mlperf_scores.find_scores(imported.readings)
    found += [_statement(source, finding) for source, finding in of_scores]
    for members in imported.members.values():
        found += _slow_repeats(members)
    for series in group_by_series(imported.rows):
        found += _from_smallest(series)
    for row in imported.rows:
        if row.one_device and _is_lent(row):
            found.append(Statement("import-lent-baseline", _label(row)))
    return found


def _statement(subject: str, finding: Any) -> Statement:
    return Statement(f"import-{finding.kind.value}", subject, finding.values)


def _slow_repeats(members: Sequence[Member]) -> list[Statement]:
    """Return a statement for each run that is far slower than its repeats."""
    by_row: dict[Row, list[Member]] = {}
    for member in members:
        if member.row is not None:
            by_row.setdefault(member.row, []).append(member)

    found = []
    for row, repeats in by_row.items():
        rates = [member.rate or 0.0 for member in repeats]
        limit = outliers.slow_limit(rates)
        for member, rate in zip(repeats, rates):
            if rate < limit:
                values = {
                    "rate": rate,
                    "usual": statistics.median(rates),
                    "count": len(rates) - 1,
                    "unit": member.unit,
                    "series": _label(row),
                    "devices": row.num_devices,
                }
                finding = Finding(FindingKind.SLOW_REPEAT, member.run.line, values)
                found.append(_statement(member.place, finding))
    return found


def _from_smallest(series: Sequence[Row]) -> list[Statement]:
    """Return the speedup from the smallest number of devices, if that is not one."""
    rated = [row for row in series if row.rate]
    if len(rated) < 2 or rated[0].num_devices == 1 or rated[-1].baseline:
        return []
    first = rated[0]
    last = rated[-1]
    assert first.rate
    assert last.rate
    speedup = ratio(last.rate, first.rate)
    values = {
        "first": first.num_devices,
        "last": last.num_devices,
        "speedup": speedup.value,
        "percent": 100 * speedup.value * first.num_devices / last.num_devices,
    }
    return [Statement("import-from-smallest", _label(first), values)]


def _is_lent(row: Row) -> bool:
    one = row.one_device
    return one is not None and _exchange(one) != _exchange(row)


def _exchange(row: Row) -> dict[str, Any]:
    """Return the options that say how values are exchanged."""
    options = row.options.items()
    return {name: value for name, value in options if _EXCHANGE.search(name)}


def _label(row: Row) -> str:
    record = row.records[0]
    return Member("", ImportedRun(0, record), row).series or str(record.config[TRAINER])


def tables_of(imported: Imported) -> list[Table]:
    """Return every table: rates, the findings of the audit, scores, then the others."""
    tables = [rates_table(unit, each) for unit, each in imported.members.items()]
    for findings, comparisons in imported.audited or ():
        tables.append(_findings_table(findings, comparisons))
    scores, _ = mlperf_scores.find_scores(imported.readings)
    if scores:
        tables.append(scores)
    for reading in imported.readings:
        for each in reading.tables:
            title = each.title
            if len(imported.readings) > 1:
                title = f"{reading.source}: {title}"
            tables.append(dataclasses.replace(each, title=title))
    return tables


def rates_table(unit: str, members: Sequence[Member]) -> Table:
    """Return the runs of one unit by series and devices, as printed and as analysed."""
    ordered = sorted(
        members, key=lambda each: (each.series, each.run.options.get("num_devices", 0))
    )
    columns: dict[str, Callable[[Member], Value]] = {
        "File": lambda each: each.place,
        "Series": lambda each: each.series or None,
        "Devices": lambda each: each.run.options.get("num_devices"),
        "Batch size per device": lambda each: each.run.options.get("batch_size"),
        "Global batch size": lambda each: each.global_batch_size,
        f"Rate ({unit})": lambda each: _text(each.run.rate) or each.rate,
        "Speedup": lambda each: each.metric(SPEEDUP),
        "Efficiency": lambda each: each.metric(EFFICIENCY),
        "Scaling": lambda each: each.scaling,
    }
    always = {"File", "Devices", f"Rate ({unit})", "Speedup", "Efficiency"}
    cells = {title: [cell(each) for each in ordered] for title, cell in columns.items()}
    for name in dict.fromkeys(name for each in ordered for name in each.run.extra):
        title = name[:1].upper() + name[1:]
        cells[title] = [_text(each.run.extra.get(name)) for each in ordered]
    kept = {
        title: values
        for title, values in cells.items()
        if title in always or any(values)
    }
    return Table("Rates", tuple(kept), tuple(zip(*kept.values())))


def _text(cell: Printed | None) -> str | None:
    return None if cell is None else cell.text


def audit(members: Sequence[Member]) -> tuple[list[AuditFinding], int]:
    """Return the findings of the audit for one unit, and the number of comparisons.

    Runs are checked with those that have the same baseline, so that different work is
    never compared.
    """
    comparable: dict[object, list[Member]] = {}
    for member in members:
        row = member.row
        first = row.baseline or row if row else None
        comparable.setdefault(first or member.series, []).append(member)
    found: list[AuditFinding] = []
    compared = 0
    for group in comparable.values():
        count, findings = auditing.check(_audited_table(group))
        compared += count
        found += findings
    return found, compared


def _audited_table(members: Sequence[Member]) -> audit_tables.Table:
    """Return runs as a table of texts, under headers that the audit reads."""
    texts = {
        "series": [each.series for each in members],
        "devices": [str(each.run.options.get("num_devices", "")) for each in members],
        "batch size": [str(each.run.options.get("batch_size", "")) for each in members],
        "global batch size": [str(each.global_batch_size or "") for each in members],
        "seconds": [_text(each.run.extra.get("seconds")) or "" for each in members],
        "rate": [_text(each.run.rate) or "" for each in members],
        "speedup": [
            _text(each.run.extra.get("speedup as printed")) or "" for each in members
        ],
    }
    kept = {
        title: cells
        for title, cells in texts.items()
        if any(cells) or title in ("series", "devices")
    }
    lines = [each.run.line for each in members]
    rows = tuple(zip(lines, zip(*kept.values())))
    return audit_tables.Table(members[0].source, 0, tuple(kept), rows)


def _findings_table(findings: Sequence[AuditFinding], comparisons: int) -> Table:
    rows: list[tuple[Value, ...]] = []
    for found in findings:
        for cell in found.places:
            where = f"{found.source}:{cell.line}"
            place = (cell.row, cell.column, cell.printed)
            rows.append((where, found.strength, *place, found.relation))
    title = f"Findings of the audit: {len(findings)} in {comparisons} comparisons"
    return Table(title, _FINDING_COLUMNS, tuple(rows))


def write_records(imported: Imported, folder: Path) -> list[str]:
    """Write the runs as run records; return a sentence for each that has none."""
    errors = []
    folder.mkdir(parents=True, exist_ok=True)
    members = [each for group in imported.members.values() for each in group]
    for number, member in enumerate(members, 1):
        name = f"{Path(member.source).stem}-{number}.json"
        if member.row is None:
            errors.append(f"{member.place}: no record: its devices or rate are unknown")
            continue
        try:
            checked = from_json(member.run.record.to_json(), member.place)
            write(checked, folder / name)
        except RecordError as e:
            errors.append(str(e))
        except OSError as e:
            errors.append(f"{folder / name}: {e.strerror or e}")
    return errors


def render_markdown(imported: Imported) -> str:
    """Return tables with their notes, for reading."""
    parts = []
    for each in tables_of(imported):
        shown = markdown_table(each.columns, each.rows[:MARKDOWN_ROWS])
        part = f"### {each.title}\n\n{shown}"
        left = len(each.rows) - MARKDOWN_ROWS
        if left > 0:
            part += f"\n{left} more rows; --output=csv prints them\n"
        parts.append(part)
    for series in group_by_series(imported.rows):
        speedups = [row.metric(SPEEDUP) for row in series]
        if any(speedup and has_interval(speedup) for speedup in speedups):
            parts.append(f"### {_label(series[0])}\n\n{table.rates_table(series)}")
    if sentences := [sentence(each) for each in statements(imported)]:
        lines = [f"- {line}\n" for line in sentences]
        parts.append("What stands out:\n" + "".join(lines))
    notes = [
        f"- {reading.format.partition(':')[0]}: {note}\n"
        for reading in imported.readings
        for note in reading.notes
    ]
    if mlperf_scores.find_scores(imported.readings)[0]:
        notes.append(f"- {Mlperf.name}: {mlperf_scores.NOTE}\n")
    parts.append("Notes:\n" + "".join(dict.fromkeys(notes)))
    return entry.printable("\n".join(parts), lines=True)


def render_csv(imported: Imported) -> str:
    """Return the tables one below the other: `# title`, header, rows, an empty line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for each in tables_of(imported):
        out.write(f"# {entry.printable(each.title)}\n")
        writer.writerow(map(csv_cell, each.columns))
        writer.writerows(map(csv_cell, row) for row in each.rows)
        out.write("\n")
    return out.getvalue()


def render_json(imported: Imported) -> str:
    """Return each log, and the rates of all logs together."""
    found = statements(imported)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "logs": [_log_json(reading) for reading in imported.readings],
        "rates": _rates_json(imported),
        "statements": [each.data() for each in found],
        "remarks": [sentence(each) for each in found],
    }
    scores, _ = mlperf_scores.find_scores(imported.readings)
    if scores:
        document["scores"] = _table_json(scores)
    if imported.audited is not None:
        document["findings"] = [
            dataclasses.asdict(finding)
            for findings, _ in imported.audited
            for finding in findings
        ]
    return input_files.json_text(document)


def _log_json(reading: Reading) -> dict[str, Any]:
    points = []
    for run in reading.runs:
        extra = {name: cell.value for name, cell in run.extra.items()}
        member = Member(reading.source, run, None)
        points.append({**_run_json(member), "options": run.options, "extra": extra})
    tables: list[dict[str, Any]] = []
    if points:
        tables.append({"title": reading.format, "points": points})
    tables += [_table_json(each) for each in reading.tables]
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


def _rates_json(imported: Imported) -> list[dict[str, Any]]:
    """Return every rate with the results of its row."""
    members = [each for group in imported.members.values() for each in group]
    places = {id(each.run.record): each.place for each in members}
    rates = []
    for each in members:
        row = each.row
        baseline = row.baseline if row else None
        records = baseline.records if baseline else ()
        rates.append(
            {
                **_run_json(each),
                "runs": len(row.records) if row else 1,
                "mean_rate": row.rate.value if row and row.rate else each.rate,
                "speedup": each.metric(SPEEDUP),
                "efficiency": each.metric(EFFICIENCY),
                "speedup_interval": _ends(row.metric(SPEEDUP) if row else None),
                "scaling": each.scaling,
                "baseline": [places[id(record)] for record in records],
            }
        )
    return rates


def _ends(interval: Interval | None) -> list[float | None] | None:
    if interval is None or not has_interval(interval):
        return None
    return [interval.low, interval.high]


def _table_json(each: Table) -> dict[str, Any]:
    rows = [list(row) for row in each.rows]
    return {"title": each.title, "columns": list(each.columns), "rows": rows}


RENDER: Mapping[str, Callable[[Imported], str]] = {
    "markdown": render_markdown,
    "csv": render_csv,
    "json": render_json,
}
