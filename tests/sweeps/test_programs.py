"""User-defined trainers in sweep, ab and Python: rules for their commands, and their ends."""

import json
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
from rnn_scaling.records import folder, record, script_certificate
from rnn_scaling.records.environment import Resolved
from rnn_scaling.records.importers.reading import RunProgress
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import certificates, comparison, conclusions, report_files
from rnn_scaling.reports.summary import summarise
from rnn_scaling.sweeps import (
    display,
    early_checks,
    estimate,
    failure,
    program_plan,
    program_trainer,
)
from rnn_scaling.sweeps.axes import split_axes
from rnn_scaling.sweeps.program_options import TrainerOptions
from rnn_scaling.sweeps.program_trainer import ProgramTrainer
from rnn_scaling.system.machine import gpus
from rnn_scaling.system.machine.cores import list_first_cores
from rnn_scaling.system.processes import process
from tests.support.names_taken import KINDS, put
from tests.support.paths import ROOT
from tests.support.sweeping import records

# A busy machine would hide speedups from the report.
pytestmark = pytest.mark.usefixtures("quiet_machine")

STAND_IN = f"{shlex.quote(sys.executable)} {ROOT}/tests/support/stand_in.py"
COMMAND = f"{STAND_IN} {{how}} {{num_devices}}"
PATTERN = r"--log_format=regex:step (?P<step>\d+): (?P<ms>\S+) ms, loss (?P<loss>\S+)"
ITEMS = "--items_per_step=100*{num_devices}"
RATE = "--log_format=regex:words/s: (?P<rate>[0-9.,]+)"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Skip reports and the check of the load; let the fake trainer find this package."""
    monkeypatch.setattr(report_files, "report", lambda source, target: None)
    monkeypatch.setattr(early_checks, "check_load", lambda: [])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def go(tmp_path, *words, command=COMMAND):
    words = [f"--out={tmp_path}/out", "--repeats=1", *words]
    return sweep.main([f"--trainer={command}", *words])


def find_only_result(tmp_path):
    [result] = records(tmp_path).values()
    return result


def make_plan(
    command="true {num_devices}", axes=None, num_gpus=0, num_cores=2, given=None, **own
):
    options = TrainerOptions(trainer=command, **own)
    return program_plan.plan(
        options, axes or {}, given or {}, num_gpus=num_gpus, num_cores=num_cores
    )


KILLED = "Signal: killed by SIGKILL: "
NO_RECORD = "NoRecord: ended with exit status 0, but wrote no record, and "
UNREADABLE = "NoRecord: ended with exit status 0, but its record cannot be read: "
ENDS = {
    "wrong": "Contradiction: its record has num_devices=3, ",
    "slow": "NoRecord: ended with exit status 0, but its output is contradictory: ",
    "crash": "NoRecord: ended with exit status 1 and no result: RuntimeError: no such luck",
    "silent": NO_RECORD,
    "half": UNREADABLE,
    "folder": UNREADABLE,
    "link": UNREADABLE,
    "escapes": NO_RECORD,
    "signal": KILLED,
    "killed": KILLED,
}


def test_every_end_of_a_trainer_is_a_row(tmp_path, capsys):
    """Check the record, the log and the leftovers of each trainer."""
    ends = ",".join(["record", "steps", "late", *ENDS])
    words = [f"--axis:how={ends}", "--num_devices=2", PATTERN, ITEMS, "--unit=words"]
    assert go(tmp_path, *words) == 1
    found = {}
    for name, each in records(tmp_path).items():
        found[name.removeprefix("stand_in-2-how=")] = each
        assert each.config["num_devices"] == 2
    recorded, read, late = found["record"], found["steps"], found["late"]
    assert (recorded.status, recorded.log_format, recorded.ended) == ("ok", None, None)
    assert recorded.throughput.items == 11 * 200 + sum(range(1, 12))
    assert (late.status, late.ended) == ("ok", "exit status 3")
    assert late.throughput.items == recorded.throughput.items, "its numbers count"
    # A match every ten steps of 0.25 ms and 200 items, the first left out.
    batches = read.batches
    assert batches.warmup == 1
    assert batches.measured == 7
    assert batches.loss[0] == 8.0
    assert read.throughput.items == 14_000
    assert read.unit == "words"
    assert read.throughput.seconds == pytest.approx(7 * 0.0025)
    assert read.log_format == PATTERN.removeprefix("--log_format=")
    assert read.environment.started and not read.environment.packages
    assert read.resolved.cpu_affinity == tuple(list_first_cores(2))
    for how, reason in ENDS.items():
        error = found[how].error
        assert f"{error.type}: {error.message}".startswith(reason), how
        assert found[how].status == "failed" and found[how].throughput is None
    log = (tmp_path / "out/stand_in-2-how=steps.log.txt").read_text()
    assert f"cores {list_first_cores(2)} devices 2\n" in log and "on stderr\n" in log
    said = capsys.readouterr().err
    assert "how=late: " in said and "\x1b" not in said
    hidden = [path.name for path in (tmp_path / "out").glob(".*")]
    assert hidden == [".sweep.lock"], "no files of ranks"
    assert go(tmp_path, *words) == 1
    assert "13 of 13 runs are finished" in capsys.readouterr().err


def test_a_log_that_tells_the_rate_alone_is_a_row_with_its_speedup(tmp_path, capsys):
    formats = f"--log_format=seed,auto,{RATE.partition('=')[2]}"
    words = ["--axis:how=rate", "--num_devices=1,2", formats]
    assert go(tmp_path, *words) == 0
    one, two = records(tmp_path).values()
    log = (tmp_path / "out/stand_in-1.log.txt").read_text()
    assert f"cores {list_first_cores(1)} devices 1\n" in log
    assert one.resolved.cpu_affinity == tuple(list_first_cores(1))
    rate = two.throughput
    assert rate.items_per_second == 2000.0
    assert rate.items is None
    assert rate.seconds is None
    assert not two.batches.seconds
    assert two.config["log_format"].startswith("seed_trainer,auto,regex:")
    assert go(tmp_path, *words) == 0
    assert "2 of 2 runs are finished" in capsys.readouterr().err
    assert go(tmp_path, "--axis:how=rate", "--num_devices=1", RATE) == 2
    said = capsys.readouterr().err
    assert "has other flags (--log_format=" in said, "the same work, read otherwise"


def test_what_a_log_says_of_devices_is_held_against_the_sweep(tmp_path):
    log = tmp_path / "seed.txt"
    log.write_text(
        "|gpu number|batch_size|total time|speed|speedup ratio|\n|2|64|10.5|1200.0|1.00|\n"
    )
    assert go(tmp_path, "--num_devices=1,2", command=f"cat {log}") == 1
    wrong, right = (records(tmp_path)[f"cat-{n}"] for n in (1, 2))
    assert wrong.error.type == "Contradiction"
    assert right.throughput.items_per_second == 1200.0
    assert right.unit == "words"
    assert right.config["batch_size"] == 64
    assert right.log_format == "seed_trainer"


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_of_a_sweep_overwrites_no_other_file_and_waits_for_no_reader(
    tmp_path, kind, capsys
):
    put(kind, tmp_path / "out/echo-1.log.txt", tmp_path / "precious")
    status = go(tmp_path, "--num_devices=1", RATE, command="echo words/s: 5")
    assert (tmp_path / "precious").read_text() == "mine\n"
    assert not (tmp_path / "nowhere").exists()
    if kind == "hard link":
        assert status == 0 and records(tmp_path)["echo-1"].status == "ok"
    else:
        assert status == 1 and "echo-1.log.txt" in capsys.readouterr().err


def test_of_a_flood_of_lines_so_many_are_kept_as_are_read(tmp_path):
    words = ["--num_devices=1", RATE, "--max_file_mb=1"]
    assert go(tmp_path, *words, command="seq -f %0200g 6000") == 1
    assert "--max_file_mb=1" in find_only_result(tmp_path).error.message
    assert (tmp_path / "out/seq-1.log.txt").stat().st_size <= 1e6


def test_a_hang_is_a_row_with_its_last_words(tmp_path, monkeypatch):
    asked = []

    def hung(tasks, timeout_s, on_line, is_progress, arrivals):
        asked.append((timeout_s, is_progress is not None, tasks[0].reads_stdout))
        return process.ProcessOutcome(-15, True, ["epoch 1", "=====", "step 7"])

    monkeypatch.setattr(process, "run_together", hung)
    words = ["--axis:how=x", "--num_devices=1"]
    assert go(tmp_path, *words) == 1
    error = find_only_result(tmp_path).error
    assert error.type == "Timeout"
    assert error.message.endswith("7); see stand_in-1.log.txt")
    assert go(tmp_path, *words, "--run_timeout=5", "--retry_failed") == 1
    assert asked == [(estimate.SILENT_S, True, True), (5.0, False, True)]


@pytest.mark.parametrize(
    "words, line",
    [
        (["--trainer=no-such-program x"], "no-such-program was not found"),
        (
            ["--trainer=true {hidden}"],
            "--trainer: {hidden} is not an option of this sweep; add --axis:hidden=",
        ),
        (
            ["--trainer=true", "--axis:hidden=1"],
            "--axis:hidden: --trainer has no placeholder {hidden}",
        ),
        (
            ["--trainer=true {xla}", "--xla=true", "--axis:xla=1"],
            "--xla and --axis:xla name the same option; give one",
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
            ["--trainer=true", "--log_format=regex:loss (?P<loss>.)"],
            "add --items_per_step=PRODUCT",
        ),
        (
            [
                "--trainer=true {n}",
                "--axis:n=0",
                "--log_format=regex:(?P<ms>.)",
                "--items_per_step=2*{n}",
            ],
            "--items_per_step=2*{n} is 2*0, but must be above 0",
        ),
        (["--trainer=true", "--certify"], "--certify checks only this suite's trainer"),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_remedy(tmp_path, capsys, words, line):
    assert sweep.main([f"--out={tmp_path}/out", "--num_devices=1", *words]) == 2
    assert line in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_command_is_words_and_not_a_shell(tmp_path):
    command = "env X={hidden} true '{{}}' {fast} '{hidden} a b' $HOME {repeat}"
    slow, fast = make_plan(
        command,
        {"hidden": ["a b;c"], "fast": ["", "--fast"]},
        given={"num_devices": [2]},
    )
    place = tmp_path / "x.json"
    assert ProgramTrainer().build_command(slow, place).words == [
        "env",
        "X=a b;c",
        "true",
        "{}",
        "a b;c a b",
        "$HOME",
        "1",
    ]
    assert ProgramTrainer().build_command(fast, place).words[4] == "--fast"
    assert slow.name == "env-2-fast="
    assert fast.name == "env-2-fast=_fast"


def test_options_are_numbers_where_they_read_as_one():
    axes = {"a": ["1"], "b": ["0.5"], "c": ["inf"]}
    [run] = make_plan("true x {a} {b} {c}", axes, given={"num_devices": [1]})
    assert [run.config[name] for name in "abc"] == [1, 0.5, "inf"]
    words = ["--axis:xla=1,false", "--axis:num_gpus=2", "--axis:learning_rate=1e-3"]
    axes, rest = split_axes(words)
    assert rest == ["--num_gpus=2"]
    one, two = make_plan("true {xla} {learning_rate}", axes, given={"num_devices": [2]})
    assert [run.texts["xla"] for run in (one, two)] == ["1", "false"]
    assert [run.config["xla"] for run in (one, two)] == [True, False]
    assert one.texts["learning_rate"] == "1e-3"
    assert one.config["learning_rate"] == 0.001


OWN_MODEL = {"model": ["its_own"]}


@pytest.mark.parametrize(
    "command, options, expected",
    [
        ("true -m torch.distributed.run my/train.py", {}, {"trainer": "train"}),
        ("true -m a.b", {}, {"trainer": "a.b"}),
        ("true", {}, {"trainer": "true"}),
        ("true", {"trainer_name": "mine"}, {"trainer": "mine"}),
        ("true {model}", {"given": OWN_MODEL}, {"model": "its_own"}),
        ("true {model}", {"axes": OWN_MODEL}, {"model": "its_own"}),
    ],
)
def test_options_have_the_values_of_the_program(command, options, expected):
    run, *more_runs = make_plan(command, num_cores=3, **options)
    assert expected.items() <= run.config.items()
    assert [each.num_devices for each in more_runs] == [2, 3]


@pytest.mark.parametrize("a, is_same", [("256", True), ("257", False)])
def test_what_a_record_says_may_be_written_otherwise(a, is_same):
    axes = {"a": ["256"], "b": ["true"]}
    [run] = make_plan("true {a} {b}", axes, given={"num_devices": [1]})
    found = program_trainer._find_contradiction(run, {"a": a, "b": True}, "its record")
    assert (found == "") == is_same


def test_gpus_are_the_first_that_are_visible(tmp_path, monkeypatch):
    monkeypatch.setattr(gpus, "list_gpu_ids", lambda: ["3", "1", "0"])
    one, two = make_plan(num_gpus=3, given={"num_devices": [1, 2]})
    variables = ProgramTrainer().build_command(two, tmp_path / "x.json").variables
    assert variables["CUDA_VISIBLE_DEVICES"] == "3,1"
    assert two.num_cores is None and two.config["device"] == "gpu"
    # A Recorder's default does not count.
    own = Resolved(device_type="CPU", cpu_affinity=(0,))
    options = {"trainer": "x", "num_devices": 2}
    written = RunRecord("ok", None, options, resolved=own)
    ended = process.ProcessOutcome(0, False, [])
    complete = ProgramTrainer()._complete(two, written, ended, "")
    assert complete.resolved.device_type == "GPU"
    [on_cpu] = make_plan(num_gpus=3, given={"num_devices": [1], "device": ["cpu"]})
    variables = ProgramTrainer().build_command(on_cpu, tmp_path / "x.json").variables
    assert variables["CUDA_VISIBLE_DEVICES"] == ""
    with pytest.raises(FlagErrors, match="must be at most the number of GPUs"):
        make_plan(num_gpus=3, given={"num_devices": [4]})


def test_a_dry_run_shows_each_command_and_warns_of_what_it_lacks(tmp_path, capsys):
    words = ["--num_devices=1,2", "--dry_run", "--cpu_cores_per_device=64"]
    assert go(tmp_path, *words, command="true {result_file}") == 0
    out, err = capsys.readouterr()
    assert f"true {tmp_path}/out/true-2.json" in out and "taskset -c 0" in out
    assert "has no placeholder {num_devices}" in err and "needs 128 cores" in err
    assert not (tmp_path / "out").exists()


def test_two_settings_of_a_trainer_run_in_turns(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(comparison, "compare", lambda *folders, **options: 7)

    def compare(*sides):
        return ab.main([f"--out={tmp_path}", "--repeats=1", RATE, *sides])

    common = f"--trainer={COMMAND}"
    rate = "--axis:how=rate"
    assert compare(common, f"--a={rate}", f"--b={rate} --trainer='{COMMAND} '") == 2
    assert compare("--a=--trainer=true", "--b=") == 2
    assert capsys.readouterr().err.count("--trainer") >= 2
    assert compare(common, f"--a={rate}", f"--b={rate} --num_devices=2") == 7
    rates = [
        record.read(tmp_path / f"{name}.json").throughput.items_per_second
        for name in ("a/stand_in-1", "b/stand_in-2")
    ]
    assert rates == [1000.0, 2000.0]


def test_from_python(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_rows, "load", lambda folder: folder)
    with pytest.raises(FlagErrors, match="your own trainer"):
        rnn_scaling.sweep(tmp_path / "out", axes={"how": ["rate"]})
    options = {"log_format": RATE.partition("=")[2], "unit": "words"}
    options |= {"trainer": COMMAND, "axes": {"how": "rate"}, "num_devices": [1, 2]}
    rnn_scaling.sweep(tmp_path / "out", **options)
    found = records(tmp_path).values()
    assert [each.throughput.items_per_second for each in found] == [1000.0, 2000.0]
    assert {each.unit for each in found} == {"words"}


def test_a_program_that_prints_no_seconds_is_timed_by_the_sweep(tmp_path):
    """Time each line by its arrival, or else the whole run; record which of them it was."""
    clock = ["--axis:how=clock", "--num_devices=2"]
    steps = r"--log_format=regex:step (?P<step>\d+)/(?P<total>\d+)"
    assert go(tmp_path, *clock, steps, "--items_per_step=7*{num_devices}") == 0
    timed = find_only_result(tmp_path)
    assert timed.log_clock == "arrival"
    assert timed.batches.warmup == 1
    assert timed.batches.items == (14,) * 5
    assert 0 < timed.log_rounding < 0.5
    assert timed.throughput.seconds == sum(timed.batches.seconds[1:])
    whole = ["--log_format=wall", "--items=50*{num_devices}", "--force"]
    assert go(tmp_path, *clock, *whole) == 0
    timed = find_only_result(tmp_path)
    assert timed.log_clock == "process"
    assert timed.log_format == "wall"
    assert not timed.batches.seconds
    assert timed.throughput.items_per_second >= 100 / timed.phases.total > 0


def test_a_failed_attempt_gives_way_to_the_corrected_command(tmp_path):
    def attempt(how, pattern=RATE, devices=1):
        return go(tmp_path, f"--axis:how={how}", f"--num_devices={devices}", pattern)

    wrong = "--log_format=regex:wrong (?P<rate>.)"
    assert attempt("rate", wrong) == 1
    assert attempt("rate") == 0
    assert find_only_result(tmp_path).throughput.items_per_second == 1000.0
    assert attempt("rate", wrong) == 2, "a run with a number is kept"
    for how in ("killed", "wrong"):
        assert attempt(how, devices=2) == 1
    assert attempt("rate", devices=2) == 0


def test_a_daemon_of_a_trainer_is_named(tmp_path, capsys):
    assert go(tmp_path, "--axis:how=daemon", "--num_devices=1", RATE) == 0
    found = re.search(
        r"stand_in-1: process (\d+) \((sleep 61)\)", capsys.readouterr().err
    )
    os.kill(int(found[1]), signal.SIGKILL)


def test_the_bar_says_how_far_a_run_is(monkeypatch):
    """Expect the step, the rate and the remaining time of a run.

    Without an estimate, the remaining time follows from the finished share of the steps.
    """
    shown = []
    board = types.SimpleNamespace(
        has_bar=True, elapsed_s=0.0, columns=200, line=shown.append
    )
    board.move = lambda done, postfix: shown.append(postfix)
    monkeypatch.setattr(display, "Board", lambda *args, **options: board)
    watched = display.SweepDisplay(4, 0)
    watched.start("x-1", math.nan)
    for board.elapsed_s, seen in (
        (10.0, RunProgress(5, 20, 35.25)),
        (11.0, RunProgress(6, None, None)),
    ):
        watched.show_output(failure.format_progress(seen, "words"))
    assert shown[1].startswith("2 min left")
    assert "5/20 batches, 35.2 words/s" in shown[1]
    watched.start("x-1.r2", 3.0)
    board.elapsed_s = 30.0
    watched.show_output(None)
    assert shown[-1].startswith("? left") and "0 s left" not in shown[-1]
    # If steps are counted per epoch, the finished share of the run is unknown.
    for step in (19, 1, 2):
        board.elapsed_s += 1
        watched.show_output(
            failure.format_progress(RunProgress(step, 20, None), "words")
        )
    assert shown[-1].startswith("? left, x-1.r2 2/20 batches")


def certificate_file(tmp_path, command="python3 my.py", **verdict):
    path = tmp_path / "certificate.json"
    content = {
        "schema": script_certificate.SCHEMA,
        "command": command,
        "num_ranks": 2,
        "date": "2026-01-31",
        "verdict": {"answer": "right", "cause": None, "step": None, **verdict},
    }
    path.write_text(json.dumps(content))
    return f"--certificate={path}"


STAND_IN_COMMAND = "python3 tests/support/stand_in.py"
WRONG = {"answer": "wrong", "cause": "summed", "step": 1}


@pytest.mark.parametrize(
    "verdict, holds",
    [
        ({}, [True, True]),
        (WRONG, [None, False]),
        ({"answer": "cannot tell"}, [None] * 2),
    ],
)
def test_records_of_a_program_get_its_certificate(tmp_path, verdict, holds):
    flag = certificate_file(tmp_path, STAND_IN_COMMAND, **verdict)
    status = go(tmp_path, flag, "--num_devices=1,2", "--axis:how=steps", PATTERN, ITEMS)
    assert status == (1 if False in holds else 0)
    runs = sorted(folder.read(tmp_path / "out").runs, key=lambda run: run.name)
    found = [run.record.certificate for run in runs]
    assert [each and each.holds for each in found] == holds
    if False in holds:
        [statement] = found[1].statements
        assert statement["values"]["cause"] == "summed"
        assert statement["values"]["date"] == "2026-01-31"
        summary = summarise(folder.read(tmp_path / "out"), "out")
        first, *_ = conclusions.state_answer(summary)
        assert first.kind == "trains-wrong"
        assert all(map(certificates.trains_wrong, summary.series))


@pytest.mark.parametrize(
    "command, verdict, reason",
    [
        (STAND_IN_COMMAND, {"answer": "yes"}, "--certificate="),
        (STAND_IN_COMMAND, {"answer": "wrong"}, "--certificate="),
        ("python3 other.py", {}, "other.py"),
    ],
)
def test_a_certificate_that_is_broken_or_of_another_script_is_refused_before_any_run(
    tmp_path, command, verdict, reason, capsys
):
    flag = certificate_file(tmp_path, command, **verdict)
    words = [flag, "--num_devices=1", "--axis:how=steps", PATTERN, ITEMS]
    assert go(tmp_path, *words) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
