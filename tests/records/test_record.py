"""Records survive JSON, are written whole or not at all, and foreign files are refused by name."""

from __future__ import annotations

import errno
import json
import math
import os

import pytest

from rnn_scaling.records import record
from rnn_scaling.records.files import write_text
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.training.state import RunState


def make_record(**changes) -> record.RunRecord:
    fields = {"status": "ok", "error": None, "config": RunConfig().flat(), "batches": {"seconds": [0.1, 1 / 3]}}
    return record.RunRecord(**{**fields, **changes})


def test_record_survives_json(tmp_path):
    original = make_record(throughput={"words_per_second": 1 / 3})
    record.write(original, tmp_path / "run.json")
    assert record.read(tmp_path / "run.json") == original


def test_a_target_that_is_no_regular_file_is_left_alone(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        record.write(make_record(), tmp_path / "pipe")
    (tmp_path / "link.json").symlink_to(tmp_path / "run.json")
    record.write(make_record(), tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink() and (tmp_path / "run.json").is_file()


def test_numbers_that_json_has_not_become_null():
    text = make_record(batches={"loss": [math.nan, math.inf, 1.0]}).to_json()
    assert json.loads(text)["batches"]["loss"] == [None, None, 1.0]


def test_write_replaces_the_file_whole_or_leaves_it(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    write_text("old", path)

    def full_disk(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_text("new", path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["run.json"]


@pytest.mark.parametrize(
    "text,reason",
    [
        ("", "not JSON"),
        ('{"schema": "rnn_scaling.run/1", "status"', "not JSON"),
        ("[]", "expected schema"),
        ('{"schema": "rnn_scaling.run/2"}', "rnn_scaling.run/2"),
        ('{"schema": "rnn_scaling.run/1", "status": "ok"}', "config, error missing"),
        ('{"schema": "rnn_scaling.run/1", "status": "fine", "error": null, "config": {}}', "fine"),
    ],
)
def test_foreign_and_truncated_files_are_refused_by_name(text, reason, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(record.RecordError, match=reason) as error:
        record.read(path)
    assert "run.json" in str(error.value) and "\n" not in str(error.value)


def test_binary_files_are_refused(tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(record.RecordError, match="UTF-8"):
        record.read(path)


def test_unknown_fields_of_a_newer_writer_are_ignored():
    fields = json.loads(make_record().to_json())
    assert record.from_json(json.dumps({**fields, "new": 1})) == make_record()


def _state(readings):
    from rnn_scaling.settings import config as configs

    config = configs.from_flat({"num_warmup_batches": 2, "num_batches": 3})
    return RunState(config, clock=iter(readings).__next__)


def test_phases_sum_to_the_total_and_throughput_is_that_of_the_measured_batches():
    state = _state([0.0, 1.0, 3.0, 3.5, 10.5, 11.5, 12.0, 12.5, 13.0, 13.25, 20.0])
    state.enter("build")
    state.enter("batches")
    state.timer.start()
    for words in (1000, 1000, 10, 20, 30):
        state.timer.end_step(words, loss=1.0)
    state.enter("teardown")
    result = state.record("ok")
    assert result.phases == {
        "start": 1.0,
        "build": 2.0,
        "first_batch": 7.0,
        "warmup": 1.0,
        "measured": 1.5,
        "teardown": 7.5,
        "total": 20.0,
    }
    assert sum(v for k, v in result.phases.items() if k != "total") == result.phases["total"]
    assert result.throughput == {"words": 60, "seconds": 1.5, "words_per_second": 40.0}
    assert result.batches["warmup"] == 2 and result.batches["measured"] == 3


def test_a_failed_run_has_no_throughput():
    state = _state([float(n) for n in range(20)])
    state.enter("batches")
    state.timer.start()
    for _ in range(5):
        state.timer.end_step(10)
    assert state.record("failed", {"type": "X", "message": "x"}).throughput == {}


def test_record_can_be_made_before_anything_happened():
    result = _state([0.0, 2.0]).record("interrupted", {"type": "KeyboardInterrupt", "message": "interrupted"})
    assert result.phases["total"] == 2.0
    assert result.batches["seconds"] == []
