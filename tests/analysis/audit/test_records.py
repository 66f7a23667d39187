"""Derived numbers of run records are compared with the raw ones."""

from __future__ import annotations

import json

from rnn_scaling.analysis.audit import auditing
from tests.support import scaling_runs


def test_a_consistent_record_and_an_edited_one(tmp_path):
    path = tmp_path / "a.json"
    record = scaling_runs.timed(2, 100, batches=12, data_source="text")
    run = json.loads(record.to_json())
    path.write_text(json.dumps(run))
    report = auditing.audit(path)
    assert (report.error, report.findings) == ("", [])
    assert report.comparisons == 1
    run["throughput"]["seconds"] *= 1.5
    path.write_text(json.dumps(run))
    for source in (path, tmp_path):
        findings = auditing.audit(source).findings
        assert "throughput.seconds" in {f.places[0].column for f in findings}
    run["schema"] = "rnn_scaling.run/9"
    path.write_text(json.dumps(run))
    assert "rnn_scaling.run/9" in auditing.audit(path).error
