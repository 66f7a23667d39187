"""The pytest marker: it passes, fails or skips by the measured efficiency."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


def run_pytest(folder, text, **files):
    (folder / "test_scaling.py").write_text(text)
    for name, content in files.items():
        (folder / f"{name}.py").write_text(content)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "--tb=line",
        "-p",
        "no:cacheprovider",
    ]
    words += ["-p", "rnn_scaling.commands.pytest_plugin", "test_scaling.py"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("rate", "status", "result"),
    [("1000", 0, "1 passed"), ("(1000 if n == 1 else 600)", 1, "1 failed")],
)
def test_a_program_passes_or_fails_by_its_efficiency(tmp_path, rate, status, result):
    done = run_pytest(tmp_path, COMMAND, prints=PRINTS % rate)
    assert done.returncode == status, done.stdout + done.stderr
    assert result in done.stdout
    if status:
        assert "60.0 %" in done.stdout


def test_the_worst_of_several_configurations_decides(tmp_path):
    """Only the second batch size scales badly."""
    command = COMMAND.replace("{num_devices}", "{num_devices} {batch_size}")
    command = command.replace('unit="words"', 'unit="words", batch_size=[32, 64]')
    rate = "(600 if sys.argv[1:] == ['2', '64'] else 1000)"
    done = run_pytest(tmp_path, command, prints=PRINTS % rate)
    assert "1 failed" in done.stdout, done.stdout + done.stderr
    assert "is 60.0 %" in done.stdout


@pytest.mark.parametrize(
    ("rate", "repeats", "result"),
    [(1900.0, 2, "1 passed"), (1500.0, 2, "1 failed"), (1500.0, 1, "1 skipped")],
)
def test_a_function_fails_only_if_its_runs_can_show_it(tmp_path, rate, repeats, result):
    done = run_pytest(tmp_path, LOOP % (rate, repeats))
    assert result in done.stdout, done.stdout + done.stderr
    assert ("inconclusive" in done.stdout) == ("skipped" in result)


def test_a_marker_out_of_range_and_a_missing_one_are_usage_errors(tmp_path):
    done = run_pytest(tmp_path, LOOP.replace("num_devices=2", "num_devices=1") % (1, 1))
    assert "num_devices >= 2" in done.stdout and "1 error" in done.stdout
    done = run_pytest(tmp_path, "def test_it(scaling): pass")
    assert "needs a marker" in done.stdout and "1 error" in done.stdout
