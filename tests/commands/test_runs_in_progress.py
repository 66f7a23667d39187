"""A run that has not ended is not a failed run, for every command that reads records."""

import contextlib
import dataclasses
import json
import subprocess
import sys

import pytest

from rnn_scaling.analysis import folder_rows
from rnn_scaling.commands import compare, history, predict, report
from rnn_scaling.records import folder, lock, record
from rnn_scaling.records.parts import RunError
from tests.support.compared import run
from tests.support.paths import ROOT
from tests.support.scaling_runs import skip_pictures

RATES = (1000.0, 1004.0, 997.0)
ELSEWHERE = "7 1 another-boot"  # a process that this machine does not have
HOLDS = """
import sys
from pathlib import Path
from rnn_scaling.records import lock
with lock.hold(Path(sys.argv[1]), lock.SWEEP_LOCK, "sweep", "wait"):
    print("held", flush=True)
    input()
"""


@contextlib.contextmanager
def hold_folder(place):
    """Let another process hold a folder, like a sweep that runs."""
    words = [sys.executable, "-c", HOLDS, str(place)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, cwd=ROOT, text=True, **pipes) as child:
        assert child.stdout.readline() == "held\n"
        try:
            yield child
        finally:
            child.communicate("\n")


def read_unfinished(process=ELSEWHERE):
    """Return the record of a run that has not ended, or was killed."""
    error = RunError(type="Killed", message="no result", process=process)
    return dataclasses.replace(run(1000.0, status="failed"), error=error)


@pytest.fixture
def place(tmp_path):
    """Create a folder with three runs and the record of an unfinished fourth run."""
    mine = tmp_path / "runs"
    mine.mkdir()
    for number, rate in enumerate(RATES, 1):
        record.write(run(rate), mine / f"x.r{number}.json")
    record.write(read_unfinished(), mine / "x.r4.json")
    return mine


def test_the_lock_decides_whether_a_run_failed(place):
    assert not folder.read(place).running
    with hold_folder(place):
        content = folder.read(place)
        assert [path.name for path in content.running] == ["x.r4.json"]
        assert [file.name for file in content.runs] == [
            f"x.r{k}.json" for k in (1, 2, 3)
        ]
    assert len(folder.read(place).runs) == 4


def test_a_process_without_a_lock_also_counts(place):
    code = (
        "from rnn_scaling.system.processes import alive;"
        "print(alive.identify_this_process(), flush=True); input()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, cwd=ROOT, text=True, **pipes) as child:
        process = child.stdout.readline().strip()
        record.write(read_unfinished(process), place / "x.r4.json")
        assert folder.read(place).running
        child.communicate("\n")
    assert not folder.read(place).running


def test_a_sweep_treats_its_own_runs_as_ended(place):
    with lock.hold(place, lock.SWEEP_LOCK, "sweep", "wait"):
        assert not folder.read(place).running


def test_a_reader_never_stops_a_sweep(place):
    (place / lock.SWEEP_LOCK).write_text("")
    for _ in range(20):
        assert not lock.is_held_by_another(place / lock.SWEEP_LOCK)
        with lock.hold(place, lock.SWEEP_LOCK, "sweep", "wait"):
            pass


def test_no_reader_calls_a_run_in_progress_failed(place, tmp_path, capsys):
    before = tmp_path / "before"
    before.mkdir()
    for number, rate in enumerate(RATES, 1):
        record.write(run(1.001 * rate), before / f"x.r{number}.json")
    with hold_folder(place):
        words = [f"{before}", f"{place}", "--format=json"]
        assert compare.main(words) == 0
        [result] = json.loads(capsys.readouterr().out)["results"]
        assert result["runs"] == [3, 3]
        assert result["notes"] == []
        with skip_pictures():
            assert report.main([str(place)]) == 0
        made = json.loads((place / "report.json").read_text())
        assert made["runs"] == 3
        assert made["running"] == ["x.r4.json"]
        assert made["failures"] == []
        assert len(folder_rows.load(place).left_out) == 1
        kept = tmp_path / "history"
        assert history.main(["add", f"{place}", f"--history={kept}"]) == 0
        assert "x.r4.json" in capsys.readouterr().err
        status = compare.main([f"{before}", f"{place}/x.r4.json"])
        assert (status, "in progress" in capsys.readouterr().err) == (2, True)


def test_a_folder_whose_only_run_is_in_progress(tmp_path, capsys):
    record.write(read_unfinished(), tmp_path / "x.json")
    with hold_folder(tmp_path):
        for main, words in ((report.main, []), (predict.main, ["--num_devices=4"])):
            assert main([str(tmp_path), *words]) in (1, 2)
            assert "has ended" in capsys.readouterr().err
