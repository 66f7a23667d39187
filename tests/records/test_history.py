"""Entries of a history on disk: written once, whole or not at all, and noticed when they were changed."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading

import pytest

from rnn_scaling.records import history
from rnn_scaling.system.files import output_files
from tests.support import histories


def one_file(folder):
    [path] = folder.glob("*.json")
    return path


def test_an_entry_is_read_as_it_was_written(tmp_path):
    made = histories.entry(3, [1000.123456789, 999.0], label="two words")
    path = history.write(made, tmp_path)
    assert path.name.startswith("20260104T000000Z-000000030000-")
    assert history.read(tmp_path) == history.History((made,))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace("1000.0", "1100.0"), "edited"),
        (lambda text: text.replace("history/1", "history/2"), "newer"),
        (lambda text: text[:200], "not JSON"),
        (lambda text: text + "\udcff", "not UTF-8"),
    ],
)
def test_a_changed_file_is_left_out_in_one_line(change, reason, tmp_path):
    histories.write(tmp_path, [1000.0])
    changed = history.write(histories.entry(1), tmp_path)
    changed.write_bytes(change(changed.read_text()).encode(errors="surrogateescape"))
    found = history.read(tmp_path)
    assert len(found.entries) == 1
    [line] = found.left_out
    assert str(changed) in line and reason in line and "\n" not in line


def test_other_spelling_of_the_same_content_is_no_edit(tmp_path):
    histories.write(tmp_path, [1000.0])
    path = one_file(tmp_path)
    path.write_bytes(
        json.dumps(json.loads(path.read_text())).replace(", ", ",\r\n").encode()
    )
    assert len(history.read(tmp_path).entries) == 1


def test_fields_of_a_later_version_are_kept(tmp_path):
    made = histories.entry(1, further={"later": [1, 2]})
    history.write(made, tmp_path)
    assert history.read(tmp_path).entries == (made,)


@pytest.mark.parametrize(
    "fields",
    [
        {"measured": "yesterday"},
        {"commit": "--output=x"},
        {
            "configurations": (
                history.Configuration(
                    options={"num_devices": "2"},
                    unit="words",
                    num_devices=1,
                    rates=(1.0,),
                ),
            )
        },
        {
            "configurations": (
                history.Configuration(
                    options={}, unit="words", num_devices=1, rates=()
                ),
            )
        },
        {
            "configurations": (
                history.Configuration(
                    options={}, unit="words", num_devices=1, rates=(-1.0,)
                ),
            )
        },
    ],
)
def test_what_no_add_writes_is_left_out(fields, tmp_path):
    history.write(histories.entry(1, **fields), tmp_path)
    found = history.read(tmp_path)
    assert not found.entries and len(found.left_out) == 1


def test_other_json_is_one_line_and_an_empty_folder_none(tmp_path):
    assert history.read(tmp_path) == history.History(())
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text('{"schema": "rnn_scaling.run/1"}')
    (tmp_path / "history.json").write_text('{"schema": "rnn_scaling.history_report/1"}')
    found = history.read(tmp_path)
    assert (
        not found.entries
        and len(found.left_out) == 1
        and "2 JSON files" in found.left_out[0]
    )


def test_a_run_counts_once_though_two_entries_hold_it(tmp_path):
    first = histories.entry(1, [1000.0, 1001.0])
    history.write(first, tmp_path)
    part = dataclasses.replace(
        first.configurations[0],
        rates=(1001.0, 1002.0),
        metrics={"accuracy": (0.1, 0.2)},
    )
    history.write(
        dataclasses.replace(first, label="again", configurations=(part,)), tmp_path
    )
    found = history.read(tmp_path).entries
    assert sorted(rate for each in found for rate in each.configurations[0].rates) == [
        1000.0,
        1001.0,
        1002.0,
    ]
    assert all(
        len(values) == len(c.rates)
        for each in found
        for c in each.configurations
        for values in c.metrics.values()
    )


def test_a_writer_that_is_killed_leaves_no_entry(tmp_path):
    histories.write(tmp_path, [1000.0])
    child = os.fork()
    if not child:
        output_files.os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
        history.write(histories.entry(1), tmp_path)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    found = history.read(tmp_path)
    assert (
        len(found.entries) == 1
        and not found.left_out
        and len(os.listdir(tmp_path)) == 2
    )


def test_writers_at_once_lose_nothing(tmp_path):
    entries = [histories.entry(number % 5) for number in range(20)]
    threads = [
        threading.Thread(target=history.write, args=(made, tmp_path))
        for made in entries
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(history.read(tmp_path).entries) == len(list(tmp_path.iterdir())) == 5
