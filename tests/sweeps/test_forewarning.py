"""What will lie in the numbers is said before a sweep starts: devices beyond the cores, and other processes."""

from __future__ import annotations

import pytest

from rnn_scaling.commands import sweep
from rnn_scaling.machine.load import Load
from rnn_scaling.settings import config as configs
from rnn_scaling.sweeps import forewarning


def resolved(**given):
    return configs.resolve({"device": "cpu", **given}, num_gpus=0, num_cores=2)


def test_devices_beyond_the_cores_are_warned_of_with_what_they_can_reach():
    kinds = [resolved(num_devices=n, variable_update=mode) for n in (1, 2, 4) for mode in ("independent", "replicated")]
    (line,) = forewarning.crowding(kinds, num_cores=2)
    assert (
        line.startswith("--num_devices=4: devices share cores, for they want 4 of 2: ")
        and "at most 50 % of the ideal" in line
    )
    assert "takes at least 2 times as long, if one device keeps its core busy" in line
    assert not forewarning.crowding(kinds, num_cores=4)
    wide = resolved(num_devices=2, cpu_cores_per_device=4)
    (line,) = forewarning.crowding([wide], num_cores=2)  # one device has but 2 cores, too, and need not use both
    assert "at most 50 %" in line and line.endswith("if one device keeps 2 cores busy")
    (line,) = forewarning.crowding([resolved(cpu_cores_per_device=4)], num_cores=2)
    assert line == "--cpu_cores_per_device=4: there are 2, so that a device has no more"
    gpu = configs.resolve({"device": "gpu", "num_devices": 4}, num_gpus=4, num_cores=2)
    assert not forewarning.crowding([gpu], num_cores=2)


def test_workers_beyond_the_cores_are_warned_of_unless_a_launcher_finds_them_others():
    workers = resolved(num_devices=2, num_workers=2, variable_update="collective_all_reduce")
    (line,) = forewarning.crowding([workers], num_cores=2)
    assert line.startswith("--num_workers=2, --num_devices=2: devices share cores, for they want 4 of 2: ")
    assert forewarning.before([workers], dry_run=True, elsewhere=True) == []


def test_threads_beyond_the_cores_are_warned_of():
    (line,) = forewarning.crowding([resolved(intra_op_parallelism_threads=3)], num_cores=2)
    assert line.startswith("--intra_op_parallelism_threads=3: more threads than the 2 cores")


@pytest.mark.parametrize("load, said", [(Load(0.58, 0.0, 0.3), True), (Load(0.01, 0.02, 0.3), False), (None, False)])
def test_load_of_others_is_warned_of(load, said):
    class Meter:
        def __init__(self, cores):
            self.cores = cores

        def read(self):
            return load

    slept = []
    line = forewarning.load_now([0, 1], slept.append, Meter)
    assert slept == [forewarning.WATCHED_S] and (line is not None) == said
    assert not said or line.startswith("other processes use 58% of the 2 cores now: rates will be lower")


def test_a_sweep_says_so_before_it_starts(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(forewarning, "available_cores", lambda: [0, 1])
    monkeypatch.setattr(forewarning, "load_now", lambda: "others are busy")
    words = [f"--out={tmp_path}/out", "--device=cpu", "--num_devices=1,4", "--variable_update=independent"]
    assert sweep.main([*words, "--dry_run"]) == 0
    told = capsys.readouterr()
    assert told.err.startswith("warning: --num_devices=4: devices share cores") and "others are" not in told.err
    assert "cudnn_lstm is one fused kernel: cuDNN on GPUs, BlockLSTM on CPUs" in told.out.splitlines()
    assert forewarning.before([resolved(num_devices=2)], dry_run=False) == ["others are busy"]
