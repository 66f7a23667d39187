"""The pytest marker: it passes, fails or skips by the measured efficiency."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from rnn_scaling.commands import pytest_plugin
from tests.support.paths import ROOT

# A loop whose steps take the same time whatever the machine does.
LOOP = """
import pytest

RATES = {1: 1000.0, 2: %s}

@pytest.mark.scaling(num_devices=2, min_efficiency=0.9, repeats=%d)
def test_it(scaling):
    now = [0.0]

    def train(num_devices, recorder):
        for step in range(14):
            now[0] += 1000 * num_devices / RATES[num_devices] * (1 + 0.001 * step)
            recorder.step(items=1000 * num_devices)

    scaling.function(train, unit="words", clock=lambda: now[0])
"""

PRINTS = """
import sys
n = int(sys.argv[1])
for step in range(20):
    print(f"words/s: {%s * n}", flush=True)
"""
COMMAND = """
import sys
import pytest

@pytest.mark.scaling(num_devices=2, min_efficiency=0.9, repeats=2)
def test_it(scaling):
    scaling.command(
        sys.executable + " prints.py {num_devices}",
        log_format="regex:words/s: {number}",
        unit="words",
    )
"""


# A busy machine would hide efficiencies.
CONFTEST = """
from rnn_scaling.system.machine.load import LoadMeter

LoadMeter.read = lambda self: None
"""

WORST = COMMAND.replace("{num_devices}", "{num_devices} {batch_size}").replace(
    'unit="words"', 'unit="words", batch_size=[32, 64]'
)
# Name -> a test, the program that it runs, its outcome, and a part of its message.
CASES = {
    "linear": (COMMAND, "1000", "passed", ""),
    "slow": (COMMAND, "(1000 if n == 1 else 600)", "failed", "60.0 %"),
    # Only the second batch size scales badly.
    "worst": (
        WORST,
        "(600 if sys.argv[1:] == ['2', '64'] else 1000)",
        "failed",
        "is 60.0 %",
    ),
    "function": (LOOP % (1900.0, 2), "", "passed", ""),
    "slow_function": (LOOP % (1500.0, 2), "", "failed", "75.0 %"),
    "one_run": (LOOP % (1500.0, 1), "", "skipped", "inconclusive"),
    "one_device": (
        LOOP.replace("num_devices=2", "num_devices=1") % (1, 1),
        "",
        "error",
        "num_devices >= 2",
    ),
    "no_marker": ("def test_it(scaling): pass", "", "error", "needs a marker"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return the outcome and the message of each case's test."""
    folder = tmp_path_factory.mktemp("scaling")
    for name, (text, rate, _, _) in CASES.items():
        text = text.replace("prints.py", f"{name}.py")
        (folder / f"test_{name}.py").write_text(text)
        (folder / f"{name}.py").write_text(PRINTS % (rate or "1"))
    (folder / "conftest.py").write_text(CONFTEST)
    words = [sys.executable, "-m", "pytest", "-q", "--tb=short", "--junitxml=x.xml"]
    words += ["-p", "no:cacheprovider", "-p", "rnn_scaling.commands.pytest_plugin"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = {}
    for case in ElementTree.parse(folder / "x.xml").iter("testcase"):
        outcome = ("passed", "")
        for child in case:
            if child.tag in ("failure", "error", "skipped"):
                kind = {"failure": "failed"}.get(child.tag, child.tag)
                outcome = (kind, f"{child.get('message')} {child.text}")
        found[case.get("classname").rpartition("test_")[2]] = outcome
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_outcome_follows_from_the_efficiency(name, results):
    *_, expected, part = CASES[name]
    outcome, message = results[name]
    assert outcome == expected, message
    assert part in message


@pytest.mark.parametrize("disturbed, is_hidden", [(1, True), (0, False)])
def test_an_efficiency_that_load_hides_is_inconclusive(disturbed, is_hidden):
    rows = [{"items_per_second": 9.0, "runs_disturbed": n} for n in (0, disturbed)]
    assert pytest_plugin._are_hidden_by_load(rows) is is_hidden
    missing = [*rows, {"items_per_second": None, "runs_disturbed": 0}]
    assert not pytest_plugin._are_hidden_by_load(missing)
