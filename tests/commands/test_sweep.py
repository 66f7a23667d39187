"""Sweeps: every fault is really injected, and after each the same command ends with every run once."""

import os
import re
import sys
from pathlib import Path

import pytest

from rnn_scaling.commands import sweep
from rnn_scaling.records import history, record
from rnn_scaling.records.parts import RunError
from rnn_scaling.system.processes import process
from tests.support.faults import SMALL, jump_clock, list_logged
from tests.support.sweeping import (
    ONE,
    THREE,
    THREE_RUNS,
    TWO,
    check_nothing_is_running,
    check_resume,
    go,
    records,
)

pytestmark = pytest.mark.usefixtures("no_report")


@pytest.mark.parametrize(
    "words, line",
    [
        (["--result_file=x"], "--result_file is set by this command"),
        (["--repeats=-1"], "--repeats=-1 must be at least 0"),
    ],
)
def test_bad_sweep_flags(words, line, capsys):
    assert sweep.main(words) == 2
    assert line in capsys.readouterr().err


NOTHING = "ended with exit status 0 and no result: nothing on stderr"
FAULTS = {
    "1": ("fails", "ValueError", "no such luck"),
    "2": (
        "signal_9",
        "Signal",
        "killed by SIGKILL: often the kernel's out-of-memory killer; see dmesg",
    ),
    "3": ("signal_11", "Signal", "killed by SIGSEGV"),
    "4": (
        "crash",
        "NoRecord",
        "ended with exit status 3 and no result: the disk is on fire",
    ),
    "5": ("junk", "NoRecord", NOTHING),
    "6": ("silent", "NoRecord", NOTHING),
    "7": (
        "interrupt",
        "Interrupted",
        "interrupted from outside the sweep (SIGINT or SIGTERM)",
    ),
    "8": ("flood", None, None),
    "9": ("leaves_child", None, None),
}


def list_started(tmp_path):
    return list_logged(tmp_path / "faults", "start")


def test_every_way_to_fail_is_a_row_with_its_reason_and_the_sweep_goes_on(
    tmp_path, capfd
):
    planted = {f"cudnn_lstm_independent_{n}": FAULTS[n][0] for n in FAULTS}
    assert go(tmp_path, *SMALL, f"--num_devices={','.join(FAULTS)}", **planted) == 1
    said = capfd.readouterr().err
    found = records(tmp_path)
    for n, (_, kind, message) in FAULTS.items():
        label = f"cudnn_lstm-independent-{n}"
        result = found[label]
        assert result.config["num_devices"] == int(n)
        if kind is None:
            assert result.status == "ok"
            continue
        assert (result.status, result.throughput) == ("failed", None)
        assert result.error == RunError(type=kind, message=message)
        assert f"error: {label}: {message}\n" in said
    kept = found["cudnn_lstm-independent-7"].batches.items
    assert kept == (5, 5), "what was measured stays"
    out = tmp_path / "out"
    assert "fire" in (out / "cudnn_lstm-independent-4.stderr.txt").read_text()
    junk = (out / "cudnn_lstm-independent-5.json.unreadable").read_text()
    assert junk == '{"schema": "rnn_sca'
    check_nothing_is_running(tmp_path)


def test_a_run_that_left_nothing_counts_what_its_workload_does(tmp_path):
    words = [*SMALL, "--num_devices=1", "--model=lm"]
    assert go(tmp_path, *words, cudnn_lstm_independent_1="junk") == 1
    [result] = records(tmp_path).values()
    assert result.config["model"] == "lm"
    assert result.unit == "tokens"


def test_a_hang_ends_at_the_limit_with_all_its_processes(tmp_path, monkeypatch):
    jump_clock(monkeypatch, lambda: len(list_logged(tmp_path / "faults", "ready")))
    monkeypatch.setattr(process, "TIMEOUT_GRACE_S", 1.0)
    hung = {"cudnn_lstm_independent_1": "stubborn", "cudnn_lstm_independent_2": "hang"}
    assert go(tmp_path, *THREE_RUNS, "--run_timeout=3600", **hung) == 1
    found = records(tmp_path)
    statuses = [found[label].status for label in (ONE, TWO, THREE)]
    assert statuses == ["failed", "failed", "ok"]
    for label in (ONE, TWO):
        message = "killed after 3600 s, the limit of --run_timeout (last output: warm-up: 2/5 batches)"
        assert found[label].error == RunError(type="Timeout", message=message)
    assert found[TWO].batches.items == (5, 5), "what was measured stays"
    check_nothing_is_running(tmp_path)


def test_the_limit_is_ten_times_what_runs_take_and_says_so(
    tmp_path, monkeypatch, capsys
):
    """Expect this only for the default limit; a limit set by the user is kept."""
    asked = []

    def hung(tasks, timeout_s, on_line, is_progress):
        asked.append((timeout_s, is_progress is not None))
        return process.ProcessOutcome(-9, True, [])

    monkeypatch.setattr(process, "run_together", hung)
    one = [*SMALL, "--num_devices=1"]
    assert go(tmp_path, *one) == 1
    err = capsys.readouterr().err
    assert "1 run left: about" in err and "--run_timeout=SECONDS" in err
    for given in ("7", "0"):
        words = ["--retry_failed", f"--run_timeout={given}"]
        assert go(tmp_path, *one, *words) == 1
    assert asked == [(300.0, True), (7.0, False), (0.0, False)]


def test_finished_runs_are_not_repeated_and_failed_ones_only_when_asked(
    tmp_path, capsys
):
    assert go(tmp_path, *THREE_RUNS, cudnn_lstm_independent_2="crash") == 1
    assert go(tmp_path, *THREE_RUNS) == 1
    assert list_started(tmp_path) == [ONE, TWO, THREE]
    assert "3 of 3 runs are finished" in capsys.readouterr().err
    assert go(tmp_path, *THREE_RUNS, "--retry_failed") == 0
    assert list_started(tmp_path) == [ONE, TWO, THREE, TWO]
    assert not list((tmp_path / "out").glob("*.stderr.txt"))


def test_repeats_are_interleaved_and_more_of_them_extend(tmp_path):
    two_runs = [*SMALL, "--num_devices=1,2"]
    assert go(tmp_path, *two_runs) == 0
    assert go(tmp_path, *two_runs, "--repeats=3") == 0
    starts = list_started(tmp_path)
    assert [set(starts[i : i + 2]) for i in (0, 2, 4)] == [
        {f"{ONE}{n}", f"{TWO}{n}"} for n in ("", ".r2", ".r3")
    ]
    assert len(records(tmp_path)) == 6


def test_as_many_rounds_as_the_answer_needs(tmp_path, capfd):
    def sweep_of(name, **faults):
        words = [*SMALL, "--num_devices=1,2", "--repeats=0"]
        return go(tmp_path / name, *words, **faults)

    unsure = {"cudnn_lstm_independent_2_r2": "slow"}
    assert sweep_of("sure") == sweep_of("unsure", **unsure) == 0
    assert [len(list_started(tmp_path / name)) for name in ("sure", "unsure")] == [4, 6]
    assert "round 3 of at most 3: " in capfd.readouterr().err
    assert sweep_of("unsure") == 0
    assert "6 of 6 runs are finished" in capfd.readouterr().err
    # A configuration that failed is not run a further time, and is not forgotten.
    failing = {f"cudnn_lstm_independent_1{repeat}": "crash" for repeat in ("", "_r2")}
    assert sweep_of("failing", **unsure, **failing) == 1
    rounds = [ONE, f"{ONE}.r2", TWO, f"{TWO}.r2", f"{TWO}.r3"]
    assert sorted(list_started(tmp_path / "failing")) == rounds
    assert f"error: {ONE}.r2: ended with exit status 3" in capfd.readouterr().err


def test_more_values_add_runs_and_repeat_none_though_names_change(tmp_path):
    def sweep_of(batch_sizes, repeats):
        words = [*SMALL, "--num_devices=1", f"--batch_size={batch_sizes}"]
        assert go(tmp_path, *words, f"--repeats={repeats}") == 0

    for batch_sizes in ("8", "8,16", "16"):
        sweep_of(batch_sizes, 2)
    new = f"{ONE}-batch_size=16"
    assert list_started(tmp_path) == [ONE, f"{ONE}.r2", new, f"{new}.r2"]
    sweep_of("8,16", 3)
    third = {f"{ONE}-batch_size=8.r3", f"{new}.r3"}
    assert set(list_started(tmp_path)[4:]) == third


def test_records_of_other_flags_are_refused_and_stay(tmp_path, capsys):
    def files():
        paths = (tmp_path / "out").glob("*.json")
        return {path: path.read_bytes() for path in paths}

    assert go(tmp_path, *THREE_RUNS, "--batch_size=8") == 0
    before = files()
    assert go(tmp_path, *THREE_RUNS, "--batch_size=9") == 2
    lines = capsys.readouterr().err.splitlines()
    beginning = f"error: {tmp_path}/out/{ONE}.json has other flags"
    [line] = [line for line in lines if line.startswith(beginning)]
    assert "--batch_size=8 there" in line and "--force" in line
    assert files() == before
    assert go(tmp_path, *THREE_RUNS, "--batch_size=9", "--force") == 0
    assert {held.config["batch_size"] for held in records(tmp_path).values()} == {9}


def test_a_file_that_is_no_record_is_set_aside(tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    head = '{"schema": "rnn_scaling.run/1", "status": "ok", '
    texts = {
        f"{ONE}.json": '{"schema": "rnn',
        f"{TWO}.json": head,
        f"{THREE}.json": f'{head}"error": null, "config": [1]}}',
        f"{THREE}.json.unreadable": "an earlier one",
        "foreign.json": "[]",
    }
    for name, text in texts.items():
        (out / name).write_text(text)
    assert go(tmp_path, *THREE_RUNS) == 0
    said = capsys.readouterr().err
    assert f"warning: {out}/{ONE}.json: not JSON" in said
    assert f"{THREE}.json: config is [1]" in said
    aside = {
        f"{name}.unreadable": texts[name] for name in (f"{ONE}.json", f"{TWO}.json")
    }
    aside[f"{THREE}.json.unreadable"] = "an earlier one"
    aside[f"{THREE}.json.unreadable2"] = texts[f"{THREE}.json"]
    assert {name: (out / name).read_text() for name in aside} == aside
    (out / "foreign.json").unlink()
    assert {held.status for held in records(tmp_path).values()} == {"ok"}


def list_dry_run(capsys):
    """Return the states of the runs that a dry run lists, and its other output."""
    said = capsys.readouterr()
    head, *lines = said.out.splitlines()
    assert head.split() == ["run", "state", "name", "command"]
    rows = [re.split(r"  +", line.strip()) for line in lines]
    states = {row[2]: row[1] for row in rows if len(row) == 4}
    return states, said


def test_a_dry_run_lists_the_runs_and_does_nothing(tmp_path, capsys):
    assert go(tmp_path, *THREE_RUNS, "--dry_run") == 0
    states, said = list_dry_run(capsys)
    assert states == dict.fromkeys((ONE, TWO, THREE), "to run")
    assert "3 runs, 0 finished, 3 to run: about " in said.out
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "faults/log").exists()
    assert go(tmp_path, *THREE_RUNS, cudnn_lstm_independent_2="crash") == 1
    (tmp_path / "out" / f"{THREE}.json").write_text("junk")
    files = sorted(os.listdir(tmp_path / "out"))
    capsys.readouterr()
    assert go(tmp_path, *THREE_RUNS, "--repeats=2", "--dry_run") == 0
    states, said = list_dry_run(capsys)
    assert states.pop(ONE) == "finished"
    assert states.pop(TWO) == "failed"
    assert [*states.values()] == ["to run"] * 4
    assert "2 finished, 4 to run: about " in said.out
    assert "would be renamed" in said.err
    assert sorted(os.listdir(tmp_path / "out")) == files
    assert go(tmp_path / "rounds", *THREE_RUNS, "--repeats=0", "--dry_run") == 0
    assert "3 rounds" in capsys.readouterr().out


def test_a_folder_that_is_removed_ends_the_sweep_and_says_what_is_left(
    tmp_path, capsys
):
    assert go(tmp_path, *THREE_RUNS, cudnn_lstm_independent_3="removes_folder") == 1
    lines = capsys.readouterr().err.splitlines()
    [line] = [line for line in lines if line.startswith("error: ")]
    assert "removed or replaced" in line and "2 of 3 records" in line
    assert list(records(tmp_path)) == [THREE]
    assert go(tmp_path, *THREE_RUNS) == 0
    assert list_started(tmp_path) == [ONE, TWO, THREE, ONE, TWO]


@pytest.mark.parametrize("name", [f"{ONE}.json", ".sweep.lock"])
def test_nothing_is_written_through_a_link(name, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    for target in ("precious", "nowhere"):
        (tmp_path / "out" / name).symlink_to(tmp_path / target)
        (tmp_path / "precious").write_text("mine")
        status = go(tmp_path, *SMALL, "--num_devices=1")
        said = capsys.readouterr().err
        if name == ".sweep.lock":
            assert status == 1
            assert said.startswith(f"error: --out={tmp_path}/out: it is a symbolic ")
            assert f"({tmp_path}/out/{name})" in said
        else:
            assert status == 0
            assert f"renamed to {name}.unreadable" in said
        (tmp_path / "out" / name).unlink()
        assert (tmp_path / "precious").read_text() == "mine"
        assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file/below", Path("/proc/no/such")):
        assert sweep.main([f"--out={out}", *THREE_RUNS], trainer=["false"]) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: --out={out}: ")


def test_a_full_disk_ends_the_sweep_with_one_line_and_keeps_what_is_done(
    tmp_path, capsys, monkeypatch
):
    write = record.write

    def full(held, path):
        if TWO in str(path):
            raise OSError(28, "No space left on device", str(path))
        write(held, path)

    monkeypatch.setattr(record, "write", full)
    assert go(tmp_path, *THREE_RUNS) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: --out={tmp_path}/out: No space left")
    assert f"{tmp_path}/out/{TWO}.json" in line and "kept (1)" in line
    monkeypatch.setattr(record, "write", write)
    check_resume(tmp_path, *THREE_RUNS)


def test_a_trainer_that_cannot_write_its_record_ends_the_sweep_and_runs_again(
    tmp_path, capsys
):
    assert go(tmp_path, *THREE_RUNS, cudnn_lstm_independent_2="full") == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert f"{TWO}.json: No space left " in line and "kept (1)" in line
    check_resume(tmp_path, *THREE_RUNS, ran_twice=[TWO])


SEVERAL = "cudnn_lstm-collective_all_reduce-1-num_workers"
WORKERS = [
    "--encoder_type=cudnn_lstm",
    "--variable_update=independent,collective_all_reduce",
    "--num_devices=1",
    "--num_workers=1,2,3",
]


def test_workers_are_one_more_axis_and_modes_of_one_process_run_once(tmp_path, capfd):
    several = [f"{SEVERAL}={n}" for n in (1, 2, 3)]
    assert go(tmp_path, *WORKERS, "--dry_run") == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if "to run" in line]
    assert [line.split()[3] for line in lines[:4]] == [ONE, *several]
    dead = several[2].replace("-", "_")
    assert go(tmp_path, *WORKERS, **{dead: "rank_dies"}) == 1
    assert list_started(tmp_path) == [ONE, *several]
    assert list_logged(tmp_path / "faults", "rank1") == several[1:]
    found = records(tmp_path)
    assert [found[name].config["num_workers"] for name in several] == [1, 2, 3]
    error = found[several[2]].error
    assert error.type == "ClusterError" and "worker 1 (rank 1) was" in error.message
    check_nothing_is_running(tmp_path)
    assert go(tmp_path, *WORKERS, "--retry_failed") == 0
    assert list_started(tmp_path)[4:] == several[2:]


def test_a_limit_ends_all_ranks(tmp_path, monkeypatch):
    jump_clock(monkeypatch, lambda: len(list_logged(tmp_path / "faults", "ready")))
    monkeypatch.setattr(process, "SEVERAL_GRACE_S", 0.2)  # rank 1 does not go by itself
    name = SEVERAL.removesuffix("-num_workers")
    words = [
        WORKERS[0],
        "--variable_update=collective_all_reduce",
        "--num_devices=1",
        "--num_workers=2",
    ]
    hung = {name.replace("-", "_"): "hang"}
    assert go(tmp_path, *words, "--run_timeout=3600", **hung) == 1
    [result] = records(tmp_path).values()
    assert result.error and result.error.message.startswith("killed after 3600 s")
    assert result.batches.items == (5, 5)
    assert list_logged(tmp_path / "faults", "rank1") == [name]
    check_nothing_is_running(tmp_path)


LAUNCHER = """
import os, subprocess, sys
at = sys.argv.index("-n")
number, command = int(sys.argv[at + 1]), sys.argv[at + 2 :]
open(os.environ["LAUNCHED"], "a").write(f"{sys.argv[1:at]} {number}\\n")
ranks = [subprocess.Popen(command, env={**os.environ, "RNN_SCALING_RANK": str(rank)}) for rank in range(number)]
sys.exit(max(rank.wait() for rank in ranks))
"""


def test_a_launcher_starts_the_processes_of_every_run(tmp_path, monkeypatch, capfd):
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    monkeypatch.setenv("LAUNCHED", str(tmp_path / "launched"))
    launch = f"--launch={sys.executable} {tmp_path}/launcher.py -H a,b"
    assert go(tmp_path, *WORKERS, launch) == 0
    assert (tmp_path / "launched").read_text().splitlines() == [
        f"['-H', 'a,b'] {n}" for n in (1, 1, 2, 3)
    ]
    assert list_logged(tmp_path / "faults", "rank2") == [f"{SEVERAL}=3"]
    assert sweep.main([*WORKERS, "--launch=no_such_launcher"]) == 2
    wrong = "--launch=no_such_launcher must be an installed command; no_such_launcher was not found"
    assert wrong in capfd.readouterr().err


def test_results_go_to_a_history_after_the_report(tmp_path):
    for _ in range(2):
        assert go(tmp_path, *SMALL, "--num_devices=1", f"--history={tmp_path}/h") == 0
    [entry] = history.read(tmp_path / "h").entries
    assert len(entry.configurations) == 1
