"""Our own records: derived numbers against raw ones."""

from __future__ import annotations

import json

from rnn_scaling.analysis.audit import auditing
from tests.support import scaling_runs
from tests.support.records import changed, make_record


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


def test_full_sentences_imply_the_words_of_all_micro_batches(tmp_path):
    options = {
        "src_max_len": 10,
        "tgt_max_len": 10,
        "batch_size": 5,
        "gradient_accumulation_steps": 3,
    }
    run = make_record(
        config={**options, "num_devices": 2}, seconds=[0.1, 0.2], items=[600, 600]
    )
    (tmp_path / "a.json").write_text(run.to_json())
    assert auditing.audit(tmp_path / "a.json").findings == []
    once = {**run.config, "gradient_accumulation_steps": 1}
    (tmp_path / "a.json").write_text(changed(run, config=once).to_json())
    (finding,) = auditing.audit(tmp_path / "a.json").findings
    assert [place.column for place in finding.places] == ["throughput.words"]
