"""The recorder of a script's steps: what it perturbs, and how it ends the script."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from rnn_scaling.hooks import steps
from tests.support.paths import ROOT

# A script whose last step is recorded in a function that catches all exceptions.
ENDING = """
from rnn_scaling.hooks import ranks
print("printed", end="")
try:
    ranks.end_after_last_step()
except BaseException:
    pass
print("continued")
"""


@pytest.fixture
def recorder(tmp_path):
    settings = {"perturb": {"seed": 3, "size": 2.0**-20}, "num_steps": 9}
    recorder = steps.StepRecorder(settings, str(tmp_path / "rank0.jsonl"))
    recorder.set_weights({}, {})
    yield recorder
    recorder._file.close()


def test_weights_of_one_shape_are_perturbed_independently(recorder):
    weights = np.ones(4000)
    first, second, again = (
        recorder.perturbed(name, weights) - 1 for name in ("w1", "w2", "w1")
    )
    assert (first == again).all()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1


def test_the_last_step_ends_the_script_after_its_output():
    command = [sys.executable, "-E", "-c", ENDING]  # -E: with a buffer
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "printed")
