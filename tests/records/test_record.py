"""Records survive JSON, are written completely or not at all, and have named faults."""

import dataclasses
import errno
import json
import math
import os

import pytest

from rnn_scaling.config import run_config as configs
from rnn_scaling.models.workloads import FORMER_WORKLOADS
from rnn_scaling.records import checks, record
from rnn_scaling.records.parts import Batches, Phases, Throughput
from rnn_scaling.system.files.output_files import write_text
from rnn_scaling.training.state import RunState
from tests.support.paths import ROOT
from tests.support.records import change_record, make_record, read_fields, throughput


@pytest.mark.parametrize(
    "parts",
    [
        {"config": {"model": "lm"}, "unit": "tokens", "flops_per_item": 1 / 3},
        {"batches": {"loss": [4.0, 3.4e38]}},  # it diverged
    ],
)
def test_record_survives_json(tmp_path, parts):
    original = make_record(**parts)
    record.write(original, tmp_path / "run.json")
    assert record.read(tmp_path / "run.json") == original


def test_numbers_that_json_lacks_become_null():
    batches = Batches(loss=(math.nan, math.inf, 1.0))
    text = dataclasses.replace(make_record(), batches=batches).to_json()
    assert json.loads(text)["batches"]["loss"] == [None, None, 1.0]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
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
    "text, reason",
    [
        (b'{"schema": "rnn_scaling.run/1", "status"', "not JSON"),
        (b"[]", "not a run record"),
        (b'{"schema": "rnn_scaling.run/2"}', "rnn_scaling.run/2"),
        (b'{"schema": "rnn_scaling.run/1", "status": "ok"}', "lacks config, error"),
        (
            b'{"schema": "rnn_scaling.run/1", "status": "fine", "error": 0, "config": 0}',
            "fine",
        ),
    ],
)
def test_foreign_and_truncated_files_are_refused_by_name(text, reason, tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(text)
    with pytest.raises(record.RecordError, match=reason) as error:
        record.read(path)
    assert "run.json" in str(error.value) and "\n" not in str(error.value)


def state(readings):
    config = configs.from_flat({"num_warmup_batches": 2, "num_batches": 3})
    return RunState(config, clock=iter(readings).__next__)


def test_phases_sum_to_the_total_and_only_measured_batches_count():
    times = [0.0, 1.0, 3.0, 3.5, 10.5, 11.5, 12.0, 12.5, 13.0, 13.25, 20.0]
    run = state(times)
    run.phases.enter("build")
    run.phases.enter("batches")
    run.timer.start()
    for words in (1000, 1000, 10, 20, 30):
        run.timer.end_step(words, loss=1.0)
    run.phases.enter("teardown")
    result = run.make_record("ok")
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


OLDER_NAMES = {
    "batches": {"items": "words", "tower_items": "tower_words"},
    "throughput": {"items": "words", "items_per_second": "words_per_second"},
}


def make_older_record(fields):
    """Return a record as a version wrote it that counted only words."""
    for part, names in OLDER_NAMES.items():
        for name, older_name in names.items():
            fields[part][older_name] = fields[part].pop(name)
    del fields["unit"], fields["flops_per_item"]
    return fields


def towers(warmup=0, **batches):
    return make_record(
        warmup=warmup,
        batches={"tower_items": [[100]] * 2, "tower_positions": [[120]] * 2, **batches},
    )


def test_an_older_record_that_counts_words_is_its_new_form():
    run = from_fields(make_older_record(read_fields(towers())))
    assert run == towers() and run.unit == "words" and run.flops_per_item is None


def from_fields(fields, **arguments):
    return record.from_json(json.dumps(fields), "run.json", **arguments)


def find_faults(fields, **arguments):
    with pytest.raises(record.RecordError) as error:
        from_fields(fields, **arguments)
    assert str(error.value).startswith("run.json: ") and "\n" not in str(error.value)
    return error.value.faults


def test_all_faults_are_reported_at_once_with_their_paths():
    fields = read_fields(towers())
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
    faults = dict(fault.split("; ") for fault in find_faults(fields))
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
    assert "1 more" in faults["batches.seconds[0] is 0"]
    assert "null" in faults["error is 'no'"]
    message = str(record.RecordError("x", [f"fault {n}" for n in range(7)]))
    assert message.endswith("fault 4. 2 more faults")


def test_faults_of_an_older_record_have_its_names():
    fields = make_older_record(read_fields(towers()))
    fields["batches"]["tower_words"][1] = [99]
    fields["throughput"]["words_per_second"] = 1.0
    words, rate = find_faults(fields)
    assert "batches.tower_words[1] sum to 99" in words
    assert "batches.words[1] is 100" in words
    assert rate.startswith("throughput.words_per_second is 1, ")
    assert rate.endswith("461.5384615")


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
        ("batches", {"seconds": [900.0, 1 / 3]}, "batches.seconds sum to 900.333333 s"),
        ("batches", {"seconds": [0.1, 0.2]}, "phases.measured is 0.333333333 s"),
        ("phases", {"total": 9.0}, "phases sum to 1.93333333 s"),
        ("phases", {"further": 0.25}, "phases sum to 2.18333333 s"),
        ("config", {"learning_rate": math.inf}, "config.learning_rate is inf"),
        ("config", {"of_a_newer_version": 10**400}, "config.of_a_newer_version is 1"),
    ],
)
def test_impossible_values_are_faults(part, change, fault):
    fields = read_fields(change_record(towers(warmup=1), phases=POSSIBLE))
    fields["throughput"] = throughput(fields["batches"])
    assert from_fields(fields).phases.measured == 1 / 3
    fields[part] |= change
    fields["throughput"] = throughput(fields["batches"])
    [line] = find_faults(fields)
    assert line.startswith(fault)


def test_control_characters_are_removed():
    environment = {
        "cpu": "X\x1b[31m\n| y\u202e",
        "topology": "GPU0\x1b[4m\tGPU1\nGPU0\x1b[0m X",
        "new": {"\x07": ["\x9b2J"]},
    }
    error = {"type": "X", "message": "a\nb\x1b]0;title\x07"}
    fields = read_fields(make_record("failed", error=error))
    fields["environment"] = environment
    run = from_fields(fields)
    assert run.error.message == "a b" and run.environment.cpu == "X | y "
    assert run.environment.topology == "GPU0 GPU1\nGPU0 X"
    assert run.environment.extra_fields == {"new": {" ": [""]}}
    # The same characters without escapes; JSON may contain DEL as it is.
    assert record.from_json(json.dumps(fields, ensure_ascii=False)) == run
    for cpu, shown in (
        ("a\x7fb", "a b"),
        ("a\udcffb, Gr\u00fc\u00dfe", "a?b, Gr\u00fc\u00dfe"),
    ):
        text = json.dumps({**fields, "environment": {"cpu": cpu}}, ensure_ascii=False)
        assert record.from_json(text).environment.cpu == shown


def test_derived_values_need_not_be_checked():
    fields = read_fields(towers())
    fields["throughput"]["items"] = 1
    assert (
        record.from_json(json.dumps(fields), check_derived=False).throughput.items == 1
    )
    assert len(find_faults(fields)) == 1


def test_fields_of_newer_versions_are_kept_and_have_possible_numbers():
    fields = read_fields(make_record(phases={"start": 1.0, "total": 1.5}))
    fields["phases"]["pause"] = 0.5
    fields["environment"] = {"cpu": "X", "water": {"litres": math.nan}}
    run = from_fields(fields)
    assert run.phases.parts["pause"] == 0.5
    again = read_fields(run)
    assert again["environment"] == {"cpu": "X", "water": {"litres": None}}
    assert again["phases"] == fields["phases"]


@pytest.mark.parametrize(
    "model, unit", [("lm", "words"), ("nmt", "tokens"), ("nmt", "")]
)
def test_a_unit_that_the_workload_does_not_count_is_a_fault(model, unit):
    fields = {**read_fields(make_record(config={"model": model})), "unit": unit}
    [fault] = find_faults(fields)
    assert fault.startswith(f"unit is {unit!r}; expected '")
    assert fault.endswith(f"', which --model={model} counts")
    lines = find_faults({**fields, "config": {**fields["config"], "model": []}})
    assert len(lines) == 2
    assert all(line.startswith("config.model is []; ") for line in lines)


@pytest.mark.parametrize(
    "option, value",
    [*(("model", name) for name in FORMER_WORKLOADS), ("preset", "seed")],
)
def test_a_former_choice_is_still_read(option, value):
    fields = read_fields(make_record(config={option: value}))
    if option == "model":
        fields["unit"] = "images"
    assert from_fields(fields).config[option] == value


def test_fields_that_an_older_record_lacks_are_missing():
    missing = change_record(
        make_record(), environment={"cpu": None}
    ).environment.missing
    assert "cpu" not in missing and {"python", "load"} <= missing


def test_records_share_equal_parts():
    machine = {"cpu": "X", "packages": {"numpy": "2"}, "started": "2026-01-01"}
    cache = {}
    runs = []
    for load in (0.1, 0.2):
        environment = {**machine, "load": {"others": load, "steal": 0.0}}
        text = make_record(environment=environment).to_json()
        runs.append(record.from_json(text, cache=cache))
    first, second = runs
    assert first.config is second.config
    assert first.environment.packages is second.environment.packages
    assert [run.environment.load.others for run in runs] == [0.1, 0.2]


def test_only_a_log_may_contain_nothing_but_the_rate():
    rate = Throughput(items=None, seconds=None, items_per_second=12.5)
    run = dataclasses.replace(make_record(), throughput=rate, log_format="seed_trainer")
    of_log = dataclasses.replace(run, batches=Batches(), phases=Phases(total=3.0))
    assert record.from_json(of_log.to_json()) == of_log
    for wrong in (run, dataclasses.replace(of_log, log_format=None)):
        with pytest.raises(record.RecordError, match=r"throughput.items is null; "):
            record.from_json(wrong.to_json())
    assert '"log_format"' not in make_record().to_json()


def test_an_exception_in_a_check_is_a_fault(monkeypatch):
    def broken(*values):
        raise ZeroDivisionError
        yield

    text = make_record().to_json()
    for name in ("find_batch_faults", "find_config_faults", "find_phase_faults"):
        with monkeypatch.context() as patched:
            patched.setattr(checks, name, broken)
            with pytest.raises(record.RecordError, match="ZeroDivisionError"):
                record.from_json(text)


@pytest.mark.parametrize("value", [[1], None, True, -1.0])
def test_a_phase_of_a_newer_version_is_seconds(value):
    path = ROOT / "docs/results/netlab/alone-2-1000mbit.r1.json"
    fields = json.loads(path.read_text())
    for phases in (fields["phases"], fields["workers"]["ranks"][1]["phases"]):
        phases["newer"] = value
        with pytest.raises(record.RecordError, match=r"phases\.newer is "):
            from_fields(fields)
        del phases["newer"]
