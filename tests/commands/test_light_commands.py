"""Commands that only read files never load TensorFlow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.inspection.trace_databases import databases
from tests.support import histories, log_samples
from tests.support.compared import write
from tests.support.paths import ROOT

RESULTS = ROOT / "docs" / "results"
READING = {
    "audit": (["table.md"], ["matplotlib"], 1),
    "compare": (["before", "after"], ["matplotlib"], 0),
    "history": (["check", "h"], ["matplotlib"], 0),
    "import_log": (["a.log"], ["matplotlib", "scipy"], 0),
    "inspect": ([str(RESULTS / "phases")], ["matplotlib"], 0),
    "report": ([str(RESULTS / "phases"), "--output=out"], [], 0),
}


@pytest.mark.parametrize("name", READING)
def test_reading_loads_no_tensorflow(name, tmp_path):
    words, unloaded, status = READING[name]
    (tmp_path / "a.log").write_text(log_samples.HOROVOD_SYNTHETIC)
    (tmp_path / "table.md").write_text(
        "| GPUs | Speed | Speedup |\n|--|--|--|\n| 1 | 100 | 1.0 |\n| 2 | 150 | 3.0 |\n"
    )
    databases.nsys(tmp_path / "db")
    histories.write(tmp_path / "h", [1000.0] * 20)
    for side in ("before", "after"):
        write(tmp_path / side, [1000.0, 1001.0, 999.0, 1000.5 + len(side)])
    code = (
        f"import sys; from rnn_scaling.commands import {name}; status = {name}.main(sys.argv[1:]); "
        f"assert not {{'tensorflow', *{unloaded}}} & set(sys.modules); sys.exit(status)"
    )
    command = [sys.executable, "-c", code, *words]
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stderr) == (status, "") and done.stdout
