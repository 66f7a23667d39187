"""Imported logs -> Markdown, CSV, JSON: the rates and what follows from them, the audit's findings, other tables."""

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.audit import auditing
from rnn_scaling.analysis.audit.finding import Finding
from rnn_scaling.importers import baselines, mlperf
from rnn_scaling.importers.common import ImportedLog, ScalingRow
from rnn_scaling.records.printed_number import Printed
from rnn_scaling.records.tables import table as audit_tables
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import Table, Value, csv_cell, markdown_table

MARKDOWN_ROWS = 100
SCHEMA = "rnn_scaling.import/1"
_MEASURED = (
    "source",
    "line",
    "series",
    "devices",
    "batch_size",
    "global_batch_size",
    "rate",
)
Audited = (
    list[tuple[list[Finding], int]] | None
)  # findings and comparisons by unit; None without --audit
_FINDING_COLUMNS = ("Where", "Strength", "Row", "Number", "Printed", "Relation")
_FIELDS = {  # of a row, under headers that the audit reads
    "batch_size": "batch size", "global_batch_size": "global batch size", "seconds": "seconds", "rate": "rate",
    "speedup": "speedup",
}  # fmt: skip


def render_markdown(logs: Sequence[ImportedLog], audited: Audited = None) -> str:
    """Tables with their notes, for reading."""
    parts, tables = [], tables_of(logs, audited)
    for table in tables:
        part = f"### {table.title}\n\n{markdown_table(table.columns, table.rows[:MARKDOWN_ROWS])}"
        left = len(table.rows) - MARKDOWN_ROWS
        parts.append(
            part
            + (f"\n{left} more rows; --output=csv prints them\n" if left > 0 else "")
        )
    if sentences := remarks(logs):
        parts.append(
            "What stands out:\n" + "".join(f"- {sentence}\n" for sentence in sentences)
        )
    notes = {f"{log.format}: {note}": None for log in logs for note in log.notes}
    if mlperf.scores(logs):
        notes[f"{mlperf.FORMAT}: {mlperf.SCORE_NOTE}"] = None
    parts.append("Notes:\n" + "".join(f"- {note}\n" for note in notes))
    return entry.printable("\n".join(parts), lines=True)


def remarks(logs: Sequence[ImportedLog]) -> list[str]:
    """What stands out in each log and in the rates of all together, a sentence each."""
    sentences = [
        sentence for log in logs for sentence in log.remarks
    ] + mlperf.score_remarks(logs)
    return [
        *sentences,
        *(
            sentence
            for rows in by_unit(logs).values()
            for sentence in baselines.remarks(rows)
        ),
    ]


def render_csv(logs: Sequence[ImportedLog], audited: Audited = None) -> str:
    """Tables one below the other: a line `# title`, the header, the rows, an empty line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for table in tables_of(logs, audited):
        out.write(f"# {entry.printable(table.title)}\n")
        writer.writerow(map(csv_cell, table.columns))
        writer.writerows(map(csv_cell, row) for row in table.rows)
        out.write("\n")
    return out.getvalue()


def render_json(logs: Sequence[ImportedLog], audited: Audited = None) -> str:
    """Every log by itself with its notes and problems; points of a scaling measurement as numbers by field."""
    out = [
        {
            "format": log.format,
            "source": log.source,
            "tables": [*_points_json(log), *map(_table_json, log.tables)],
            "notes": list(log.notes),
            "remarks": list(log.remarks),
            "problems": [
                {"line": p.line, "reason": p.reason, "more": p.more}
                for p in log.problems
            ],
        }
        for log in logs
    ]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "logs": out,
        "rates": _rates_json(logs),
        "remarks": remarks(logs),
    }
    if scores := mlperf.scores(logs):
        document["scores"] = _table_json(scores)
    if audited is not None:
        document["findings"] = [
            dataclasses.asdict(finding)
            for findings, _ in audited
            for finding in findings
        ]
    return input_files.json_text(document)


def _rates_json(logs: Sequence[ImportedLog]) -> list[dict[str, Any]]:
    """Every rate with what is derived from all logs together: speedup, efficiency, repeats and their mean."""
    rates = []
    for unit, rows in by_unit(logs).items():
        for row, result in zip(rows, baselines.derive(rows)):
            measured = {name: _plain(getattr(row, name)) for name in _MEASURED}
            follows = {
                name: getattr(result, name)
                for name in ("runs", "mean_rate", "speedup", "efficiency")
            }
            baseline = [f"{base.source}:{base.line}" for base in result.baseline]
            rates.append(
                {
                    **measured,
                    "unit": unit,
                    **follows,
                    "scaling": result.scaling or None,
                    "baseline": baseline,
                }
            )
    return rates


def _points_json(log: ImportedLog) -> list[dict[str, Any]]:
    points = [
        {name: _plain(value) for name, value in vars(row).items()} for row in log.rows
    ]
    return [{"title": log.format, "points": points}] if points else []


def _table_json(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "columns": list(table.columns),
        "rows": [list(row) for row in table.rows],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Printed):
        return value.value
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value


def by_unit(logs: Sequence[ImportedLog]) -> dict[str, list[ScalingRow]]:
    """The points of all logs by the unit of their rates."""
    units: dict[str, list[ScalingRow]] = {}
    for log in logs:
        for row in log.rows:
            units.setdefault(row.rate_unit, []).append(row)
    return units


def tables_of(logs: Sequence[ImportedLog], audited: Audited) -> list[Table]:
    """Every table of the logs: the rates of all of them together, the audit's findings, then the others in order."""
    tables = [_rate_table(rows, unit) for unit, rows in by_unit(logs).items()]
    tables += [
        _findings_table(found, comparisons) for found, comparisons in audited or []
    ]
    scores = mlperf.scores(logs)
    tables += [scores] if scores else []
    for log in logs:
        for table in log.tables:
            title = table.title if len(logs) == 1 else f"{log.source}: {table.title}"
            tables.append(Table(title, table.columns, table.rows))
    return tables


def _rate_table(rows: Sequence[ScalingRow], unit: str) -> Table:
    """The rows of one unit by series and devices, with speedup and efficiency against their runs on one device."""
    ordered = sorted(rows, key=lambda row: (row.series, row.devices or 0))
    derived = baselines.derive(ordered)
    extras = list(dict.fromkeys(name for row in ordered for name in row.extra))
    columns: dict[str, list[Value]] = {
        "File": [f"{row.source}:{row.line}" for row in ordered],
        "Series": [row.series or None for row in ordered],
        "Devices": [row.devices for row in ordered],
        "Batch size a device": [_text(row.batch_size) for row in ordered],
        "Global batch size": [_text(row.global_batch_size) for row in ordered],
        "Seconds": [_text(row.seconds) for row in ordered],
        f"Rate ({unit})": [_text(row.rate) for row in ordered],
        "Speedup": [result.speedup for result in derived],
        "Efficiency": [result.efficiency for result in derived],
        "Scaling": [result.scaling or None for result in derived],
        "Speedup as printed": [_text(row.speedup) for row in ordered],
        **{
            name[:1].upper() + name[1:]: [_text(row.extra.get(name)) for row in ordered]
            for name in extras
        },
    }
    wanted = {"Rate", "Speedup", "Efficiency", "File", "Devices"}
    kept = {
        name: cells
        for name, cells in columns.items()
        if any(cells) or name.partition(" (")[0] in wanted
    }
    return Table("Rates", tuple(kept), tuple(zip(*kept.values())))


def findings(rows: Sequence[ScalingRow]) -> tuple[list[Finding], int]:
    """What the audit finds in the rows of one unit, and the number of comparisons.

    Rows are checked with those that have the same baseline, so that different work is never compared.
    """
    ordered = sorted(rows, key=lambda row: (row.series, row.devices or 0))
    comparable: dict[tuple, list[ScalingRow]] = {}
    for row, derived in zip(ordered, baselines.derive(ordered)):
        first = derived.baseline[0] if derived.baseline else row
        comparable.setdefault(
            (bool(derived.baseline), first.series, *baselines.works(first)[0]), []
        ).append(row)
    found, compared = [], 0
    for members in comparable.values():
        count, made = auditing.check(_audited_table(members))
        compared += count
        found += made
    return found, compared


def _audited_table(rows: Sequence[ScalingRow]) -> audit_tables.Table:
    """The rows as a table of texts."""
    fields = [name for name in _FIELDS if any(getattr(row, name) for row in rows)]
    header = ("series", "devices", *(_FIELDS[name] for name in fields))
    texts = []
    for row in rows:
        cells = [getattr(row, name) for name in fields]
        texts.append(
            (
                row.line,
                (
                    row.series,
                    str(row.devices or ""),
                    *(cell.text if cell else "" for cell in cells),
                ),
            )
        )
    return audit_tables.Table(rows[0].source, 0, header, tuple(texts))


def _findings_table(faults: Sequence[Finding], comparisons: int) -> Table:
    """The findings as a table; its title says how much was compared."""
    rows = []
    for fault in faults:
        for cell in fault.places:
            where = f"{fault.source}:{cell.line}"
            rows.append(
                (
                    where,
                    fault.strength,
                    cell.row,
                    cell.column,
                    cell.printed,
                    fault.relation,
                )
            )
    return Table(
        f"Findings of the audit: {len(faults)} in {comparisons} comparisons",
        _FINDING_COLUMNS,
        tuple(rows),
    )


def _text(cell: Printed | None) -> str | None:
    return None if cell is None else cell.text


RENDER = {"markdown": render_markdown, "csv": render_csv, "json": render_json}
