"""Sweeps with the faulty trainer, in this process or as one of their own, and what they must leave."""

import os
from unittest import mock

from rnn_scaling.commands import sweep
from rnn_scaling.records import record
from rnn_scaling.system import entry
from rnn_scaling.system.processes import process
from tests.support.faults import (
    SMALL,
    is_alive,
    list_logged,
    list_started_pids,
    make_forking_subprocess,
    make_trainer_words,
    of_words,
    plant,
    wait_until,
)
from tests.support.stand_in_forks import Fork

ONE, TWO, THREE = (f"cudnn_lstm-independent-{n}" for n in (1, 2, 3))
THREE_RUNS = [*SMALL, "--num_devices=1,2,3"]


def add_one_repeat(words):
    """Add --repeats=1 unless the test sets --repeats."""
    return (
        words
        if any(word.startswith("--repeats") for word in words)
        else [*words, "--repeats=1"]
    )


def start(tmp_path, *words, name="sweep", die_at="never", **faults):
    """Start a sweep with the faulty trainer in a fork of this process."""
    plant(tmp_path / "faults", **faults)
    words = [
        str(tmp_path / "faults"),
        name,
        die_at,
        f"--out={tmp_path}/out",
        *add_one_repeat(words),
    ]
    return Fork(lambda words: entry.leave(lambda: of_words(words)), words, os.environ)


def go(tmp_path, *words, **faults):
    """Run a sweep in this process, with forks of the faulty trainer."""
    tmp_path.mkdir(exist_ok=True)
    plant(tmp_path / "faults", **faults)
    with mock.patch.object(process, "subprocess", make_forking_subprocess()):
        return sweep.main(
            [f"--out={tmp_path}/out", *add_one_repeat(words)],
            trainer=make_trainer_words(tmp_path / "faults"),
        )


def records(tmp_path):
    paths = sorted((tmp_path / "out").glob("*.json"))
    return {
        path.stem: record.read(path) for path in paths if path.name != "report.json"
    }


def check_nothing_is_running(tmp_path):
    for pid in list_started_pids(tmp_path / "faults"):
        wait_until(lambda pid=pid: not is_alive(pid), f"{pid} is gone")


def check_resume(tmp_path, *words, ran_twice=()):
    """Check that the same command finishes the sweep.

    Every run must have finished exactly once.
    """
    check_nothing_is_running(tmp_path)
    finished = {
        label: (tmp_path / "out" / f"{label}.json").read_bytes()
        for label in list_ok_labels(tmp_path)
    }
    assert go(tmp_path, *words) == 0
    labels = [ONE, TWO, THREE]
    assert sorted(list_logged(tmp_path / "faults", "finish")) == labels
    starts = list_logged(tmp_path / "faults", "start")
    assert {label for label in labels if starts.count(label) > 1} <= set(ran_twice)
    assert {held.status for held in records(tmp_path).values()} == {"ok"}
    assert list(records(tmp_path)) == labels
    for label, content in finished.items():
        assert (tmp_path / "out" / f"{label}.json").read_bytes() == content
    assert sorted(os.listdir(tmp_path / "out")) == [
        ".sweep.lock",
        *(f"{label}.json" for label in labels),
    ]


def list_ok_labels(tmp_path):
    if not (tmp_path / "out").exists():
        return []
    return [label for label, held in records(tmp_path).items() if held.status == "ok"]
