"""The rates that are kept for runs: where, how they are read back, and which one a run gets."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from rnn_scaling.machine import peaks
from rnn_scaling.machine.peaks import Peak, Place

CPU = {"cpu": "Some CPU", "cpu_vector_units": ["avx2", "fma"], "gpus": []}
HERE = Place("Some CPU", ("avx2", "fma"), True, 1, "float32")
ONE, FOUR = Peak(HERE, 1, 100.0, 90.0, 110.0), Peak(HERE, 4, 300.0, 290.0, 310.0)


def test_the_file_lies_in_the_user_s_cache():
    assert peaks.path({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/rnn_scaling/peaks.json")
    assert peaks.path({"HOME": "/h"}) == Path("/h/.cache/rnn_scaling/peaks.json")
    assert peaks.path({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == Path("/h/.cache/rnn_scaling/peaks.json")
    assert peaks.path({"HOME": "relative"}) is None and peaks.read(None) == []


def test_what_was_measured_now_replaces_what_was_known_of_the_same_devices(tmp_path):
    file = tmp_path / "peaks.json"
    file.write_text(peaks.as_text([], [ONE, FOUR]))
    assert peaks.read(file) == [ONE, FOUR]
    other = dataclasses.replace(ONE, place=dataclasses.replace(HERE, dtype="bfloat16"), flops_per_second=50.0)
    now = dataclasses.replace(FOUR, flops_per_second=299.0)
    file.write_text(peaks.as_text(peaks.read(file), [now, other]))
    assert peaks.read(file) == [ONE, now, other]


def test_devices_that_were_not_measured_together_count_as_so_many_alone():
    known = [ONE, FOUR]
    assert [peaks.flops_per_second(known, HERE, n) for n in (1, 2, 4, 5)] == [100.0, 200.0, 300.0, 500.0]
    assert peaks.flops_per_second([FOUR], HERE, 2) is None and peaks.flops_per_second([], HERE, 1) is None
    assert peaks.flops_per_second(known, None, 1) is None


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
    assert peaks.place(CPU, "CPU", True, 1, "float32") == HERE
    assert peaks.place({**CPU, "cpu_vector_units": None}, "CPU", True, 1, "float32").vector_units == ()
    h100, other = {"name": "H100"}, {"name": "A100"}
    where = Place("H100", (), False, 0, "bfloat16")
    assert peaks.place({**CPU, "gpus": [h100, h100]}, "GPU", True, 1, "bfloat16") == where
    assert peaks.place({**CPU, "gpus": [h100, other]}, "GPU", True, 1, "float32") is None
    assert peaks.place(CPU, "GPU", True, 1, "float32") is None


WHOLE = json.loads(peaks.as_text([], [ONE]))
(ENTRY,) = WHOLE["peaks"]


@pytest.mark.parametrize(
    "content",
    [
        *("", "[", "null", "[]", "{}", "[" * 100_000, '"x"'),
        json.dumps({**WHOLE, "schema": "another/1"}),
        json.dumps({**WHOLE, "peaks": {"a": 1}}),
        *(
            json.dumps({**WHOLE, "peaks": [{**ENTRY, **change}]})
            for change in (
                {"flops_per_second": 0},
                {"flops_per_second": -1},
                {"flops_per_second": "fast"},
                {"flops_per_second": float("nan")},
                {"flops_per_second": 1e400},
                {"lower_quartile": None},
                {"num_devices": None},
                {"num_devices": float("inf")},
                {"place": None},
                {"place": {}},
                {"place": {**ENTRY["place"], "more": 1}},
                {"place": {**ENTRY["place"], "vector_units": 3}},
            )
        ),
    ],
)
def test_a_broken_file_is_as_if_nothing_was_measured(tmp_path, content):
    file = tmp_path / "peaks.json"
    file.write_text(content)
    assert peaks.read(file) == []


def test_a_file_that_cannot_be_read_is_as_if_nothing_was_measured(tmp_path):
    assert peaks.read(tmp_path / "none.json") == [] and peaks.read(tmp_path) == []
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert peaks.read(tmp_path / "bytes") == []
    (tmp_path / "two").write_text(json.dumps({**WHOLE, "peaks": [3, ENTRY]}))
    assert peaks.read(tmp_path / "two") == [ONE]  # a whole entry beside a broken one stays
