"""history add, import, show and check: output, files, exit status and one-line errors."""

import csv
import dataclasses
import functools
import json
import os
import sys

import pytest

from rnn_scaling import Recorder
from rnn_scaling.analysis.interval_kinds import Note
from rnn_scaling.commands import history, sweep
from rnn_scaling.records import history as records
from rnn_scaling.records import own_files
from rnn_scaling.reports.wording import MARKS
from rnn_scaling.system.machine import commits
from tests.support import histories
from tests.support.compared import write


@pytest.fixture
def go(run_command, tmp_path, monkeypatch):
    """Return a function that runs the command in tmp_path."""
    monkeypatch.chdir(tmp_path)
    # The folder for temporary files may lie in a checkout.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    commits.count_commits.cache_clear()
    return functools.partial(run_command, history)


def test_results_are_added_once(go, tmp_path):
    write(tmp_path / "mine", [1000.0, 1001.0])
    status, out, err = go("add", "mine", "--label=a b")
    assert (status, err) == (0, "") and "2 runs of 01234567" in out
    before = {path: path.read_bytes() for path in (tmp_path / "history").iterdir()}
    status, out, _ = go("add", "mine", "--label=another")
    assert status == 0 and "already" in out
    write(tmp_path / "mine", [1000.0, 1001.0, 1002.0])
    status, out, _ = go("add", "mine")
    assert status == 0 and "1 run of" in out
    after = {path: path.read_bytes() for path in (tmp_path / "history").iterdir()}
    assert len(after) == 2 and after.items() > before.items()


def test_old_folders_are_imported_with_their_subfolders(go, tmp_path):
    write(tmp_path / "old/a", [1000.0])
    write(tmp_path / "old/b/c", [1010.0])
    assert go("add", "old")[0] == 2
    assert go("import", "old", "--history=h")[0] == 0
    assert len(os.listdir(tmp_path / "h")) == 2


def test_a_commit_is_named(go, tmp_path):
    write(tmp_path / "mine", [1000.0], environment={"commit": None})
    status, _, err = go("add", "mine", "--commit=HEAD")
    assert status == 2 and err.count("\n") == 1 and "--commit=HEAD" in err
    _, out, _ = go("add", "mine", "--history=without")
    assert "--commit" in out
    [*_, last] = histories.repository(tmp_path, 2)
    assert go("add", "mine", "--commit=HEAD")[0] == 0
    [path] = (tmp_path / "history").iterdir()
    assert json.loads(path.read_text())["commit"]["hash"] == last


def test_show_writes_files_that_say_whose_they_are(go, tmp_path):
    histories.write(tmp_path / "history", [1000.0] * 20 + [930.0] * 5)
    status, out, err = go("show", "--output=out")
    assert (status, err) == (0, "") and "-7." in out
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == ["history.csv", "history.html", "history.json", "history.png"]
    assert all(own_files.is_own(tmp_path / "out" / name) for name in files)
    content = json.loads((tmp_path / "out/history.json").read_text())
    [change_point] = content["curves"][0]["change_points"]
    assert change_point["first"] == 20 and change_point["found"] <= 22
    with open(tmp_path / "out/history.csv", newline="") as file:
        marks = [line["change_point"] for line in csv.DictReader(file)]
    assert marks.index("True") == 20 and len(marks) == 25
    # The files that `show` has written lie among the entries.
    assert go("show")[::2] == go("show")[::2] == (0, "")


def test_disturbed_entries_are_marked_and_counted(go, tmp_path):
    built = histories.entries([1000.0] * 20 + [800.0, 1000.0, 930.0, 930.0, 930.0])
    [part] = built[20].configurations
    part = dataclasses.replace(part, loads=(0.0, 0.3, 0.0))
    built[20] = dataclasses.replace(built[20], configurations=(part,))
    for entry in built:
        records.write(entry, tmp_path / "history")
    status, out, err = go("show")
    assert (status, err) == (0, "")
    assert f"24 + 1{MARKS[Note.DISTURBED]}" in out
    content = json.loads((tmp_path / "history/history.json").read_text())
    points = content["points"]
    assert "history-left-out" in [each["kind"] for each in content["statements"]]
    assert [k for k, point in enumerate(points) if point["disturbed"]] == [20]
    assert points[19]["load"] is None
    assert points[20]["load"] == 0.3
    assert [k for k, point in enumerate(points) if point["change_point"]] == [22]


@pytest.mark.parametrize("last, status", [(1000.0, 0), (900.0, 1), (950.0, 2)])
def test_exit_status_of_check(last, status, go, tmp_path):
    histories.write(tmp_path / "history", [1000.0] * 20 + [last])
    got, out, err = go("check", "--max_regression=5%")
    assert (got, err) == (status, "") and out.splitlines()[-1].startswith("result: ")
    assert go("check", "history", "--format=markdown")[1].startswith("**")
    [result] = json.loads(go("check", "--format=json")[1])["results"]
    assert result["gate"] == ["ok", "regression", "cannot judge"][status]


def test_every_command_takes_the_folder_as_history(go, tmp_path):
    histories.write(tmp_path / "kept", [1000.0] * 20)
    for name in ("check", "show"):
        named = go(name, "--history=kept")
        assert named[0] == 0
        assert go(name, "kept") == named
        assert go(name, "kept", "--history=kept") == named
        status, _, err = go(name, "kept", "--history=other")
        assert status == 2 and "--history=other" in err
    write(tmp_path / "mine", [1000.0])
    assert go("add", "mine", "--history=kept")[0] == 0


def test_a_program_of_ones_own_has_the_commit_of_its_folder(go, tmp_path):
    [*_, last] = histories.repository(tmp_path, 2)
    with Recorder(tmp_path / "mine.json", num_warmup_batches=0) as recorder:
        recorder.step(items=3)
    (tmp_path / "program.py").write_text("print('100 images/s')\n" * 3)
    program = f"--trainer={sys.executable} program.py"
    words = ["--unit=images", "--log_format=regex:{number} images/s", "--repeats=1"]
    assert sweep.main([program, "--num_devices=1", "--out=swept", *words]) == 0
    for folder in (".", "swept"):
        assert go("add", folder, f"--history=of-{folder}")[0] == 0
        [path] = (tmp_path / f"of-{folder}").iterdir()
        assert json.loads(path.read_text())["commit"]["hash"] == last


@pytest.mark.parametrize(
    "words", [["show", "nothing"], ["show", "others"], ["add", "empty"], ["remove"]]
)
def test_refusals_have_one_line(words, go, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "others").mkdir()
    (tmp_path / "others/a.json").write_text("[]")
    status, out, err = go(*words)
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert (status, out, len(errors)) == (2, "", 1) and len(err.splitlines()) <= 2


def test_all_mistakes_of_a_command_are_named_at_once(go):
    for name in history.GROUPS:
        _, _, err = go(name, "--no_such_thing", "--nor_this=1")
        assert err.count(" is not a flag") == 2


def test_a_damaged_entry_hides_no_other(go, tmp_path):
    made = histories.write(tmp_path / "history", [1000.0] * 5)
    damaged = sorted((tmp_path / "history").iterdir())[2]
    damaged.write_text(damaged.read_text().replace('"words"', '"tokens"'))
    status, out, err = go("show", "--output=out")
    assert status == 0
    assert f"{len(made) - 1} entries" in out
    assert err.count("\n") == 1
    assert damaged.name in err
