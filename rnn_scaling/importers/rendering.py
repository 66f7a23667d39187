"""Imported logs -> Markdown, CSV, JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.audit.scaling_table import Cell, ScalingTable
from rnn_scaling.importers.common import ImportedLog
from rnn_scaling.importers.tables import Audited, tables_of
from rnn_scaling.reports.markdown import Table, markdown_table

MARKDOWN_ROWS = 100
SCHEMA = "rnn_scaling.import/1"


def render_markdown(logs: Sequence[ImportedLog], audited: Audited = None) -> str:
    """Tables with their notes, for reading."""
    parts, tables = [], tables_of(logs, audited)
    for table in tables:
        part = f"### {table.title}\n\n{markdown_table(table.columns, table.rows[:MARKDOWN_ROWS])}"
        left = len(table.rows) - MARKDOWN_ROWS
        parts.append(part + (f"\n{left} more rows; --output=csv prints them\n" if left > 0 else ""))
    notes = {f"{log.format}: {note}": None for log in logs for note in log.notes}
    if any(table.title == "Rates" and None in table.column("Speedup") for table in tables):
        notes["speedup n/a: no run on one device with the same settings and batch size is among the files"] = None
    parts.append("Notes:\n" + "".join(f"- {note}\n" for note in notes))
    return "\n".join(parts)


def render_csv(logs: Sequence[ImportedLog], audited: Audited = None) -> str:
    """Tables one below the other: a line `# title`, the header, the rows, an empty line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for table in tables_of(logs, audited):
        out.write(f"# {table.title}\n")
        writer.writerow(table.columns)
        writer.writerows(["" if value is None else value for value in row] for row in table.rows)
        out.write("\n")
    return out.getvalue()


def render_json(logs: Sequence[ImportedLog], audited: Audited = None) -> str:
    """Every log by itself with its notes and problems; points of a scaling measurement as numbers by field."""
    out = [
        {
            "format": log.format,
            "source": log.source,
            "tables": [_table_json(table) for table in log.tables],
            "notes": list(log.notes),
            "problems": [{"line": p.line, "reason": p.reason, "more": p.more} for p in log.problems],
        }
        for log in logs
    ]
    document: dict[str, Any] = {"schema": SCHEMA, "logs": out}
    if audited is not None:
        document["findings"] = [dataclasses.asdict(one) for findings, _ in audited for one in findings]
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _table_json(table: ScalingTable | Table) -> dict[str, Any]:
    if isinstance(table, Table):
        return {"title": table.title, "columns": list(table.columns), "rows": [list(row) for row in table.rows]}
    points = [{name: _plain(value) for name, value in vars(row).items()} for row in table.rows]
    return {"title": table.title, "points": points}


def _plain(value: Any) -> Any:
    if isinstance(value, Cell):
        return value.value
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value


RENDER = {"markdown": render_markdown, "csv": render_csv, "json": render_json}
