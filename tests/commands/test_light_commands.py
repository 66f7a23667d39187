"""Commands that only read files never load TensorFlow."""

from tests.support import histories, log_samples
from tests.support.compared import write
from tests.support.paths import ROOT
from tests.support.python import python

PHASES = ROOT / "docs/results/phases"
# Commands with their words, what they do not load either, and their exit status. Later
# commands load more.
COMMANDS = [
    ("import_log", ["a.log"], {"matplotlib", "scipy"}, 0),
    ("audit", ["table.md"], {"matplotlib"}, 1),
    ("compare", ["before", "after"], {"matplotlib"}, 0),
    ("history", ["check", "h"], {"matplotlib"}, 0),
    ("inspect", [str(PHASES)], {"matplotlib"}, 0),
    ("report", [str(PHASES), "--output=out"], set(), 0),
]
CODE = f"""
import importlib, sys
for name, words, unloaded, expected in {COMMANDS!r}:
    status = importlib.import_module(f"rnn_scaling.commands.{{name}}").main(words)
    loaded = {{"tensorflow", *unloaded}} & set(sys.modules)
    assert (status, loaded) == (expected, set()), (name, status, loaded)
"""


def test_reading_loads_no_tensorflow(tmp_path):
    (tmp_path / "a.log").write_text(log_samples.HOROVOD_SYNTHETIC)
    (tmp_path / "table.md").write_text(
        "| GPUs | Speed | Speedup |\n|--|--|--|\n| 1 | 100 | 1.0 |\n| 2 | 150 | 3.0 |\n"
    )
    histories.write(tmp_path / "h", [1000.0] * 20)
    for side in ("before", "after"):
        write(tmp_path / side, [1000.0, 1001.0, 999.0, 1000.5 + len(side)])
    done = python(CODE, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
