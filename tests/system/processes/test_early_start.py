"""Processes that start before their turns: they wait, and notice the end of another one."""

import os
import signal
import sys
import time

import pytest

from rnn_scaling.system.processes import process
from rnn_scaling.system.processes.early_start import EarlyProcess
from tests.support.faults import wait_until

CODE = """
import os, sys, time
from rnn_scaling.system.processes import early_start
name, folder = sys.argv[1:]
def log(event):
    with open(f"{folder}/log", "a") as file:
        file.write(f"{name} {event}\\n")
log("starts")
while not os.path.exists(f"{folder}/load"):
    time.sleep(0.01)
log("has loaded")
early_start.wait_for_turn()
log("begins")
early_start.wait_for_following()
log("measures")
"""


def command(tmp_path, name, code=CODE):
    return [sys.executable, "-c", code, name, str(tmp_path)]


def log(tmp_path):
    path = tmp_path / "log"
    return path.read_text().splitlines() if path.exists() else []


def end_of(early):
    ended = process.run_together([early.child], 0.0)
    return ended.returncode, ended.lines


def test_a_process_waits_for_its_turn_and_measures_when_the_next_has_loaded(tmp_path):
    first = EarlyProcess(command(tmp_path, "a"))
    second = first.begin(command(tmp_path, "b", CODE.replace("/load", "/load b")))
    (tmp_path / "load").touch()
    wait_until(lambda: "a begins" in log(tmp_path), "the first one's turn")
    time.sleep(0.1)  # a process that did not wait would measure now
    (tmp_path / "load b").touch()
    assert end_of(first) == (0, [])
    events = [event for event in log(tmp_path) if not event.endswith("starts")]
    assert events == ["a has loaded", "a begins", "b has loaded", "a measures"]
    assert second.begin(None) is None and end_of(second) == (0, [])
    assert log(tmp_path)[-2:] == ["b begins", "b measures"]


def test_nobody_waits_for_a_process_that_ends_before_its_turn_and_its_end_is_told_in_its_turn(
    tmp_path,
):
    (tmp_path / "load").touch()
    first = EarlyProcess(command(tmp_path, "a"))
    second = first.begin(
        command(tmp_path, "b", "import sys; sys.exit('error: no such luck')")
    )
    assert end_of(first) == (0, []) and log(tmp_path)[-1] == "a measures"
    assert second.begin(command(tmp_path, "c")) is None, (
        "what has ended has no follower"
    )
    assert end_of(second) == (1, ["error: no such luck"])
    assert not any(event.startswith("c") for event in log(tmp_path))


@pytest.mark.parametrize("ending", ["close", "the parent's end"])
def test_a_process_whose_turn_does_not_come_ends_without_it(ending, tmp_path):
    early = EarlyProcess(command(tmp_path, "a"))
    (tmp_path / "load").touch()
    wait_until(lambda: "a has loaded" in log(tmp_path), "it waits")
    if ending == "close":
        early.close()
        assert early.child.poll_status() == -signal.SIGKILL
    else:
        early.child.stdin.close()
        assert end_of(early)[0] == 130
    assert log(tmp_path)[-1] == "a has loaded"


def test_a_process_that_cannot_be_started_now_is_none(tmp_path, monkeypatch):
    (tmp_path / "load").touch()
    first = EarlyProcess(command(tmp_path, "a"))

    def full(*_, **__):
        raise BlockingIOError(11, os.strerror(11))

    with monkeypatch.context() as patch:
        patch.setattr(process.subprocess, "Popen", full)
        assert first.begin(command(tmp_path, "b")) is None
    assert end_of(first) == (0, [])
