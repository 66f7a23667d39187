"""Derived numbers of run records are compared with the raw ones."""

import json

import pytest

from rnn_scaling.analysis.audit import auditing
from rnn_scaling.reports import csv_table, json_report, table
from rnn_scaling.reports.page import scaling
from tests.analysis.test_load_correction import (
    make_runs_beside_busy_process,
    remove_own_shares,
    run,
)
from tests.support import scaling_runs
from tests.support.records import change_record


def test_a_consistent_record_and_an_edited_one(tmp_path):
    path = tmp_path / "a.json"
    record = scaling_runs.make_timed_run(2, 100, batches=12, data_source="text")
    run = json.loads(record.to_json())
    path.write_text(json.dumps(run))
    report = auditing.audit(path)
    assert report.error == ""
    assert report.findings == []
    assert report.comparisons == 1
    run["throughput"]["seconds"] *= 1.5
    path.write_text(json.dumps(run))
    for source in (path, tmp_path):
        findings = auditing.audit(source).findings
        assert "throughput.seconds" in {f.places[0].column for f in findings}
    run["schema"] = "rnn_scaling.run/9"
    path.write_text(json.dumps(run))
    assert "rnn_scaling.run/9" in auditing.audit(path).error


def make_disturbed_baselines(mode):
    """Return runs of which those on one device had two thirds of the cores."""
    runs = []
    for factor in (0.99, 1.0, 1.01):
        slowed = 100 * factor * 2 / 3
        runs.append(run(1, slowed, 0.66, 1 / 3, variable_update=mode))
        runs.append(run(2, 190 * factor, variable_update=mode))
    return runs


def make_hidden_speedups(mode):
    return list(map(remove_own_shares, make_runs_beside_busy_process(mode)))


def with_start_up(record, number):
    """Return the run with phases, so that the report has a table of them."""
    phases = {"start": 2.0 + number / 9, "build": 1.0, "first_batch": 3.0 + number / 7}
    measured = sum(record.batches.seconds)
    return change_record(record, phases={**phases, "warmup": 1.0, "measured": measured})


@pytest.mark.parametrize(
    "make_runs",
    [make_runs_beside_busy_process, make_disturbed_baselines, make_hidden_speedups],
)
def test_reports_of_disturbed_runs_have_no_finding(make_runs, tmp_path):
    runs = []
    for number, mode in enumerate(("replicated", "independent")):
        runs += [with_start_up(each, number) for each in make_runs(mode)]
    made = scaling_runs.summarise_records(runs)
    renders = {
        "report.json": json_report.render,
        "table.csv": csv_table.render,
        "table.md": table.format_text,
        "report.html": scaling.render,
    }
    for name, render in renders.items():
        content = render(made)
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(data)
        report = auditing.audit(tmp_path / name)
        assert report.error == ""
        assert report.findings == []
