"""A folder is read even if it contains bad files, which are listed with a remedy."""

import json
import os

import pytest

from rnn_scaling.records import folder, record
from tests.support.records import make_record, read_fields

STARTED = {"started": "2026-01-01T00:00:00"}


def write(path, fields):
    path.write_text(fields if isinstance(fields, str) else json.dumps(fields))


def write_bad_file(path, kind):
    """Write a file that no command can use."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "nothing":
        path.symlink_to("nowhere")
    else:
        path.write_bytes(kind)


@pytest.mark.parametrize(
    "kind, reason",
    [
        ("pipe", "a named pipe; expected a regular file"),
        ("folder", "a folder; expected a regular file"),
        ("nothing", "No such file or directory"),
        (b"", "not JSON (Expecting value at line 1); expected a run record"),
        (b"\xff\xfe", "not UTF-8 text; expected a run record"),
        (b"[" * 100_000, "nested too deeply; expected a run record"),
        (
            b"[1, 2]",
            "not a run record: expected a JSON object with schema 'rnn_scaling.run/1', got a list",
        ),
    ],
)
def test_one_bad_file_stops_nothing(tmp_path, kind, reason):
    record.write(make_record(), tmp_path / "good.json")
    write_bad_file(tmp_path / "bad\x1b.json", kind)
    files = folder.read(tmp_path)
    assert [run.name for run in files.runs] == ["good.json"]
    assert files.left_out == (f"{tmp_path}/bad\\x1b.json: {reason}",)


def test_file_names_that_are_not_text_differ(tmp_path):
    for name in (b"\xff.json", b"\xfe.json", b"a\nb.json"):
        with open(os.fsencode(tmp_path) + b"/" + name, "w") as file:
            file.write(make_record(seconds=[0.1, 1.0 + name[0]]).to_json())
    names = {run.name for run in folder.read(tmp_path).runs}
    assert names == {r"\xff.json", r"\xfe.json", r"a\nb.json"}


def test_an_edited_record_is_listed_with_a_remedy(tmp_path):
    fields = read_fields(make_record())
    fields["throughput"]["items_per_second"] *= 2
    write(tmp_path / "a.json", fields)
    [line] = folder.read(tmp_path).left_out
    path = "throughput.items_per_second is 923.07"
    assert line.startswith(f"{tmp_path}/a.json: {path}")
    assert line.endswith(folder.REPEAT_REMEDY)


@pytest.mark.parametrize(
    "change, copies",
    [
        ({}, 1),
        # No two runs start at the same time and have equal batches.
        ({"config": {"num_devices": 2}}, 1),
        # All batches are equal to the last digit.
        ({"environment": {"started": "2026-01-02"}}, 1),
        ({"environment": {"started": "2026-01-02"}, "config": {"num_devices": 2}}, 0),
        ({"batches": {"seconds": [0.1, 0.2]}}, 0),
    ],
)
def test_an_edited_copy_does_not_count(tmp_path, change, copies):
    run = make_record(environment=STARTED)
    fields = read_fields(run)
    for part, values in change.items():
        fields[part] |= values
    fields["throughput"]["seconds"] = sum(fields["batches"]["seconds"])
    fields["throughput"]["items_per_second"] = 200 / fields["throughput"]["seconds"]
    record.write(run, tmp_path / "a.json")
    write(tmp_path / "b.json", fields)
    files = folder.read(tmp_path)
    assert (len(files.runs), len(files.left_out)) == (2 - copies, copies)
    for line in files.left_out:
        assert line.startswith(f"{tmp_path}/b.json: this is a copy of a.json, ")


def test_single_batches_may_take_the_same_time_by_chance(tmp_path):
    for name, started in (("a", None), ("b", None), ("c", "2026"), ("d", "2026")):
        run = make_record(seconds=[0.5], environment={"started": started})
        record.write(run, tmp_path / f"{name}.json")
    names = [run.name for run in folder.read(tmp_path).runs]
    assert names == ["a.json", "b.json", "c.json"]
