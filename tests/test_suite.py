"""The suite itself: a run of no test is no success, --quick loads no TensorFlow, and long files come first."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import CLUSTERS, SLOW, TESTS
from tests.support.paths import ROOT

NO_TESTS_COLLECTED = 5  # pytest's own exit status


def run_tests(*words: str) -> subprocess.CompletedProcess[str]:
    """pytest, as ./run.sh test runs it."""
    command = [sys.executable, "-m", "pytest", "--numprocesses=2", "--dist=loadfile", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("words", [["tests/test_suite.py", "-k=no_test_is_named_so"], ["--quick", "tests/models"]])
def test_a_run_of_no_test_fails(words):
    assert run_tests(*words).returncode == NO_TESTS_COLLECTED


def test_quick_leaves_out_what_loads_tensorflow():
    done = run_tests("--quick", "--numprocesses=0", "--collect-only", "-q", "tests/reports", "tests/machine")
    assert done.returncode == 0 and "tests/machine/test_clock_sampler.py::" in done.stdout, done.stdout
    assert "test_graph_view" not in done.stdout and "test_the_batches_of_a_run_are_sampled" not in done.stdout


def test_clusters_are_started_where_they_are_asked_for():
    lists = ["--numprocesses=0", "--collect-only", "-q"]
    assert "test_server_faults" not in run_tests(*lists, "tests/training").stdout
    for words in (["--clusters", "tests/training"], ["tests/training/test_server_faults.py"]):
        assert "tests/training/test_server_faults.py" in run_tests(*lists, *words).stdout


def test_slow_files_are_there():
    assert all((TESTS / name).exists() for name in (*SLOW, *CLUSTERS))
