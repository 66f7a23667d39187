"""Imported logs -> Markdown, CSV, JSON."""

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling import entry
from rnn_scaling.audit.numbers import Printed
from rnn_scaling.files import input_files
from rnn_scaling.files.markdown import Table, csv_cell, markdown_table
from rnn_scaling.importers import baselines, mlperf, mlperf_scores
from rnn_scaling.importers.common import ImportedLog
from rnn_scaling.importers.tables import Audited, by_unit, tables_of

MARKDOWN_ROWS = 100
SCHEMA = "rnn_scaling.import/1"
_MEASURED = ("source", "line", "series", "devices", "batch_size", "global_batch_size", "rate")


def render_markdown(logs: Sequence[ImportedLog], audited: Audited = None) -> str:
    """Tables with their notes, for reading."""
    parts, tables = [], tables_of(logs, audited)
    for table in tables:
        part = f"### {table.title}\n\n{markdown_table(table.columns, table.rows[:MARKDOWN_ROWS])}"
        left = len(table.rows) - MARKDOWN_ROWS
        parts.append(part + (f"\n{left} more rows; --output=csv prints them\n" if left > 0 else ""))
    if sentences := remarks(logs):
        parts.append("What stands out:\n" + "".join(f"- {sentence}\n" for sentence in sentences))
    notes = {f"{log.format}: {note}": None for log in logs for note in log.notes}
    if mlperf_scores.table(logs):
        notes[f"{mlperf.FORMAT}: {mlperf_scores.NOTE}"] = None
    parts.append("Notes:\n" + "".join(f"- {note}\n" for note in notes))
    return entry.printable("\n".join(parts), lines=True)


def remarks(logs: Sequence[ImportedLog]) -> list[str]:
    """What stands out in each log and in the rates of all together, a sentence each."""
    sentences = [sentence for log in logs for sentence in log.remarks] + mlperf_scores.remarks(logs)
    return [*sentences, *(sentence for rows in by_unit(logs).values() for sentence in baselines.remarks(rows))]


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
            "problems": [{"line": p.line, "reason": p.reason, "more": p.more} for p in log.problems],
        }
        for log in logs
    ]
    document: dict[str, Any] = {"schema": SCHEMA, "logs": out, "rates": _rates_json(logs), "remarks": remarks(logs)}
    if scores := mlperf_scores.table(logs):
        document["scores"] = _table_json(scores)
    if audited is not None:
        document["findings"] = [dataclasses.asdict(finding) for findings, _ in audited for finding in findings]
    return input_files.json_text(document)


def _rates_json(logs: Sequence[ImportedLog]) -> list[dict[str, Any]]:
    """Every rate with what is derived from all logs together: speedup, efficiency, repeats and their mean."""
    rates = []
    for unit, rows in by_unit(logs).items():
        for row, result in zip(rows, baselines.derive(rows)):
            measured = {name: _plain(getattr(row, name)) for name in _MEASURED}
            follows = {name: getattr(result, name) for name in ("runs", "mean_rate", "speedup", "efficiency")}
            baseline = [f"{base.source}:{base.line}" for base in result.baseline]
            rates.append({**measured, "unit": unit, **follows, "scaling": result.scaling or None, "baseline": baseline})
    return rates


def _points_json(log: ImportedLog) -> list[dict[str, Any]]:
    points = [{name: _plain(value) for name, value in vars(row).items()} for row in log.rows]
    return [{"title": log.format, "points": points}] if points else []


def _table_json(table: Table) -> dict[str, Any]:
    return {"title": table.title, "columns": list(table.columns), "rows": [list(row) for row in table.rows]}


def _plain(value: Any) -> Any:
    if isinstance(value, Printed):
        return value.value
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value


RENDER = {"markdown": render_markdown, "csv": render_csv, "json": render_json}
