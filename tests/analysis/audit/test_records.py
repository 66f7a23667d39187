"""Our own records: derived numbers against raw ones."""

from __future__ import annotations

import json

from rnn_scaling.analysis.audit import auditing
from tests.support import scaling_runs


def test_a_consistent_record_and_an_edited_one(tmp_path):
    run = json.loads(
        scaling_runs.timed(2, 100, batches=12, data_source="text").to_json()
    )
    (tmp_path / "a.json").write_text(json.dumps(run))
    report = auditing.audit(tmp_path / "a.json")
    assert (report.error, report.findings) == ("", []) and report.comparisons > 2
    run["throughput"]["seconds"] *= 1.5
    (tmp_path / "a.json").write_text(json.dumps(run))
    for path in (tmp_path / "a.json", tmp_path):
        columns = {
            place.column
            for finding in auditing.audit(path).findings
            for place in finding.places
        }
        assert "throughput.seconds" in columns
    run["schema"] = "rnn_scaling.run/9"
    (tmp_path / "a.json").write_text(json.dumps(run))
    assert "rnn_scaling.run/9" in auditing.audit(tmp_path / "a.json").error
