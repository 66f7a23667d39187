"""Sweeps whose runs start before their turns, with a trainer that keeps to the order and computes nothing."""

import sys
import types

import pytest

from rnn_scaling.records import record
from rnn_scaling.sweeps import conduct, display, early_checks, ranks, suite_trainer
from rnn_scaling.sweeps.plan import Run
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer
from tests.support.configs import resolve
from tests.support.faults import is_alive
from tests.support.records import change_record

TRAINER = """
import os, sys, time
from rnn_scaling.system.processes import early_start
from rnn_scaling.records import record
from rnn_scaling.config import run_config as config, flags
from tests.support.records import make_record
given = flags.parse(sys.argv[1:], config.OPTIONS)
path = given["result_file"]
def log(event):
    with open(f"{os.path.dirname(path)}/log", "a") as file:
        file.write(f"{event} {os.path.basename(path)} {os.getpid()}\\n")
log("start")
if "dies" in path:
    sys.exit("error: --num_devices=3: no such luck")
if "hangs" in os.path.basename(path) and open(f"{os.path.dirname(path)}/log").read().count("start hangs") == 1:
    time.sleep(3600)
if early_start.is_early():
    early_start.wait_for_turn()
    early_start.wait_for_following()
print("measuring: 1/2 batches", file=sys.stderr, flush=True)
if "stays" in os.path.basename(path):
    time.sleep(3600)
record.write(make_record(config=config.resolve(given, num_gpus=0, num_cores=2).flat()), path)
log("finish")
"""
COMMAND = (sys.executable, "-c", TRAINER)


@pytest.fixture(autouse=True)
def with_that_trainer(monkeypatch):
    monkeypatch.setattr(ranks, "TRAINER", COMMAND)
    monkeypatch.setattr(early_checks, "check_load", lambda: [])


def sweep(folder, *names, command=COMMAND, run_timeout=None, **given):
    given = {"device": "cpu", "num_devices": 1, **given}
    runs = [Run(name, given, resolve(given)) for name in names]
    trainer = SuiteTrainer(command)
    options = conduct.ConductOptions(run_timeout=run_timeout)
    conductor = conduct.Conductor(folder, options, trainer, ["sweep"])
    outcome = conductor.run_repeats(runs, 1)
    assert trainer._next_process is None
    return outcome


def sweep_both_ways(folder, *names):
    """Yield the records of sweeps with and without processes that start early."""
    commands = {
        "early": COMMAND,
        "alone": (*COMMAND[:2], f"{TRAINER}\n"),
    }  # the second is not the suite's own
    for how, command in commands.items():
        results = sweep(folder / how, *names, command=command).records.values()
        yield [
            change_record(result, config={**result.config, "result_file": ""})
            for result in results
        ]


def read_log(folder):
    return [line.split() for line in (folder / "log").read_text().splitlines()]


def events(folder):
    return [f"{event} {name}" for event, name, _ in read_log(folder)]


def test_each_process_starts_before_its_turn_and_leaves_the_same_record(tmp_path):
    early, alone = sweep_both_ways(tmp_path, "a", "b", "c")
    assert early == alone and all(result.status == "ok" for result in early)
    early, alone = (events(tmp_path / how) for how in ("early", "alone"))
    for before, after in (("a", "b"), ("b", "c")):
        start, finish = f"start {after}.json", f"finish {before}.json"
        assert early.index(start) < early.index(finish)
        assert alone.index(start) > alone.index(finish)


def test_a_process_that_ends_before_its_turn_is_a_failed_run_like_any_other(tmp_path):
    early, alone = sweep_both_ways(tmp_path, "a", "dies", "c")
    assert early == alone
    assert [result.status for result in early] == ["ok", "failed", "ok"]
    assert early[1].error.message.endswith("--num_devices=3: no such luck")


@pytest.mark.parametrize("error, status", [(KeyboardInterrupt, 130), (OSError, 1)])
def test_an_end_of_the_sweep_leaves_no_process_and_no_record_of_a_run_whose_turn_has_not_come(
    error, status, tmp_path, monkeypatch
):
    def fail(self, line):
        if line and line.startswith("measuring: "):
            raise error

    monkeypatch.setattr(display.SweepDisplay, "show_output", fail)
    assert sweep(tmp_path, "stays", "b", "c").exit_status == status
    assert "start b.json" in events(tmp_path) and not (tmp_path / "b.json").exists()
    assert record.read(tmp_path / "stays.json").error.type == "Killed"
    assert not any(is_alive(int(pid)) for _, _, pid in read_log(tmp_path))


def test_a_process_that_hangs_while_it_loads_early_is_started_anew_in_its_turn(
    tmp_path, monkeypatch
):
    def monotonic():
        return (
            1000.0
            if (tmp_path / "log").exists() and "start hangs.json" in events(tmp_path)
            else 0.0
        )

    monkeypatch.setattr(
        suite_trainer, "time", types.SimpleNamespace(monotonic=monotonic)
    )
    results = sweep(tmp_path, "a", "hangs", "c", run_timeout=60.0).records.values()
    assert [result.status for result in results] == ["ok", "ok", "ok"]
    assert [event for event in events(tmp_path) if "hangs" in event] == [
        "start hangs.json"
    ] * 2 + ["finish hangs.json"]
    assert not any(is_alive(int(pid)) for _, _, pid in read_log(tmp_path))


@pytest.mark.parametrize(
    "given, launch",
    [
        ({"variable_update": "collective_all_reduce", "num_workers": 2}, ""),
        ({"framework": "torch"}, ""),
        ({}, "env"),
    ],
)
def test_runs_of_several_processes_of_launchers_and_of_other_frameworks_wait_for_their_turns(
    given, launch
):
    config = resolve({"device": "cpu", **given})
    assert ranks.Starter(COMMAND, launch).can_start_early(config) is False
