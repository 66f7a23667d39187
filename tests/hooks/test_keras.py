"""Two Keras workers of TensorFlow, if Keras is installed (./run.sh setup-frameworks keras)."""

from __future__ import annotations

import json

import pytest

from rnn_scaling.system.processes import other_python
from tests.hooks.verifying import verify
from tests.support.paths import ROOT

SCRIPT = ROOT / "benchmarks/scripts/train_keras.py"
SUM = "ReduceOp.SUM"
pytestmark = pytest.mark.skipif(
    bool(other_python.find_problem("keras", "keras", "3.12")),
    reason="needs a Python with Keras, which ./run.sh setup-frameworks keras installs",
)


@pytest.mark.parametrize(
    ("operation", "answer", "cause"),
    [(SUM, "right", None), ("ReduceOp.MEAN", "wrong", "summed")],
)
def test_a_script_and_its_wrong_twin(tmp_path, operation, answer, cause):
    text = SCRIPT.read_text()
    assert text.count(SUM) == 1
    done = verify(tmp_path, "keras", text.replace(SUM, operation))
    verdict = json.loads((tmp_path / "certificate.json").read_text())["verdict"]
    assert (verdict["answer"], verdict["cause"]) == (answer, cause), done.stderr
