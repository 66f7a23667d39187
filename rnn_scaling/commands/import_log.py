"""python -m rnn_scaling import_log FILE...: others' logs -> one table of rates, and what each format has beside."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import registry
from rnn_scaling.audit.finding import Finding
from rnn_scaling.audit.scaling_table import Cell, ScalingRow, ScalingTable
from rnn_scaling.importers import any_format, checked
from rnn_scaling.importers.common import ImportedLog, LogError
from rnn_scaling.reports.markdown import Table, Value, markdown_table

USAGE = """\
python -m rnn_scaling import_log FILE... [--format=auto] [--output=markdown]

Reads the output of other benchmarks, finds each file's format, and prints their rates as one table, with speedup and
efficiency where a run on one device is among them; then what a format has beside: bandwidths, topology, timelines.

--format=NAME   read every file as this format instead of looking for it:
                {formats}
--output=KIND   markdown (tables of at most {limit} rows), csv or json (every row)
--audit         also put the rates of all files through the audit's checks and print what they find

Examples:
  python -m rnn_scaling import_log logs/horovod_*.txt --audit
  mpirun ... | tee run.log;  python -m rnn_scaling import_log run.log --output=csv
  nvidia-smi topo -m > topo.txt;  python -m rnn_scaling import_log topo.txt

Tables go to stdout; for what could not be used "error: FILE:LINE: reason" goes to stderr, the rest is still printed.
docs/importers.md says for each format which lines are read and what every number means.

Exit status: 0 everything was read, 1 something could not be used or the audit found something, 2 wrong use."""
OUTPUTS = ("markdown", "csv", "json")
MARKDOWN_ROWS = 100
SCHEMA = "rnn_scaling.import/1"
Found = list[tuple[list[Finding], int]] | None  # findings and comparisons by unit; None without --audit


def main(argv: Sequence[str] | None = None) -> int:
    """Reads the files and prints their tables; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if any(word in ("--help", "-h") for word in words):
        print(USAGE.format(formats=", ".join(registry.IMPORTERS), limit=MARKDOWN_ROWS))
        return 0
    try:
        files, options = _parse(words)
    except ValueError as e:
        print(f"error: {e}; --help explains", file=sys.stderr)
        return 2
    logs, errors = [], []
    for file in files:
        found, wrong = _read(file, options["format"])
        logs += found
        errors += wrong
    found = [checked.findings(rows) for rows in by_unit(logs).values()] if options["audit"] else None
    if logs:
        render = {"markdown": render_markdown, "csv": render_csv, "json": render_json}[options["output"]]
        text = render(logs, found)
        try:
            print(text, end="", flush=True)
        except BrokenPipeError:
            sys.stderr.close()  # the reader of the pipe has gone, e.g. `| head`
            return 1
    errors += [problem.text(log.source) for log in logs for problem in log.problems]
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if errors or any(findings for findings, _ in found or []) else 0


def _parse(words: Sequence[str]) -> tuple[list[Path], dict[str, str]]:
    choices = {"format": ("auto", *registry.IMPORTERS), "output": OUTPUTS}
    options = {"format": "auto", "output": "markdown", "audit": ""}
    files = []
    for word in words:
        if not word.startswith("-"):
            files.append(Path(word))
            continue
        if word == "--audit":
            options["audit"] = "yes"
            continue
        name, _, value = word.lstrip("-").partition("=")
        if name not in choices:
            raise ValueError(f"unknown option {word}; expected --format=NAME, --output=KIND or --audit")
        if value not in choices[name]:
            raise ValueError(f"--{name}: expected one of {', '.join(choices[name])}, got {value!r}")
        options[name] = value
    if not files:
        raise ValueError("expected at least one file")
    return files, options


def _read(file: Path, format: str) -> tuple[list[ImportedLog], list[str]]:
    """One file's logs, and the reasons why it, or a format in it, could not be read."""
    try:
        logs, errors = any_format.read(file, format)
    except LogError as e:
        return [], [str(e)]
    except OSError as e:
        return [], [f"{file}: {e.strerror or e}"]
    return logs, [str(e) for e in errors]


def by_unit(logs: Sequence[ImportedLog]) -> dict[str, list[ScalingRow]]:
    """The points of all logs by the unit of their rates."""
    units: dict[str, list[ScalingRow]] = {}
    for log in logs:
        for table in log.tables:
            for row in table.rows if isinstance(table, ScalingTable) else ():
                units.setdefault(row.rate_unit, []).append(row)
    return units


def tables_of(logs: Sequence[ImportedLog], found: Found) -> list[Table]:
    """Every table of the logs: the rates of all of them together, the audit's findings, then the others in order."""
    tables = [rate_table(rows, unit) for unit, rows in by_unit(logs).items()]
    tables += [checked.as_table(findings, comparisons) for findings, comparisons in found or []]
    for log in logs:
        for table in log.tables:
            if isinstance(table, Table):
                title = table.title if len(logs) == 1 else f"{log.source}: {table.title}"
                tables.append(Table(title, table.columns, table.rows))
    return tables


def rate_table(rows: Sequence[ScalingRow], unit: str) -> Table:
    """The rows of one unit by series and devices, with speedup and efficiency against their run on one device."""
    ordered = sorted(rows, key=lambda row: (row.series, row.devices or 0))
    extras = list(dict.fromkeys(name for row in ordered for name in row.extra))
    columns: dict[str, list[Value]] = {
        "File": [f"{row.source}:{row.line}" for row in ordered],
        "Series": [row.series or None for row in ordered],
        "Devices": [row.devices for row in ordered],
        "Batch size a device": [_text(row.batch_size) for row in ordered],
        "Global batch size": [_text(row.global_batch_size) for row in ordered],
        "Seconds": [_text(row.seconds) for row in ordered],
        f"Rate ({unit})": [_text(row.rate) for row in ordered],
        "Speedup": [speedup(row, ordered) for row in ordered],
        "Efficiency": [_ratio(speedup(row, ordered), row.devices) for row in ordered],
        "Speedup as printed": [_text(row.speedup) for row in ordered],
        **{name[:1].upper() + name[1:]: [_text(row.extra.get(name)) for row in ordered] for name in extras},
    }
    wanted = {"Rate", "Speedup", "Efficiency", "File", "Devices"}
    kept = {name: cells for name, cells in columns.items() if any(cells) or name.partition(" (")[0] in wanted}
    return Table("Rates", tuple(kept), tuple(zip(*kept.values())))


def speedup(row: ScalingRow, rows: Sequence[ScalingRow]) -> float | None:
    """A row's rate against the mean rate of the rows on one device of its series; None where there is none.

    A baseline has the same batch size a device (weak scaling) or the same global batch size (strong scaling).
    """
    if row.rate is None or row.devices is None:
        return None
    base = [
        other.rate.value
        for other in rows
        if other.devices == 1 and other.rate is not None and other.series == row.series and _same_batch(row, other)
    ]
    return row.rate.value / statistics.fmean(base) if base else None


def _same_batch(row: ScalingRow, other: ScalingRow) -> bool:
    pairs = [(row.batch_size, other.batch_size), (row.global_batch_size, other.global_batch_size)]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return not known or any(a.value == b.value for a, b in known)


def _ratio(value: float | None, devices: int | None) -> float | None:
    return None if value is None or not devices else value / devices


def _text(cell: Cell | None) -> str | None:
    return None if cell is None else cell.text


def render_markdown(logs: Sequence[ImportedLog], found: Found = None) -> str:
    """Tables with their notes, for reading."""
    parts, tables = [], tables_of(logs, found)
    for table in tables:
        part = f"### {table.title}\n\n{markdown_table(table.columns, table.rows[:MARKDOWN_ROWS])}"
        left = len(table.rows) - MARKDOWN_ROWS
        parts.append(part + (f"\n{left} more rows; --output=csv prints them\n" if left > 0 else ""))
    notes = {f"{log.format}: {note}": None for log in logs for note in log.notes}
    if any(table.title == "Rates" and None in table.column("Speedup") for table in tables):
        notes["speedup n/a: no run on one device with the same settings and batch size is among the files"] = None
    parts.append("Notes:\n" + "".join(f"- {note}\n" for note in notes))
    return "\n".join(parts)


def render_csv(logs: Sequence[ImportedLog], found: Found = None) -> str:
    """Tables one below the other: a line `# title`, the header, the rows, an empty line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for table in tables_of(logs, found):
        out.write(f"# {table.title}\n")
        writer.writerow(table.columns)
        writer.writerows(["" if value is None else value for value in row] for row in table.rows)
        out.write("\n")
    return out.getvalue()


def render_json(logs: Sequence[ImportedLog], found: Found = None) -> str:
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
    if found is not None:
        document["findings"] = [dataclasses.asdict(one) for findings, _ in found for one in findings]
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
