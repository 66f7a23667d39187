"""Warnings before a sweep starts: devices beyond the cores, and load of other processes."""

import pytest

from rnn_scaling.commands import sweep
from rnn_scaling.config import run_config as configs
from rnn_scaling.sweeps import early_checks, suite_trainer
from rnn_scaling.sweeps.plan import Run
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer
from rnn_scaling.system.machine.load import Load
from tests.support.configs import resolve


def resolve_on_cpu(**given):
    return resolve({"device": "cpu", **given})


WORKERS = {
    "num_devices": 2,
    "num_workers": 2,
    "variable_update": "collective_all_reduce",
}


@pytest.mark.parametrize(
    "given, start, key",
    [
        ({"num_devices": 4}, "--num_devices=4 needs 4 cores", "at most 50 %"),
        (
            {"num_devices": 2, "cpu_cores_per_device": 4},
            "--num_devices=2 needs 8 cores",
            "at most 50 %",
        ),
        (WORKERS, "--num_workers=2, --num_devices=2 needs 4 cores", "2 times as long"),
        ({"cpu_cores_per_device": 4}, "--cpu_cores_per_device=4 ", "(2)"),
    ],
)
def test_runs_that_need_more_cores_than_there_are_give_one_warning(given, start, key):
    [line] = early_checks.check_cores([resolve_on_cpu(**given)] * 2, num_cores=2)
    assert line.startswith(start) and key in line


def test_runs_with_enough_cores_and_runs_on_gpus_give_none():
    fitting = [
        resolve_on_cpu(num_devices=2),
        configs.resolve({"device": "gpu", "num_devices": 4}, num_gpus=4, num_cores=2),
    ]
    assert early_checks.check_cores(fitting, num_cores=2) == []


@pytest.mark.parametrize(
    "load, warns",
    [(Load(0.58, 0.0, 0.3), True), (Load(0.01, 0.02, 0.3), False), (None, False)],
)
def test_load_of_other_processes_gives_a_warning(load, warns):
    class Meter:
        def __init__(self, cores):
            self.cores = cores

        def read(self):
            return load

    slept = []
    lines = early_checks.check_load([0, 1], slept.append, Meter)
    assert slept == [early_checks.WATCHED_S] and len(lines) == warns
    assert not warns or "58% of the cores" in lines[0]


def test_warnings_come_before_the_runs_unless_a_launcher_starts_them_elsewhere(
    monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(suite_trainer, "list_available_cores", lambda: [0, 1])
    monkeypatch.setattr(early_checks, "check_load", lambda: ["busy"])
    words = [
        f"--out={tmp_path}/out",
        "--device=cpu",
        "--num_devices=1,4",
        "--variable_update=independent",
    ]
    assert sweep.main([*words, "--dry_run"]) == 0
    output = capsys.readouterr()
    assert output.err.startswith("warning: --num_devices=4 needs")
    assert "busy" not in output.err
    run = Run("run", {}, resolve_on_cpu(num_devices=2))
    assert SuiteTrainer().list_warnings([run], dry_run=False) == ["busy"]
    assert SuiteTrainer(launch="srun").list_warnings([run], dry_run=False) == []
