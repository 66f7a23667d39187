"""The command: a stand-in trainer of known speed and memory, faults really injected."""

from __future__ import annotations

import json
import sys

import pytest

from rnn_scaling.commands import recommend
from rnn_scaling.records import folder, record

PINNED = ["--device=cpu", "--num_devices=2", "--compute_dtype=float32", "--sparse_gradients=gather"]
PINNED += ["--variable_consistency=strong", "--intra_op_parallelism_threads=1", "--all_reduce_spec=auto"]
FEW = [*PINNED, "--batch_size=32,64", "--inter_op_parallelism_threads=3,4"]


def go(tmp_path, *words, what="speeds"):
    trainer = (sys.executable, "-m", "tests.support.speeds", what)
    return recommend.main([f"--out={tmp_path}/out", *words], trainer=trainer)


def written(tmp_path, name="recommend"):
    return json.loads((tmp_path / "out" / f"{name}.json").read_text())


def test_it_measures_in_rounds_says_one_sentence_and_goes_on(tmp_path, capsys):
    assert go(tmp_path, *FEW) == 0
    out, err = capsys.readouterr()
    assert "2 modes, then 3 settings of the fastest, two or three times each, in turns: about" in err
    assert "On 2 devices take replicated with all_reduce_spec=auto: 1,09" in out
    assert "parameter_server reaches 9" in out and "of its speed." in out
    assert "Not taken, since they change training: batch_size=64 instead of 32 gains 20 ± " in out
    assert "(another global batch: 128 sentence pairs a step instead of 64). --allow=batch_size takes" in out
    assert "No gain is seen of inter_op_parallelism_threads=4 instead of 3 (it would be below 0." in out
    line = next(line for line in out.splitlines() if line.startswith("    "))
    assert line.split()[1] == "train" and "--variable_update=replicated" in line and "--batch_size=32" in line
    data = written(tmp_path)
    assert data["schema"] == "rnn_scaling.recommend/1" and data["taken"]["variable_update"] == "replicated"
    assert [each["verdict"] for each in data["stages"][0]["alternatives"]] == ["slower", "reference"]
    assert (tmp_path / "out" / "recommend.md").read_text().endswith(out)
    content = folder.read(tmp_path / "out")
    assert not content.left_out and len(content.runs) >= 10  # a report reads them
    before = sorted(path.name for path in (tmp_path / "out").glob("*"))
    assert go(tmp_path, *FEW, "--format=json") == 0  # finished runs are not made again
    assert json.loads(capsys.readouterr().out) == data
    assert before == sorted(path.name for path in (tmp_path / "out").glob("*"))
    assert go(tmp_path, *FEW, "--allow=batch_size", "--format=markdown") == 0
    out = capsys.readouterr().out
    assert "--batch_size=64" in out and "# Recommendation" in out and "gains 20 ± " in out
    assert "faster, taken" in out


def test_ctrl_c_says_what_can_be_said_and_the_same_command_goes_on(tmp_path, capsys):
    label = "cudnn_lstm-replicated-2-all_reduce_spec=auto-batch_size=64.r4"
    assert go(tmp_path, *FEW, what=f"interrupts:{label}") == 130
    out, err = capsys.readouterr()
    assert "On 2 devices take replicated" in out and "recommend --out=" in err
    assert go(tmp_path, *FEW) == 0
    assert "batch_size=64 instead of 32 gains 20" in capsys.readouterr().out
    statuses = {record.read(path).status for path in (tmp_path / "out").glob("cudnn*.json")}
    assert statuses == {"ok"}


def test_a_mode_that_fails_is_a_row_less_and_none_is_a_refusal(tmp_path, capsys):
    words = [*PINNED, "--batch_size=32", "--inter_op_parallelism_threads=3"]
    assert go(tmp_path, *words, what="fails:variable_update=replicated") == 0
    out, err = capsys.readouterr()
    assert "take parameter_server" in out and "Failed: replicated with all_reduce_spec=auto." in out
    assert "no such luck" in err
    assert go(tmp_path / "b", *words, what="fails:batch_size=32") == 1
    assert "No run measured anything, so nothing can be recommended." in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, line",
    [
        (["--num_units=8,16"], "--num_units=8,16 must be one value; recommend compares variable_update"),
        (["--allow=speed"], "--allow=speed must be some of dtype, batch_size, relaxed"),
        (["--memory_gib=1"], "--memory_gib=1 would be ignored here; it needs --largest_batch"),
        (["--largest_batch", "--memory_gib=1e6"], "--memory_gib=1e+06 must be at most what is free"),
        (["--largest_batch", "--global_batch_size=64"], "the largest batch is searched a device"),
        (["--largest_batch", "--batch_size=8,16"], "--batch_size=8,16 must be one value"),
        (["--minutes=0"], "--minutes=0.0 must be at least 0.1"),
        (["--variable_update=replicated", "--all_reduce_spec=nccl"], "nccl needs --device=gpu"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(words, line, tmp_path, capsys):
    assert go(tmp_path, *words) == 2
    assert line in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_dry_run_lists_the_runs_and_makes_none(tmp_path, capsys):
    assert go(tmp_path, *FEW, "--dry_run") == 0
    out, err = capsys.readouterr()
    assert "10 runs, 0 finished, 10 to run: about" in out and "2 modes, then 3 settings" in err
    assert go(tmp_path, "--largest_batch", "--dry_run") == 0
    assert "batch_size=32" in capsys.readouterr().out and not (tmp_path / "out").exists()


def test_the_largest_batch_is_found_though_larger_ones_really_run_out_of_memory(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(recommend.batches, "FINENESS", 4)
    words = ["--largest_batch", "--num_devices=1", "--batch_size=80", "--memory_gib=0.25"]
    assert go(tmp_path, *words, what="allocates") == 0
    out, err = capsys.readouterr()
    data = written(tmp_path, "largest_batch")
    outcomes = {each["batch_size"]: (each["outcome"], each["words"][:40]) for each in data["tries"]}
    assert outcomes == {
        80: ("fits", ""),
        160: ("fits", ""),
        320: ("out of memory", "it took more than it may"),
        224: ("out of memory", "it took more than it may"),
        192: ("fits", ""),
    }
    assert (data["largest"], data["too_large"], data["is_whole"]) == (192, 224, True)
    assert "192 sentence pairs" in out and "measured: 0.236 of 0.25 GiB" in out and "224 do not (measured" in out
    assert "a process may take 0.25 GiB" in err
    assert "train --num_devices=1 --batch_size=192 --preset=small" in out


def test_a_kill_counts_as_out_of_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(recommend.batches, "FINENESS", 4)
    words = ["--largest_batch", "--num_devices=1", "--batch_size=64", "--memory_gib=0.6"]
    assert go(tmp_path, *words, what="killed:256") == 0
    data = written(tmp_path, "largest_batch")
    killed = next(each for each in data["tries"] if each["batch_size"] == 256)
    assert killed["outcome"] == "out of memory"
    assert killed["words"].startswith("killed: perhaps out of memory (killed by SIGKILL")
    assert data["largest"] == 224


def test_another_failure_ends_the_search_and_is_named(tmp_path, capsys):
    assert go(tmp_path, "--largest_batch", "--num_devices=1", what="fails:batch_size=64") == 1
    assert "A batch of 64 failed of something else than memory: no such luck" in capsys.readouterr().out
