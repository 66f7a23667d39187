"""The hook that traces an unchanged PyTorch script, with a small stand-in for torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rnn_scaling.system.files.terminal import RESULT_VARIABLE

ROOT = Path(__file__).resolve().parents[2]

TORCH = """
import json

class cuda:
    is_available = staticmethod(lambda: False)

class profiler:
    class ProfilerActivity:
        CPU = "cpu"

    @staticmethod
    def schedule(**parts):
        return parts

    class profile:
        def __init__(self, activities, schedule, on_trace_ready):
            self.schedule = schedule
            self.ready = on_trace_ready
            self.steps = 0
            self.is_running = False

        def start(self):
            self.is_running = True

        def step(self):
            assert self.is_running
            self.steps += 1
            if self.steps == sum(self.schedule[n] for n in ("wait", "warmup", "active")):
                self.ready(self)

        def stop(self):
            assert self.is_running
            self.is_running = False
            self.ready(self)

        def export_chrome_trace(self, path):
            with open(path, "w") as file:
                json.dump({"steps": self.steps, **self.schedule}, file)
"""

OPTIMIZER = """
hooks = []

def register_optimizer_step_post_hook(hook):
    hooks.append(hook)

class Optimizer:
    def step(self):
        for hook in hooks:
            hook(self, (), {})
"""

SCRIPT = """
import sys
from torch.optim.optimizer import Optimizer

first = Optimizer()
second = Optimizer()
for _ in range(int(sys.argv[1])):
    first.step()
    second.step()
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def run_hook(tmp_path):
    """Run the script below the hook, with (steps, exit status) and variables."""
    optim = tmp_path / "torch/optim"
    optim.mkdir(parents=True)
    (tmp_path / "torch/__init__.py").write_text(TORCH)
    (optim / "__init__.py").write_text("")
    (optim / "optimizer.py").write_text(OPTIMIZER)
    (tmp_path / "my.py").write_text(SCRIPT)

    def run(flags, steps, status=0, **variables):
        words = [*flags, "my.py", str(steps), str(status)]
        path = f"{tmp_path}:{ROOT}"
        return subprocess.run(
            [sys.executable, "-m", "rnn_scaling.hooks.trace", *words],
            cwd=tmp_path,
            env={"PYTHONPATH": path, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_each_rank_writes_one_trace_after_the_skipped_steps(run_hook, tmp_path):
    flags = ["--trace_batches=3", "--skipped_batches=4", "--folder=kept"]
    ended = run_hook(flags, steps=20, status=5, RANK="1")
    assert ended.returncode == 5
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["rank1.json.gz"]
    trace = json.loads((tmp_path / "kept/rank1.json.gz").read_text())
    assert trace == {"steps": 7, "wait": 3, "warmup": 1, "active": 3, "repeat": 1}


def test_a_sweep_keeps_the_trace_next_to_the_record(run_hook, tmp_path):
    ended = run_hook([], steps=20, **{RESULT_VARIABLE: str(tmp_path / "run7.json")})
    assert ended.returncode == 0
    assert (tmp_path / "run7.traces/rank0.json.gz").exists()


def test_a_script_with_too_few_steps_leaves_no_trace(run_hook, tmp_path):
    ended = run_hook(["--trace_batches=3"], steps=12)
    assert ended.returncode == 0
    assert "13 steps" in ended.stderr
    assert "1 fewer" in ended.stderr
    assert not (tmp_path / "traces").exists()


@pytest.mark.parametrize("flag", ["--trace_batches=0", "--skipped_batches=-1"])
def test_a_wrong_number_is_refused(run_hook, flag):
    ended = run_hook([flag], steps=20)
    assert ended.returncode == 2
    assert flag in ended.stderr
