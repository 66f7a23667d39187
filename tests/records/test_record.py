"""Records survive JSON, are written whole or not at all, and foreign files are refused by name."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os

import pytest

from rnn_scaling.config import conflicts, flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.models.workloads import FORMER_WORKLOADS
from rnn_scaling.records import checks, record
from rnn_scaling.records.parts import Batches, Phases, RunError, Throughput
from rnn_scaling.system.files.output_files import write_text
from rnn_scaling.training.state import RunState
from tests.support.paths import ROOT
from tests.support.records import changed, fields_of, make_record, throughput


def test_record_survives_json(tmp_path):
    original = make_record(config={"model": "lm"}, unit="tokens", flops_per_item=1 / 3)
    record.write(original, tmp_path / "run.json")
    assert record.read(tmp_path / "run.json") == original


def test_a_target_that_is_no_regular_file_is_left_alone(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        record.write(make_record(), tmp_path / "pipe")


@pytest.mark.parametrize("target", ["precious", "nowhere", "/dev/null", "link.json"])
def test_nothing_is_written_through_a_link(target, tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "link.json").symlink_to(tmp_path / target)
    with pytest.raises(OSError) as refused:
        record.write(make_record(), tmp_path / "link.json")
    assert refused.value.strerror.startswith("a link, and nothing is written")
    assert sorted(os.listdir(tmp_path)) == ["link.json", "precious"]
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_folder_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to("real")
    record.write(make_record(), tmp_path / "linked" / "run.json")
    assert os.listdir(tmp_path / "real") == ["run.json"]


def test_numbers_that_json_has_not_become_null():
    text = dataclasses.replace(
        make_record(), batches=Batches(loss=(math.nan, math.inf, 1.0))
    ).to_json()
    assert json.loads(text)["batches"]["loss"] == [None, None, 1.0]


def test_a_loss_that_grows_beyond_all_is_still_a_record(tmp_path):
    diverged = make_record(batches={"loss": [4.0, 3.4e38]})
    record.write(diverged, tmp_path / "run.json")
    assert record.read(tmp_path / "run.json") == diverged


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
        (f"[{'1' * 5000}]", "a number of thousands of digits"),
        ('{"schema": "rnn_scaling.run/2"}', "rnn_scaling.run/2"),
        ('{"schema": "rnn_scaling.run/1", "status": "ok"}', "config, error missing"),
        (
            '{"schema": "rnn_scaling.run/1", "status": "fine", "error": null, "config": {}}',
            "fine",
        ),
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
    from rnn_scaling.config import run_config as configs

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
    assert result.phases == Phases(
        start=1.0,
        build=2.0,
        first_batch=7.0,
        warmup=1.0,
        measured=1.5,
        teardown=7.5,
        total=20.0,
    )
    assert sum(result.phases.parts.values()) == result.phases.total
    assert result.throughput == Throughput(items=60, seconds=1.5, items_per_second=40.0)
    assert result.batches.warmup == 2 and result.batches.measured == 3


def test_a_failed_run_has_no_throughput():
    state = _state([float(n) for n in range(20)])
    state.enter("batches")
    state.timer.start()
    for _ in range(5):
        state.timer.end_step(10)
    assert state.record("failed", RunError(type="X", message="x")).throughput is None


def test_record_can_be_made_before_anything_happened():
    result = _state([0.0, 2.0]).record(
        "interrupted", RunError(type="KeyboardInterrupt", message="interrupted")
    )
    assert result.phases.total == 2.0
    assert result.batches.seconds == ()


def older(fields):
    """The record as it stood in a file before items had a unit."""
    batches, rate = fields["batches"], fields["throughput"]
    batches["words"], batches["tower_words"] = (
        batches.pop("items"),
        batches.pop("tower_items"),
    )
    rate["words"], rate["words_per_second"] = (
        rate.pop("items"),
        rate.pop("items_per_second"),
    )
    del fields["unit"], fields["flops_per_item"]
    return fields


def towers(warmup=0, **batches):
    return make_record(
        warmup=warmup,
        batches={"tower_items": [[100]] * 2, "tower_positions": [[120]] * 2, **batches},
    )


def test_an_older_record_that_counts_words_is_its_new_form():
    read = record.from_json(json.dumps(older(fields_of(towers()))))
    assert read == towers() and read.unit == "words" and read.flops_per_item is None


def faults_of(fields, **arguments):
    with pytest.raises(record.RecordError) as error:
        record.from_json(json.dumps(fields), "run.json", **arguments)
    assert str(error.value).startswith("run.json: ") and "\n" not in str(error.value)
    return error.value.faults


def test_every_fault_is_named_at_once_with_its_path():
    fields = fields_of(towers())
    fields["config"]["num_devices"] = 0
    fields["batches"] |= {
        "seconds": [0, "x"],
        "warmup": 2,
        "tower_items": [[99]] * 2,
        "loss": [None, 1e39],
    }
    fields["environment"] = {
        "load": {"others": "all"},
        "gpus": [{"name": 7}],
        "newer": [1],
    }
    fields["resolved"] = {"all_reduce": [{"algorithm": "xring"}], "onednn": 1}
    fields["phases"] = {"total": -1.0}
    fields["error"] = "no"
    faults = dict(fault.split("; ") for fault in faults_of(fields))
    assert faults.keys() == {
        "config.num_devices is 0",
        "batches.seconds[0] is 0",
        "batches.loss[1] is 1e+39",
        "environment.load.others is 'all'",
        "environment.load.steal is missing",
        "environment.gpus[0].name is 7",
        "resolved.all_reduce[0].shards is missing",
        "resolved.onednn is 1",
        "phases.total is -1.0",
        "error is 'no'",
    }
    assert (
        "1 more" in faults["batches.seconds[0] is 0"]
        and "null" in faults["error is 'no'"]
    )
    assert str(record.RecordError("x", [f"fault {n}" for n in range(7)])).endswith(
        "fault 4. 2 more faults"
    )


def test_faults_of_an_older_record_have_the_names_that_stand_in_it():
    fields = older(fields_of(towers()))
    fields["batches"]["tower_words"][1] = [99]
    fields["throughput"]["words_per_second"] = 1.0
    words, rate = faults_of(fields)
    assert (
        "batches.tower_words[1] sum to 99" in words
        and "batches.words[1] is 100" in words
    )
    assert rate.startswith("throughput.words_per_second is 1, ") and rate.endswith(
        "461.5384615"
    )


POSSIBLE = {
    "start": 1.0,
    "build": 0.5,
    "first_batch": 0.1,
    "measured": 1 / 3,
    "total": 1.0 + 0.5 + 0.1 + 1 / 3,
}


@pytest.mark.parametrize(
    "part, change, fault",
    [
        (
            "batches",
            {"items": [300, 300], "tower_items": [[300]] * 2},
            "batches.tower_items[0] is [300] and batches.tower_",
        ),
        (
            "batches",
            {"seconds": [900.0, 1 / 3]},
            "batches.seconds sum to 900.333333 s, more than phases.total, 1.93333333",
        ),
        (
            "batches",
            {"seconds": [0.1, 0.2]},
            "phases.measured is 0.333333333 s, and the measured batches make 0.2",
        ),
        ("phases", {"total": 9.0}, "phases sum to 1.93333333 s and phases.total is 9"),
        ("phases", {"total": 1.0}, "phases sum to 1.93333333 s and phases.total is 1"),
        (
            "phases",
            {"measured": 0.3, "build": 0.2 + 1 / 3},
            "phases.measured is 0.3 s, and the measured batches make 0.",
        ),
        (
            "phases",
            {"further": 0.25},
            "phases sum to 2.18333333 s and phases.total is 1.93333333",
        ),
        (
            "config",
            {"learning_rate": math.inf},
            "config.learning_rate is inf; expected a finite number",
        ),
        (
            "config",
            {"forget_bias": math.nan},
            "config.forget_bias is nan; expected a finite number",
        ),
        (
            "config",
            {"of_a_newer_version": 10**400},
            "config.of_a_newer_version is 1000000",
        ),
    ],
)
def test_what_no_run_can_leave_is_named(part, change, fault):
    fields = fields_of(changed(towers(warmup=1), phases=POSSIBLE))
    fields["throughput"] = throughput(fields["batches"])
    assert record.from_json(json.dumps(fields)).phases.measured == 1 / 3
    fields[part] |= change
    fields["throughput"] = throughput(fields["batches"])
    (found,) = faults_of(fields)
    assert found.startswith(fault)


@pytest.mark.parametrize(
    "name", [n for n, f in OPTIONS.items() if flags.kind_of(f) == "float"]
)
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
def test_no_record_is_begun_with_an_option_that_it_could_not_hold(name, text):
    given = flags.parse([f"--{name}={text}"], OPTIONS)
    lines = conflicts.problems(
        configs.resolve(given, num_gpus=0, num_cores=2), given, num_gpus=0
    )
    assert f"--{name}={given[name]} must be a finite number" in lines


def test_what_drives_a_terminal_never_comes_out_of_a_record():
    environment = {
        "cpu": "X\x1b[31m\n| y\u202e",
        "topology": "GPU0\x1b[4m\tGPU1\nGPU0\x1b[0m X",
        "new": {"\x07": ["\x9b2J"]},
    }
    fields = fields_of(
        make_record("failed", error={"type": "X", "message": "a\nb\x1b]0;title\x07"})
    )
    fields["environment"] = environment
    run = record.from_json(json.dumps(fields))
    assert run.error.message == "a b" and run.environment.cpu == "X | y "
    assert run.environment.topology == "GPU0 GPU1\nGPU0 X"
    assert run.environment.further == {"new": {" ": [""]}}
    raw = json.dumps(fields, ensure_ascii=False)
    assert record.from_json(raw) == run
    deleted = {
        **fields_of(make_record()),
        "environment": {"cpu": "a\x7fb"},
    }  # ASCII that JSON holds as it is
    assert (
        record.from_json(json.dumps(deleted, ensure_ascii=False)).environment.cpu
        == "a b"
    )


def test_what_is_derived_need_not_be_judged():
    fields = fields_of(towers())
    fields["throughput"]["items"] = 1
    assert record.from_json(json.dumps(fields), derived=False).throughput.items == 1
    assert len(faults_of(fields)) == 1


def test_what_a_newer_writer_added_to_a_part_is_kept():
    fields = fields_of(make_record(phases={"start": 1.0, "total": 1.5}))
    fields["phases"]["pause"] = 0.5
    fields["environment"] = {"cpu": "X", "water": {"litres": 1}}
    read = record.from_json(json.dumps(fields))
    assert read.phases.parts["pause"] == 0.5
    again = fields_of(read)
    assert (
        again["environment"] == fields["environment"]
        and again["phases"] == fields["phases"]
    )


def test_what_a_newer_writer_added_has_numbers_that_can_be():
    fields = fields_of(make_record(phases={"total": 1.5}))
    fields["environment"] = {"water": math.nan}
    assert fields_of(record.from_json(json.dumps(fields)))["environment"] == {
        "water": None
    }
    fields["phases"]["pause"] = "long"
    (fault,) = faults_of(fields)
    assert fault.startswith("phases.pause is 'long'; ")


@pytest.mark.parametrize(
    "model, unit", [("lm", "words"), ("nmt", "tokens"), ("nmt", "")]
)
def test_a_unit_that_the_workload_does_not_count_is_named(model, unit):
    fields = {**fields_of(make_record(config={"model": model})), "unit": unit}
    (fault,) = faults_of(fields)
    of_no_model = faults_of({**fields, "config": {**fields["config"], "model": []}})
    assert len(of_no_model) == 2 and all(
        line.startswith("config.model is []; ") for line in of_no_model
    )
    assert fault.startswith(f"unit is {unit!r}; expected '") and fault.endswith(
        f"', which --model={model} counts"
    )


@pytest.mark.parametrize("model", FORMER_WORKLOADS)
def test_a_record_of_a_removed_network_is_still_read(model):
    fields = fields_of(make_record(config={"model": model}))
    fields["unit"] = "images"
    assert record.from_json(json.dumps(fields)).config["model"] == model


def test_a_name_that_is_no_utf_8_can_be_printed():
    run = make_record(
        "failed",
        error={"type": "X", "message": "no file a\udcffb, Gr\u00fc\u00dfe \U0001f642"},
    )
    assert (
        record.from_json(run.to_json()).error.message
        == "no file a?b, Gr\u00fc\u00dfe \U0001f642"
    )


def test_what_an_older_record_lacks_is_known_to_be_missing():
    read = changed(make_record(), environment={"cpu": None})
    assert (
        "cpu" not in read.environment.missing
        and {"python", "load"} <= read.environment.missing
    )


def test_what_records_have_in_common_is_kept_once():
    machine = {"cpu": "X", "packages": {"numpy": "2"}, "started": "2026-01-01"}
    texts = [
        make_record(
            environment={**machine, "load": {"others": n / 10, "steal": 0.0}}
        ).to_json()
        for n in (1, 2)
    ]
    kept = {}
    one, two = [record.from_json(text, kept=kept) for text in texts]
    assert (
        one.config is two.config
        and one.environment.packages is two.environment.packages
    )
    assert (one.environment.load.others, two.environment.load.others) == (0.1, 0.2)


def test_a_log_may_tell_the_rate_alone_and_nothing_else_may():
    """Nothing stands for what is not known: no batches, no items, no seconds."""
    told = Throughput(items=None, seconds=None, items_per_second=12.5)
    alone = dataclasses.replace(
        make_record(),
        batches=Batches(),
        throughput=told,
        phases=Phases(total=3.0),
        log_format="seed_trainer",
    )
    assert record.from_json(alone.to_json()) == alone
    with_batches = dataclasses.replace(
        make_record(), throughput=told, log_format="seed_trainer"
    )
    for wrong in (dataclasses.replace(alone, log_format=None), with_batches):
        with pytest.raises(
            record.RecordError, match="throughput.items is null; expected a number"
        ):
            record.from_json(wrong.to_json())
    assert '"log_format"' not in make_record().to_json()


def test_an_error_of_a_check_is_a_fault_of_the_record(monkeypatch):
    def broken(*values):
        raise ZeroDivisionError("no such luck")
        yield

    text = make_record().to_json()
    for name in ("batch_faults", "config_faults", "phase_faults"):
        with monkeypatch.context() as patched:
            patched.setattr(checks, name, broken)
            with pytest.raises(record.RecordError, match="ZeroDivisionError"):
                record.from_json(text)


@pytest.mark.parametrize("value", [[1], {"a": 1}, "1", None, True, -1.0, math.nan])
def test_a_phase_of_a_newer_writer_is_seconds(value):
    fields = json.loads(
        (ROOT / "docs/results/netlab/alone-2-1000mbit.r1.json").read_text()
    )
    for phases in (fields["phases"], fields["workers"]["ranks"][1]["phases"]):
        phases["newer"] = value
        with pytest.raises(record.RecordError, match=r"phases\.newer is "):
            record.from_json(json.dumps(fields))
        del phases["newer"]
