"""Entries of a history are written once and completely, and changes are detected."""

import dataclasses
import json
import os
import signal
import threading

import pytest

from rnn_scaling.records import history
from rnn_scaling.system.files import output_files
from tests.support import histories


def find_only_file(folder):
    [path] = folder.glob("*.json")
    return path


def test_an_entry_is_read_as_it_was_written(tmp_path):
    entry = histories.entry(3, [1000.123456789, 999.0], label="two words")
    path = history.write(entry, tmp_path)
    assert path.name.startswith("20260104T000000Z-000000030000-")
    assert history.read(tmp_path) == history.History((entry,))


@pytest.mark.parametrize(
    "change, reason",
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
    result = history.read(tmp_path)
    assert len(result.entries) == 1
    [line] = result.left_out
    assert str(changed) in line and reason in line and "\n" not in line


def test_another_layout_of_the_same_content_is_not_an_edit(tmp_path):
    histories.write(tmp_path, [1000.0])
    path = find_only_file(tmp_path)
    text = json.dumps(json.loads(path.read_text()))
    path.write_bytes(text.replace(", ", ",\r\n").encode())
    assert len(history.read(tmp_path).entries) == 1


def configuration(rate=1.0, **options):
    rates = () if rate is None else (rate,)
    return history.Configuration(
        options=options, unit="words", num_devices=1, rates=rates
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"measured": "yesterday"},
        {"commit": "--output=x"},
        {"configurations": (configuration(num_devices="2"),)},
        {"configurations": (configuration(None),)},
        {"configurations": (configuration(-1.0),)},
    ],
)
def test_an_implausible_entry_is_left_out(fields, tmp_path):
    history.write(histories.entry(1, **fields), tmp_path)
    result = history.read(tmp_path)
    assert not result.entries and len(result.left_out) == 1


def test_other_json_files_are_counted_in_one_line(tmp_path):
    assert history.read(tmp_path) == history.History(())
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text('{"schema": "rnn_scaling.run/1"}')
    (tmp_path / "history.json").write_text('{"schema": "rnn_scaling.history_report/1"}')
    result = history.read(tmp_path)
    [line] = result.left_out
    assert not result.entries and "2 JSON files" in line


def test_a_run_in_two_entries_counts_once(tmp_path):
    first = histories.entry(1, [1000.0, 1001.0])
    history.write(first, tmp_path)
    repeated = dataclasses.replace(
        first.configurations[0],
        rates=(1001.0, 1002.0),
        metrics={"accuracy": (0.1, 0.2)},
    )
    second = dataclasses.replace(first, label="again", configurations=(repeated,))
    history.write(second, tmp_path)
    rates = []
    for entry in history.read(tmp_path).entries:
        [each] = entry.configurations
        rates += each.rates
        assert all(len(v) == len(each.rates) for v in each.metrics.values())
    assert sorted(rates) == [1000.0, 1001.0, 1002.0]


def test_a_writer_that_is_killed_leaves_no_entry(tmp_path):
    histories.write(tmp_path, [1000.0])
    child = os.fork()
    if not child:
        output_files.os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
        history.write(histories.entry(1), tmp_path)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    result = history.read(tmp_path)
    assert len(result.entries) == 1 and not result.left_out
    assert len(os.listdir(tmp_path)) == 2  # the entry and a temporary file


def test_concurrent_writers_lose_nothing(tmp_path):
    entries = [histories.entry(number % 5) for number in range(20)]
    threads = [
        threading.Thread(target=history.write, args=(entry, tmp_path))
        for entry in entries
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(history.read(tmp_path).entries) == len(list(tmp_path.iterdir())) == 5
