"""The command recommend, with a fake trainer of known speed and memory and real faults."""

import json
import sys
from unittest import mock

import pytest

from rnn_scaling.analysis import largest_batch
from rnn_scaling.commands import recommend
from rnn_scaling.records import folder, record
from rnn_scaling.system.processes import process
from tests.support import speeds
from tests.support.stand_in_forks import make_subprocess_stand_in

FEW = ["--device=cpu", "--num_devices=2", "--all_reduce_spec=auto", "--batch_size=32"]


def go(tmp_path, *words, what="speeds"):
    trainer = (sys.executable, "-m", "tests.support.speeds", what)
    # A fork of this process uses too much memory for a search under a limit.
    is_limited = any(word.startswith("--memory_gib") for word in words)
    forks = make_subprocess_stand_in(**({} if is_limited else {"speeds": speeds.main}))
    with mock.patch.object(process, "subprocess", forks):
        return recommend.main([f"--out={tmp_path}/out", *words], trainer=trainer)


def read_written(tmp_path, name="recommend"):
    return json.loads((tmp_path / "out" / f"{name}.json").read_text())


def test_it_measures_in_rounds_and_continues(tmp_path, capsys):
    assert go(tmp_path, *FEW) == 0
    out, _ = capsys.readouterr()
    line = next(line for line in out.splitlines() if line.startswith("    "))
    words = {"train", "--variable_update=replicated", "--batch_size=32"}
    assert words <= set(line.split())
    data = read_written(tmp_path)
    assert data["taken"]["variable_update"] == "replicated"
    verdicts = {each["verdict"] for each in data["alternatives"]}
    assert verdicts == {"reference", "slower"}
    statement = data["statements"][0]
    assert statement["kind"] == "recommend"
    assert statement["values"]["rate"]["value"] == pytest.approx(1100, rel=0.01)
    content = folder.read(tmp_path / "out")
    assert not content.left_out and len(content.runs) >= 4  # a report reads them
    files = set((tmp_path / "out").iterdir())
    assert go(tmp_path, *FEW, "--format=json") == 0  # finished runs are not made again
    assert json.loads(capsys.readouterr().out) == data
    assert set((tmp_path / "out").iterdir()) == files
    assert go(tmp_path, *FEW, "--format=markdown") == 0
    assert "parameter_server |" in capsys.readouterr().out


def test_after_ctrl_c_the_same_command_continues(tmp_path, capsys):
    label = "cudnn_lstm-replicated-2.r2"
    assert go(tmp_path, *FEW, what=f"interrupts:{label}") == 130
    out, err = capsys.readouterr()
    assert "--variable_update=replicated" in out and "recommend --out=" in err
    assert go(tmp_path, *FEW) == 0
    statuses = {
        record.read(path).status for path in (tmp_path / "out").glob("cudnn*.json")
    }
    assert statuses == {"ok"}


def test_a_mode_that_fails_is_named_and_none_is_a_failure(tmp_path, capsys):
    assert go(tmp_path, *FEW, what="fails:variable_update=replicated") == 0
    data = read_written(tmp_path)
    assert len(data["failed"]) == 1
    assert data["taken"]["variable_update"] == "parameter_server"
    assert "no such luck" in capsys.readouterr().err
    assert go(tmp_path / "b", *FEW, what="fails:batch_size=32") == 1
    assert [each["kind"] for each in read_written(tmp_path / "b")["statements"]] == [
        "recommend-nothing"
    ]


@pytest.mark.parametrize(
    "words, line",
    [
        (["--memory_gib=1"], "--memory_gib=1 would be ignored here; add"),
        (
            ["--largest_batch", "--global_batch_size=64"],
            "--global_batch_size=64 conflicts with",
        ),
    ],
)
def test_what_cannot_be_done_is_said_at_once(words, line, tmp_path, capsys):
    assert go(tmp_path, *words) == 2
    assert line in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_dry_run_lists_the_runs_and_makes_none(tmp_path, capsys):
    assert go(tmp_path, *FEW, "--dry_run") == 0
    out, err = capsys.readouterr()
    assert "4 runs, 0 finished, 4 to run: about" in out and "2 configurations" in err
    assert go(tmp_path, "--largest_batch", "--dry_run") == 0
    assert "batch_size=32" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_the_largest_batch_is_found_though_larger_ones_really_run_out_of_memory(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(largest_batch, "FINENESS", 4)
    words = [
        "--largest_batch",
        "--num_devices=1",
        "--batch_size=80",
        "--memory_gib=0.25",
    ]
    assert go(tmp_path, *words, what="allocates") == 0
    out, err = capsys.readouterr()
    data = read_written(tmp_path, "largest_batch")
    outcomes = {
        each["batch_size"]: (each["outcome"], each["words"][:16])
        for each in data["tries"]
    }
    assert outcomes == {
        80: ("fits", ""),
        160: ("fits", ""),
        320: ("out of memory", "the memory limit"),
        224: ("out of memory", "the memory limit"),
        192: ("fits", ""),
    }
    assert (data["largest"], data["too_large"], data["is_whole"]) == (192, 224, True)
    fits, too_large = data["statements"]
    assert fits["kind"] == "batch-fits-limit"
    assert fits["values"]["batch_size"] == 192
    assert fits["values"]["limit_gib"] == 0.25
    assert too_large["kind"] == "batch-too-large"
    assert too_large["values"]["batch_size"] == 224
    assert "0.236 of 0.25 GiB" in out and "0.25 GiB" in err
    assert "--num_devices=1 --batch_size=192" in out


def test_another_failure_ends_the_search_and_is_named(tmp_path):
    assert (
        go(tmp_path, "--largest_batch", "--num_devices=1", what="fails:batch_size=64")
        == 1
    )
    [failed] = read_written(tmp_path, "largest_batch")["statements"]
    assert failed["kind"] == "batch-failed"
    assert failed["values"] == {"batch_size": 64, "reason": "no such luck"}
