"""A trainer of the user's own in sweep, ab and Python: what is asked of its command, and what becomes of each end."""

from __future__ import annotations

import math
import os
import re
import shlex
import signal
import sys
import types

import pytest

import rnn_scaling
from rnn_scaling.analysis import folder_rows
from rnn_scaling.commands import ab, sweep
from rnn_scaling.config.flags import FlagErrors
from rnn_scaling.importers.log_formats import Seen
from rnn_scaling.records import record
from rnn_scaling.records.environment import Resolved
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import comparison, report_files
from rnn_scaling.sweeps import (
    command_plan,
    command_trainer,
    display,
    early_checks,
    estimate,
    failure,
)
from rnn_scaling.sweeps.command_plan import TrainerOptions
from rnn_scaling.system.machine import gpus
from rnn_scaling.system.machine.cores import first_cores
from rnn_scaling.system.processes import process
from tests.support.names_taken import KINDS, put
from tests.support.paths import ROOT

STAND_IN = f"{shlex.quote(sys.executable)} {ROOT}/tests/support/stand_in.py"
COMMAND = f"{STAND_IN} {{how}} {{num_devices}}"
PATTERN = r"--log_format=regex:step (?P<step>\d+): (?P<ms>\S+) ms, loss (?P<loss>\S+)"
ITEMS = "--items_per_step=100*{num_devices}"
RATE = "--log_format=regex:words/s: (?P<rate>[0-9.,]+)"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No report, no look at this machine's load; the stand-in finds this package."""
    monkeypatch.setattr(report_files, "report", lambda source, target: None)
    monkeypatch.setattr(early_checks, "load_now", lambda: [])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def go(tmp_path, *words, command=COMMAND):
    return sweep.main(
        [f"--trainer={command}", f"--out={tmp_path}/out", "--repeats=1", *words]
    )


def records(tmp_path):
    return {
        path.stem: record.read(path)
        for path in sorted((tmp_path / "out").glob("*.json"))
    }


def planned(
    command="true {num_devices}", axes=None, num_gpus=0, num_cores=2, given=None, **own
):
    options = TrainerOptions(trainer=command, **own)
    return command_plan.plan(
        options, axes or {}, given or {}, num_gpus=num_gpus, num_cores=num_cores
    )


UNREADABLE = "NoRecord: ended with exit status 0, but its record cannot be read: "


def test_every_end_of_a_trainer_is_a_row(tmp_path, capsys):
    """Its record, its log, and everything that is neither."""
    ends = "record,steps,wrong,slow,crash,silent,half,signal,killed,late,folder,link,escapes"
    words = [f"--axis:how={ends}", "--num_devices=2", PATTERN, ITEMS, "--unit=words"]
    assert go(tmp_path, *words) == 1
    found = {
        name.removeprefix("stand_in-2-how="): each
        for name, each in records(tmp_path).items()
    }
    assert all(
        each.config["num_devices"] == 2 and each.config["how"] == how
        for how, each in found.items()
    )
    recorded, read = found["record"], found["steps"]
    assert recorded.status == "ok" and "num_batches" not in recorded.config
    assert (recorded.throughput.items, recorded.log_format) == (
        11 * 200 + sum(range(1, 12)),
        None,
    )
    assert (recorded.ended, found["late"].ended, found["late"].status) == (
        None,
        "exit status 3",
        "ok",
    )
    assert found["late"].throughput.items == recorded.throughput.items, (
        "its numbers count"
    )
    # A match every ten steps of 0.25 ms and 200 items, the first left out.
    assert (read.batches.warmup, read.batches.measured, read.unit) == (1, 7, "words")
    assert (read.throughput.items, read.throughput.seconds) == (
        14_000,
        pytest.approx(7 * 0.0025),
    )
    assert (
        read.log_format == PATTERN.removeprefix("--log_format=")
        and read.batches.loss[0] == 8.0
    )
    assert (
        read.environment.started
        and not read.environment.packages
        and not read.phases.first_batch
    )
    assert read.resolved.cpu_affinity == tuple(first_cores(2))
    reasons = {
        "wrong": "Contradiction: its record has num_devices=3, ",
        "slow": "NoRecord: ended with exit status 0, but its output is contradictory: batches.seconds ",
        "crash": "NoRecord: ended with exit status 1 and no result: RuntimeError: no such luck",
        "silent": "NoRecord: ended with exit status 0, but wrote no record, and ",
        "half": f"{UNREADABLE}stand_in-2-how=half.json.unreadable",
        "folder": f"{UNREADABLE}stand_in-2-how=folder.json.unreadable",
        "link": f"{UNREADABLE}stand_in-2-how=link.json.unreadable",
        "escapes": "NoRecord: ended with exit status 0, but wrote no record, and ",
        "signal": "Signal: killed by SIGKILL: often the kernel's out-of-memory killer; see dmesg (last output: cores",
        "killed": "Signal: killed by SIGKILL: often the kernel's out-of-memory killer; see dmesg (last output: cores",
    }
    for how, reason in reasons.items():
        error = found[how].error
        assert f"{error.type}: {error.message}".startswith(reason), how
        assert found[how].status == "failed" and found[how].throughput is None
    assert "on stderr" in found["silent"].error.message
    assert (
        "\nmeasuring: 12/12 batches, "
        in (tmp_path / "out" / "stand_in-2-how=record.log.txt").read_text()
    )
    log = (tmp_path / "out" / "stand_in-2-how=steps.log.txt").read_text()
    assert f"cores {first_cores(2)} devices 2\n" in log and "on stderr\n" in log
    said = capsys.readouterr().err
    assert "counts as a batch" in said and "\x1b" not in said
    assert "how=late: " in said and "(exit status 3)" in said
    assert not [
        each for each in (tmp_path / "out").glob(".*") if each.name != ".sweep.lock"
    ], "files of ranks, too"
    assert go(tmp_path, *words) == 1
    assert "all 13 runs are finished" in capsys.readouterr().err


def test_a_log_that_tells_the_rate_alone_is_a_row_with_its_speedup(tmp_path, capsys):
    assert (
        go(
            tmp_path,
            "--axis:how=rate",
            "--num_devices=1,2",
            f"--log_format=seed,auto,{RATE.partition('=')[2]}",
        )
        == 0
    )
    one, two = records(tmp_path).values()
    log = (tmp_path / "out" / "stand_in-1.log.txt").read_text()
    assert (
        f"cores {first_cores(1)} devices 1\n" in log
        and one.resolved.cpu_affinity == tuple(first_cores(1))
    )
    assert (
        two.throughput.items_per_second,
        two.throughput.items,
        two.throughput.seconds,
    ) == (2000.0, None, None)
    assert not two.batches.seconds and two.config["log_format"].startswith(
        "seed_trainer,auto,regex:"
    )
    assert (
        go(
            tmp_path,
            "--axis:how=rate",
            "--num_devices=1,2",
            f"--log_format=seed,auto,{RATE.partition('=')[2]}",
        )
        == 0
    )
    assert "all 2 runs are finished" in capsys.readouterr().err
    assert go(tmp_path, "--axis:how=rate", "--num_devices=1", RATE) == 2
    line = "has other flags (--log_format=seed_trainer,auto,"
    assert line in capsys.readouterr().err, "the same work, read otherwise"


def test_what_a_log_says_of_devices_is_held_against_the_sweep(tmp_path):
    log = tmp_path / "seed.txt"
    log.write_text(
        "|gpu number|batch_size|total time|speed|speedup ratio|\n|2|64|10.5|1200.0|1.00|\n"
    )
    assert go(tmp_path, "--num_devices=1,2", command=f"cat {log}") == 1
    wrong, right = (records(tmp_path)[f"cat-{n}"] for n in (1, 2))
    assert wrong.error.message.startswith("its log has num_devices=2, ")
    assert (
        right.throughput.items_per_second,
        right.unit,
        right.config["batch_size"],
    ) == (1200.0, "words", 64)
    assert right.log_format == "seed_trainer"


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_of_a_sweep_overwrites_no_other_file_and_waits_for_no_reader(
    tmp_path, kind, capsys
):
    put(kind, tmp_path / "out" / "echo-1.log.txt", tmp_path / "precious")
    status = go(tmp_path, "--num_devices=1", RATE, command="echo words/s: 5")
    assert (tmp_path / "precious").read_text() == "mine\n" and not (
        tmp_path / "nowhere"
    ).exists()
    if kind == "hard link":
        assert status == 0 and records(tmp_path)["echo-1"].status == "ok"
    else:
        assert status == 1 and "echo-1.log.txt" in capsys.readouterr().err


def test_of_a_flood_of_lines_so_many_are_kept_as_are_read(tmp_path):
    assert (
        go(
            tmp_path,
            "--num_devices=1",
            RATE,
            "--max_file_mb=1",
            command="seq -f %0200g 6000",
        )
        == 1
    )
    (result,) = records(tmp_path).values()
    assert (
        "--max_file_mb=1" in result.error.message
        and "last output: " in result.error.message
    )
    assert (tmp_path / "out" / "seq-1.log.txt").stat().st_size <= 1e6


def test_a_hang_is_a_row_with_its_last_words(tmp_path, monkeypatch):
    asked = []

    def hung(tasks, timeout_s, on_line, is_alive, arrivals):
        asked.append((timeout_s, is_alive is not None, tasks[0].reads_stdout))
        return process.Ended(-15, True, ["epoch 1", "=====", "step 7"])

    monkeypatch.setattr(process, "run_together", hung)
    words = ["--axis:how=x", "--num_devices=1"]
    assert go(tmp_path, *words) == 1
    (result,) = records(tmp_path).values()
    assert result.error.type == "Timeout" and result.error.message.endswith(
        "7); see stand_in-1.log.txt"
    )
    assert "killed after 1800 s without output" in result.error.message
    assert go(tmp_path, *words, "--run_timeout=5", "--retry_failed") == 1
    assert asked == [(estimate.SILENT_S, True, True), (5.0, False, True)]


@pytest.mark.parametrize(
    "words, line",
    [
        (["--trainer=no-such-program x"], "no-such-program was not found"),
        (["--trainer=true {"], "{{ for a single {"),
        (
            ["--trainer=true {hidden}"],
            "--trainer: {hidden} is not an option of this sweep; add --axis:hidden=",
        ),
        (["--trainer=true {num_device}"], "(did you mean {num_devices}?); add"),
        (
            ["--trainer=true", "--axis:hidden=1"],
            "--axis:hidden: --trainer has no place {hidden}",
        ),
        (["--trainer={a} x", "--axis:a="], "--trainer={a} x must begin with a program"),
        (
            ["--trainer=true", "--axis:num_units=big"],
            "big must be a whole number, like this",
        ),
        (
            ["--trainer=true", "--axis:log_dir=a"],
            "log_dir is reserved; choose another name",
        ),
        (
            ["--trainer=true {xla}", "--xla=true", "--axis:xla=1"],
            "--xla and --axis:xla name the same option; give one",
        ),
        (
            ["--trainer=true", "--axis:num_devices=4"],
            "--axis:num_devices=4: num_devices is given twice; give all valu",
        ),
        (
            ["--trainer=true {v}", "--axis:v=1.1,x,1.10"],
            "--axis:v: 1.1 and 1.10 are the same number",
        ),
        (
            ["--trainer=true", "--device=gpu"],
            "--device=gpu needs a visible NVIDIA GPU, found none",
        ),
        (
            ["--trainer=true", "--log_format=foo"],
            "--log_format=foo must be of auto, tf_cnn_benchmarks, ",
        ),
        (
            ["--trainer=true", "--log_format=regex:loss (?P<loss>.)"],
            "add --items_per_step=PRODUCT",
        ),
        (
            ["--trainer=true", "--log_format=wall"],
            "--items=PRODUCT and --log_format=wall need each other",
        ),
        (
            [
                "--trainer=true {n}",
                "--axis:n=0",
                "--log_format=regex:(?P<ms>.)",
                "--items_per_step=2*{n}",
            ],
            "--items_per_step=2*{n} is 2*0; it must be above 0",
        ),
        (["--trainer=true", "--certify"], "--certify compares this suite's trainer"),
        (["--log_format=seed"], "--log_format is for a trainer of your own"),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_remedy(tmp_path, capsys, words, line):
    assert sweep.main([f"--out={tmp_path}/out", "--num_devices=1", *words]) == 2
    assert line in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_command_is_words_and_not_a_shell(tmp_path):
    command = "env X={hidden} true '{{}}' {fast} '{hidden} a b' $HOME {repeat}"
    slow, fast = planned(
        command,
        {"hidden": ["a b;c"], "fast": ["", "--fast"]},
        given={"num_devices": [2]},
    )
    place = tmp_path / "x.json"
    assert command_trainer.command(slow, place) == [
        "env",
        "X=a b;c",
        "true",
        "{}",
        "a b;c a b",
        "$HOME",
        "1",
    ]
    assert command_trainer.command(fast, place)[4] == "--fast"
    assert (slow.name, fast.name) == ("env-2-fast=", "env-2-fast=_fast")


def test_options_are_numbers_where_they_read_as_one_and_names_are_the_programs():
    (run,) = planned(
        "true x {a} {b} {c}",
        {"a": ["1"], "b": ["0.5"], "c": ["inf"]},
        given={"num_devices": [1]},
    )
    assert [run.config[name] for name in "abc"] == [1, 0.5, "inf"]
    for command, name in (
        ("true -m torch.distributed.run my/train.py", "train"),
        ("true -m a.b", "a.b"),
        ("true", "true"),
    ):
        assert planned(command)[0].config["trainer"] == name
    assert planned(trainer_name="mine")[0].config["trainer"] == "mine"
    assert [run.num_devices for run in planned(num_cores=3)] == [1, 2, 3]
    for option in ("model", "framework", "optimizer", "variable_update"):
        assert (
            planned(f"true {{{option}}}", given={option: ["its_own"]})[0].config[option]
            == "its_own"
        )
        assert (
            planned(f"true {{{option}}}", {option: ["its_own"]})[0].config[option]
            == "its_own"
        )
    axes, rest = command_plan.split_axes(
        ["--axis:xla=1,false", "--axis:num_gpus=2", "--axis:learning_rate=1e-3"]
    )
    assert rest == ["--num_gpus=2"]
    one, two = planned("true {xla} {learning_rate}", axes, given={"num_devices": [2]})
    assert [(run.texts["xla"], run.config["xla"]) for run in (one, two)] == [
        ("1", True),
        ("false", False),
    ]
    assert (one.texts["learning_rate"], one.config["learning_rate"]) == ("1e-3", 0.001)
    (strong,) = planned(
        "true {variable_update}",
        given={"num_devices": [2], "variable_update": ["independent"]},
    )
    assert strong.config["variable_update"] == "independent"


def test_what_a_record_says_may_be_written_otherwise():
    (run,) = planned(
        "true {a} {b}", {"a": ["256"], "b": ["true"]}, given={"num_devices": [1]}
    )
    assert (
        command_trainer._contradictions(run, {"a": "256", "b": True}, "its record")
        == ""
    )
    wrong = command_trainer._contradictions(run, {"a": "257", "b": True}, "its record")
    assert wrong.startswith("its record has a=257, ")


def test_gpus_are_the_first_that_are_visible(tmp_path, monkeypatch):
    monkeypatch.setattr(gpus, "gpu_ids", lambda: ["3", "1", "0"])
    one, two = planned(num_gpus=3, given={"num_devices": [1, 2]})
    assert (
        command_trainer.variables(two, tmp_path / "x.json")["CUDA_VISIBLE_DEVICES"]
        == "3,1"
    )
    assert two.num_cores is None and two.config["device"] == "gpu"
    written = RunRecord(
        "ok",
        None,
        {"trainer": "x", "num_devices": 2},
        resolved=Resolved(device_type="CPU", cpu_affinity=(0,)),
    )
    assert (
        command_trainer.CommandTrainer()
        ._completed(two, written, process.Ended(0, False, []), "")
        .resolved.device_type
        == "GPU"
    ), "a Recorder's default is no word"
    (on_cpu,) = planned(num_gpus=3, given={"num_devices": [1], "device": ["cpu"]})
    assert (
        command_trainer.variables(on_cpu, tmp_path / "x.json")["CUDA_VISIBLE_DEVICES"]
        == ""
    )
    with pytest.raises(FlagErrors, match="must be at most the 3 GPUs"):
        planned(num_gpus=3, given={"num_devices": [4]})


def test_a_dry_run_shows_each_command_and_warns_of_what_it_lacks(tmp_path, capsys):
    words = ["--num_devices=1,2", "--dry_run", "--cpu_cores_per_device=64"]
    assert go(tmp_path, *words, command="true {result_file}") == 0
    said = capsys.readouterr()
    assert f"true {tmp_path}/out/true-2.json" in said.out and "taskset -c 0" in said.out
    assert "2 to run: duration unknown" in said.out
    assert "has no place {num_devices}" in said.err
    assert (
        "--num_devices=2 needs 128 cores" in said.err
        and not (tmp_path / "out").exists()
    )


def test_two_settings_of_a_trainer_run_in_turns(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(comparison, "compare", lambda *folders, **options: 7)
    words = [f"--out={tmp_path}", "--repeats=1", RATE]
    sides = ["--a=--axis:how=rate", f"--b=--axis:how=rate --trainer='{COMMAND} '"]
    assert ab.main([*words, f"--trainer={COMMAND}", *sides]) == 2
    assert "--b: --trainer=" in capsys.readouterr().err
    assert (
        ab.main(
            [
                *words,
                f"--trainer={COMMAND}",
                "--a=--axis:how=rate",
                "--b=--axis:how=rate --num_devices=2",
            ]
        )
        == 7
    )
    rates = [
        record.read(tmp_path / f"{name}.json").throughput.items_per_second
        for name in ("a/stand_in-1", "b/stand_in-2")
    ]
    assert rates == [1000.0, 2000.0]
    assert ab.main([*words, "--a=--trainer=true", "--b="]) == 2
    assert "--trainer is only on one" in capsys.readouterr().err


def test_from_python(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_rows, "load", lambda folder: folder)
    with pytest.raises(FlagErrors, match="trainer of your own"):
        rnn_scaling.sweep(tmp_path / "out", axes={"how": ["rate"]})
    options = {
        "num_devices": [1, 2],
        "log_format": RATE.partition("=")[2],
        "unit": "words",
    }
    rnn_scaling.sweep(
        tmp_path / "out", trainer=COMMAND, axes={"how": "rate"}, **options
    )
    assert [
        each.throughput.items_per_second for each in records(tmp_path).values()
    ] == [1000.0, 2000.0]
    assert {each.unit for each in records(tmp_path).values()} == {"words"}


def test_a_program_that_prints_no_seconds_is_timed_by_the_sweep(tmp_path, capsys):
    """By the arrival of its lines, or as a whole; the record says which."""
    by_lines = [
        r"--log_format=regex:step (?P<step>\d+)/(?P<total>\d+)",
        "--items_per_step=7*{num_devices}",
    ]
    assert go(tmp_path, "--axis:how=clock", "--num_devices=2", *by_lines) == 0
    assert "arrival of the lines" in capsys.readouterr().err
    (timed,) = records(tmp_path).values()
    assert (timed.log_clock, timed.batches.items, timed.batches.warmup) == (
        "arrival",
        (14,) * 5,
        1,
    )
    assert 0 < timed.log_rounding < 0.5 and timed.throughput.seconds == sum(
        timed.batches.seconds[1:]
    )
    whole = ["--log_format=wall", "--items=50*{num_devices}", "--unit=words", "--force"]
    assert go(tmp_path, "--axis:how=clock", "--num_devices=2", *whole) == 0
    (timed,) = records(tmp_path).values()
    assert (timed.log_clock, timed.log_format, timed.batches.seconds) == (
        "process",
        "wall",
        (),
    )
    assert timed.throughput.items_per_second >= 100 / timed.phases.total > 0
    assert (
        go(
            tmp_path,
            "--axis:how=cut",
            "--num_devices=2",
            RATE.replace(".,", "."),
            "--force",
        )
        == 1
    )
    (cut,) = records(tmp_path).values()
    assert "(?P<rate>{number})" in cut.error.message and cut.error.message.endswith(
        "; see stand_in-2.log.txt"
    )


def test_a_failed_attempt_gives_way_to_the_corrected_command(tmp_path, capsys):
    assert (
        go(
            tmp_path,
            "--axis:how=rate",
            "--num_devices=1",
            "--log_format=regex:wrong (?P<rate>.)",
        )
        == 1
    )
    assert go(tmp_path, "--axis:how=rate", "--num_devices=1", RATE) == 0
    assert records(tmp_path)["stand_in-1"].throughput.items_per_second == 1000.0
    assert (
        go(
            tmp_path,
            "--axis:how=rate",
            "--num_devices=1",
            "--log_format=regex:wrong (?P<rate>.)",
        )
        == 2
    )
    assert "has other flags" in capsys.readouterr().err, "a run with a number is kept"
    for attempt in ("killed", "wrong"):
        assert go(tmp_path, f"--axis:how={attempt}", "--num_devices=2", RATE) == 1
    assert go(tmp_path, "--axis:how=rate", "--num_devices=2", RATE) == 0


def test_a_daemon_of_a_trainer_is_named(tmp_path, capsys):
    assert go(tmp_path, "--axis:how=daemon", "--num_devices=1", RATE) == 0
    found = re.search(
        r"stand_in-1: process (\d+) \((sleep 61)\)", capsys.readouterr().err
    )
    os.kill(int(found[1]), signal.SIGKILL)


def test_the_bar_says_how_far_a_run_is(monkeypatch):
    """Its step, its rate and the time that is left, by the share of its steps where nothing else is known."""
    shown = []
    board = types.SimpleNamespace(
        has_bar=True, elapsed_s=0.0, columns=200, line=shown.append
    )
    board.move = lambda done, postfix: shown.append(postfix)
    monkeypatch.setattr(display, "Board", lambda *args, **options: board)
    watched = display.SweepDisplay(4, 0)
    watched.start("x-1", math.nan)
    for board.elapsed_s, seen in (
        (10.0, Seen(5, 20, 35.25)),
        (11.0, Seen(6, None, None)),
    ):
        watched.output(failure.progress(seen, "words"))
    assert "5/20 batches, 35.2 words/s" in shown[1] and shown[1].startswith(
        "150 s left".replace("150 s", "2 min")
    )
    watched.start("x-1.r2", 3.0)
    board.elapsed_s = 30.0
    watched.output(None)
    assert shown[-1].startswith("? left") and "0 s left" not in shown[-1]
    for step in (19, 1, 2):  # counted anew in an epoch: the share of which run?
        board.elapsed_s += 1
        watched.output(failure.progress(Seen(step, 20, None), "words"))
    assert shown[-1].startswith("? left, x-1.r2 2/20 batches")
