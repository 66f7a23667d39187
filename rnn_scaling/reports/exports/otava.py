"""Runs as CSV files and a configuration for Apache Otava, which finds change points.

Each configuration on a machine is a test of Otava with its own CSV file, because Otava
expects a value of every metric in every line.
Source: apache-otava 0.8, otava/importer.py and otava/test_config.py.

`registry.EXPORTS` names this module; `exported` describes its interface.
"""

import csv
import datetime
import io
import re
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.reports.exports.exported import Exported, ExportedRow, ExportedRun
from rnn_scaling.system.files.input_files import format_json
from rnn_scaling.system.files.output_files import write_text
from rnn_scaling.system.files.terminal import format_count

# Metrics that are exported, and whether a larger (1) or smaller (-1) value is better.
_DIRECTIONS = {"items_per_second": 1, "step_p50_s": -1, "step_p95_s": -1}
_HEADER = ("time", "commit", "run")
_UNKNOWN_START = "1970-01-01T00:00:00+00:00"


def write(exported: Exported, destination: str) -> str:
    """Write otava.yaml and the CSV files to a folder; return a line about them.

    Disturbed runs that do not count are left out, because Otava would report them as
    changes.
    """
    folder = Path(destination)
    names = _make_test_names(exported.rows)
    tests = {}
    for name, row in zip(names, exported.rows):
        runs = [run for run in exported.runs if run.row is row and run.counts]
        metrics = _list_shared_metrics(runs)
        path = folder / f"{name}.csv"
        write_text(_format_csv(runs, metrics), path)
        tests[name] = _make_test(path, metrics)
    # Otava reads YAML, and JSON is YAML.
    write_text(format_json({"tests": tests}), folder / "otava.yaml")
    return f"{folder}: otava.yaml and {format_count(len(tests), 'CSV file')}"


def _make_test(path: Path, metrics: Sequence[str]) -> dict:
    """Return the entry of a CSV file in otava.yaml."""
    columns = {}
    for name in metrics:
        columns[name] = {"column": name, "direction": _DIRECTIONS[name], "scale": 1}
    return {
        "type": "csv",
        "file": str(path.resolve()),
        "time_column": "time",
        "attributes": ["commit", "run"],
        "metrics": columns,
    }


def _format_csv(runs: Sequence[ExportedRun], metrics: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_HEADER, *metrics])
    for run in runs:
        started = run.record.environment.started or _UNKNOWN_START
        time = datetime.datetime.fromisoformat(started)
        values = [run.metrics[name] for name in metrics]
        writer.writerow([time.isoformat(), run.commit, run.name, *values])
    return text.getvalue()


def _list_shared_metrics(runs: Sequence[ExportedRun]) -> list[str]:
    """Return the exported metrics that every run has."""
    names = []
    for name in _DIRECTIONS:
        if all(name in run.metrics for run in runs):
            names.append(name)
    return names


def _make_test_names(rows: Sequence[ExportedRow]) -> list[str]:
    """Return a different name for each row, of letters, digits, "-", "_" and "."."""
    names: list[str] = []
    for row in rows:
        plain_title = re.sub(r"[^\w.-]+", "-", row.title).strip("-")
        name = plain_title
        number = 2
        while name in names:
            name = f"{plain_title}-{number}"
            number += 1
        names.append(name)
    return names
