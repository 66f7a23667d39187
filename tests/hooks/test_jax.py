"""Two JAX processes over gloo, if JAX is installed (./run.sh setup-frameworks jax)."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from rnn_scaling.system.processes import other_python
from tests.hooks.verifying import verify
from tests.support.paths import ROOT

SCRIPT = ROOT / "benchmarks/scripts/train_jax.py"
WORDS = 'total = jax.lax.psum(words, "process")'
pytestmark = pytest.mark.skipif(
    bool(other_python.find_problem("jax", "jax", "0.6")),
    reason="needs a Python with JAX, which ./run.sh setup-frameworks jax installs",
)


@pytest.mark.parametrize(
    ("change", "answer", "cause"),
    [
        ("", "right", None),
        (WORDS.replace("psum", "pmean"), "wrong", "summed"),
    ],
)
def test_a_script_and_its_wrong_twin(tmp_path, change, answer, cause):
    text = SCRIPT.read_text()
    assert WORDS in text
    text = text.replace(WORDS, change or WORDS)
    done = verify(tmp_path, "jax", text)
    verdict = json.loads((tmp_path / "certificate.json").read_text())["verdict"]
    assert (verdict["answer"], verdict["cause"]) == (answer, cause), done.stderr


def test_the_script_runs_without_verify(tmp_path):
    command = [other_python.find_python("jax"), str(SCRIPT), "--steps=2"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=env, check=True)
    assert not list(tmp_path.iterdir())
