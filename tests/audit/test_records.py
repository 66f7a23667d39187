"""Our own records: consistent ones have no finding; each derived number that was changed is found."""

from __future__ import annotations

import json

import pytest

from rnn_scaling.audit.auditing import audit
from rnn_scaling.records import record
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports.audit_report import derived_sentence
from tests.support.records import changed, make_record


def make(devices: int, **config) -> RunRecord:
    """A run of 2 warm-up and 5 measured batches of 32 pairs a device, 60 words a pair."""
    seconds = [1.0, 0.3, *[0.2 + 0.01 * devices + 0.001 * k for k in range(5)]]
    words = [32 * 60 * devices] * 7
    measured = sum(seconds[2:])
    phases = {"start": 1.0, "build": 2.0, "first_batch": 1.0, "warmup": 0.3, "measured": measured, "teardown": 0.5}
    settings = {"num_devices": devices, "batch_size": 32, "src_max_len": 30, "tgt_max_len": 30, "data_source": "device"}
    return make_record(
        config={**settings, "encoder_type": "cudnn_lstm", "variable_update": "replicated", **config},
        seconds=seconds,
        items=words,
        warmup=2,
        phases={**phases, "total": sum(phases.values())},
    )


def write(folder, records):
    for k, one in enumerate(records):
        record.write(one, folder / f"{k}.json")


def test_consistent_records_have_no_finding(tmp_path):
    write(tmp_path, [make(1), make(2), make(4)])
    report = audit(tmp_path)
    assert (report.findings, report.error, report.tables) == ([], "", 1) and report.comparisons >= 18
    assert audit(tmp_path / "0.json").findings == []


@pytest.mark.parametrize(
    "part, name, factor, check",
    [
        ("throughput", "items_per_second", 1.01, "work"),
        ("throughput", "items", 2, "record_parts"),
        ("throughput", "seconds", 0.95, "record_parts"),
        ("phases", "total", 1.1, "record_parts"),
        ("batches", "measured", 2, "record_parts"),
        ("config", "batch_size", 2, "record_parts"),
    ],
)
def test_a_changed_number_is_found(tmp_path, part, name, factor, check):
    write(tmp_path, [make(1), make(2), make(4)])
    fields = json.loads((tmp_path / "1.json").read_text())
    fields[part][name] *= factor
    (tmp_path / "1.json").write_text(json.dumps(fields))
    found = [f for f in audit(tmp_path).findings if f.source.endswith("1.json")]
    assert check in {f.check for f in found}, found


def test_one_cause_in_all_records_is_one_finding_and_our_own_report_is_no_stranger(tmp_path):
    write(tmp_path, [make(n, src_max_len=60) for n in (1, 2, 4)])  # 60 words a pair, and settings of 90
    (tmp_path / "report.json").write_text('{"schema": "rnn_scaling.report/1", "series": []}')
    report = audit(tmp_path)
    (found,) = report.findings
    assert found.row.endswith("1 device and 2 other runs") and found.stands == "9600" and "14400" in found.expected
    assert report.notes == [] and "sample in 3 of 3" in report.facts[0]


def test_repeats_are_one_point_and_neither_machines_nor_subfolders_are_repeats(tmp_path):
    def spread(folder, cpus):
        folder.mkdir(exist_ok=True)
        write(folder, [changed(make(n), environment={"cpu": cpu}) for n in (1, 2) for cpu in cpus])
        return audit(folder).derived

    (series,) = spread(tmp_path / "one", ["X", "X", "X"])
    assert [(p.devices, p.rows) for p in series.points] == [(1, 3), (2, 3)]
    assert "the geometric mean of 3" in derived_sentence(series)
    assert series.source == str(tmp_path / "one")
    both = spread(tmp_path / "two", ["X", "Y"])
    assert [(s.series.split(" / ")[-1][:1], [p.rows for p in s.points]) for s in both] == [("X", [1, 1]), ("Y", [1, 1])]
    spread(tmp_path, ["X"])
    sides = audit(tmp_path).derived
    assert [s.series.split(" / ")[-1] for s in sides if "X" in s.series] == [".", "one", "two"]


def test_text_data_implies_no_number_of_words(tmp_path):
    write(tmp_path, [make(n, data_source="text", src_max_len=50) for n in (1, 2, 4)])
    assert audit(tmp_path).findings == []


def test_what_is_no_record_is_named_and_the_rest_is_read(tmp_path):
    write(tmp_path, [make(1), make(2)])
    (tmp_path / "x.json").write_text(json.dumps({"schema": "other"}))
    (tmp_path / "deep.json").write_text("[" * 100_000)
    record.write(make_record("failed"), tmp_path / "f.json")
    report = audit(tmp_path)
    assert not report.error and report.tables == 1 and report.comparisons > 10
    assert sorted(n.split(".json:")[0].split("/")[-1] + ".json" for n in report.notes) == [
        "deep.json",
        "f.json",
        "x.json",
    ]


def test_options_whose_product_is_beyond_all_floats_stop_nothing(tmp_path):
    write(tmp_path, [make(1), make(2, batch_size=10**300, src_max_len=10**300)])
    assert audit(tmp_path).error == ""
