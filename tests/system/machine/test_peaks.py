"""Stored peak rates: their file, how it is read, and how a run's rate is selected."""

import dataclasses
import json
from pathlib import Path

import pytest

from rnn_scaling.records import record
from rnn_scaling.system.machine import peaks
from rnn_scaling.system.machine.environment import read_environment
from rnn_scaling.system.machine.peaks import DeviceKind, Peak
from rnn_scaling.training.state import RunState
from tests.support.configs import resolve

CPU = {"cpu": "Some CPU", "cpu_vector_units": ["avx2", "fma"], "gpus": []}
HERE = DeviceKind("Some CPU", ("avx2", "fma"), True, 1, "float32")
ONE, FOUR = Peak(HERE, 1, 100.0, 90.0, 110.0), Peak(HERE, 4, 300.0, 290.0, 310.0)


def test_the_file_lies_in_the_user_s_cache():
    assert peaks.find_path({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path(
        "/c/rnn_scaling/peaks.json"
    )
    assert peaks.find_path({"HOME": "/h"}) == Path("/h/.cache/rnn_scaling/peaks.json")
    assert peaks.find_path({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == Path(
        "/h/.cache/rnn_scaling/peaks.json"
    )
    assert peaks.find_path({"HOME": "relative"}) is None and peaks.read(None) == []


def test_what_was_measured_now_replaces_what_was_known_of_the_same_devices(tmp_path):
    file = tmp_path / "peaks.json"
    file.write_text(peaks.format_peaks([], [ONE, FOUR]))
    assert peaks.read(file) == [ONE, FOUR]
    other = dataclasses.replace(
        ONE, place=dataclasses.replace(HERE, dtype="bfloat16"), flops_per_second=50.0
    )
    now = dataclasses.replace(FOUR, flops_per_second=299.0)
    file.write_text(peaks.format_peaks(peaks.read(file), [now, other]))
    assert peaks.read(file) == [ONE, now, other]


@pytest.mark.parametrize(
    "change",
    [
        {"device": "Another"},
        {"vector_units": ("avx2",)},
        {"onednn": False},
        {"cores_per_device": 2},
        {"dtype": "float16"},
    ],
)
def test_every_thing_that_decides_a_rate_parts_it(change):
    assert peaks.flops_per_second([ONE], dataclasses.replace(HERE, **change), 1) is None


def test_the_place_of_a_run():
    assert peaks.find_device_kind(CPU, "CPU", True, 1, "float32") == HERE
    assert (
        peaks.find_device_kind(
            {**CPU, "cpu_vector_units": None}, "CPU", True, 1, "float32"
        ).vector_units
        == ()
    )
    h100, other = {"name": "H100"}, {"name": "A100"}
    where = DeviceKind("H100", (), False, 0, "bfloat16")
    assert (
        peaks.find_device_kind(
            {**CPU, "gpus": [h100, h100]}, "GPU", True, 1, "bfloat16"
        )
        == where
    )
    assert (
        peaks.find_device_kind(
            {**CPU, "gpus": [h100, other]}, "GPU", True, 1, "float32"
        )
        is None
    )
    assert peaks.find_device_kind(CPU, "GPU", True, 1, "float32") is None


WHOLE = json.loads(peaks.format_peaks([], [ONE]))
[ENTRY] = WHOLE["peaks"]


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": "another/1"},
        {"peaks": {"a": 1}},
        {"peaks": [{**ENTRY, "flops_per_second": 0}]},
        {"peaks": [{**ENTRY, "flops_per_second": float("nan")}]},
        {"peaks": [{**ENTRY, "place": {**ENTRY["place"], "device": ["Some CPU"]}}]},
    ],
)
def test_a_broken_entry_is_as_if_nothing_was_measured(tmp_path, changes):
    file = tmp_path / "peaks.json"
    file.write_text(json.dumps({**WHOLE, **changes}))
    assert peaks.read(file) == []


def test_a_broken_file_is_as_if_nothing_was_measured(tmp_path):
    file = tmp_path / "peaks.json"
    assert peaks.read(file) == [] and peaks.read(tmp_path) == []
    for content in (b"", b"{}", b"[" * 100_000, b"\xff\xfe"):
        file.write_bytes(content)
        assert peaks.read(file) == []
    # A whole entry beside a broken one stays.
    file.write_text(json.dumps({**WHOLE, "peaks": [3, ENTRY]}))
    assert peaks.read(file) == [ONE]


def test_a_run_gets_what_its_devices_reach_together(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gpus = [
        Peak(DeviceKind("H100", (), False, 0, "float32"), n, 1000.0 * n, 1.0, 1.0)
        for n in (1, 2)
    ]
    file = peaks.find_path()
    file.parent.mkdir()
    file.write_text(peaks.format_peaks([ONE, FOUR], gpus))
    run = {
        "device_type": "CPU",
        "onednn": True,
        "devices": ["a", "b", "c", "d"],
        "cpu_affinity": [0, 1, 2, 3],
    }

    def reached(gpus=(), cores=1, dtype="float32", **changes):
        environment = {**CPU, "gpus": [*gpus]}
        return peaks.run_peak(environment, {**run, **changes}, cores, dtype)

    assert reached() == 300.0 and reached(devices=["a", "b"]) == 200.0
    assert reached(cpu_affinity=[0, 1]) == 200.0  # four towers on two cores
    for other in ({"dtype": "bfloat16"}, {"cores": 2}, {"onednn": False}):
        assert reached(**other) is None
    assert peaks.run_peak(CPU, {}, 1, "float32") is None  # it had no devices yet
    card = {"name": "H100", "index": "0"}
    on_gpus = {"device_type": "GPU", "devices": ["a", "b"]}
    assert reached([card, card], **on_gpus) == 2000.0
    assert reached([card], **on_gpus) == 1000.0  # logical GPUs of one real one


def test_a_record_holds_the_rate_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    state = RunState(resolve({"num_devices": 2, "compute_dtype": "bfloat16"}))
    state.resolved.update(
        device_type="CPU", onednn=True, devices=["a", "b"], cpu_affinity=[0, 1]
    )
    assert state.make_record("failed").resolved.peak_flops_per_second is None
    where = peaks.find_device_kind(read_environment(), "CPU", True, 1, "bfloat16")
    peaks.find_path().parent.mkdir()
    peaks.find_path().write_text(
        peaks.format_peaks([], [Peak(where, 2, 1.5e11, 1e11, 2e11)])
    )
    read_back = record.from_json(state.make_record("failed").to_json())
    assert read_back.resolved.peak_flops_per_second == 1.5e11
    assert read_back.memory is None
    state.keep_memory([3, 4])
    memory = record.from_json(state.make_record("failed").to_json()).memory
    assert memory.peak_device_bytes == (3, 4) and memory.peak_process_bytes > 2**20
