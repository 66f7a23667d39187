"""The test suite itself: an empty run fails, --quick does without TensorFlow, and so on."""

import ast
import subprocess
import sys
import types

from tests import conftest
from tests.conftest import CLUSTERS, LONG, SLOW, TESTS
from tests.support.paths import ROOT

NO_TESTS_COLLECTED = 5  # pytest's own exit status


def run_tests(*words):
    """Run pytest with the options of ./run.sh test."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--numprocesses=2",
        "--dist=loadfile",
        *words,
    ]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def test_a_run_of_no_test_fails():
    done = run_tests("tests/test_suite.py", "-k=no_test_is_named_so")
    assert done.returncode == NO_TESTS_COLLECTED


def test_quick_leaves_out_what_loads_tensorflow():
    done = run_tests(
        "--quick",
        "--numprocesses=0",
        "--collect-only",
        "-q",
        "tests/reports",
        "tests/system/machine",
    )
    assert done.returncode == 0, done.stdout
    assert "machine/test_clock_sampler.py::" in done.stdout
    assert "test_graph_view" not in done.stdout
    assert "::test_the_batches_of_a_run_" not in done.stdout


def test_clusters_are_started_where_they_are_asked_for():
    def ignored(*words, clusters=False):
        options = {"quick": False, "clusters": clusters}
        config = types.SimpleNamespace(getoption=options.__getitem__, args=words)
        return conftest.pytest_ignore_collect(TESTS / CLUSTERS[-1], config)

    assert ignored("tests/training") is True and ignored() is True
    assert ignored("tests/training", clusters=True) is None
    assert ignored(f"tests/{CLUSTERS[-1]}::test_one") is None


def test_functions_are_traced_as_the_trainers_are():
    """Expect autograph=False in all calls of tf.function.

    AutoGraph would parse and compile each traced function, which takes seconds and
    changes the code.
    """
    written = {
        path: path.read_text()
        for room in ("tests", "rnn_scaling", "models")
        for path in (ROOT / room).rglob("*.py")
    }
    calls = [
        (path.name, node.lineno, [word.arg for word in getattr(node, "keywords", [])])
        for path, text in written.items()
        if "tf.function" in text
        for node in list_functions(ast.parse(text))
    ]
    assert len(calls) > 40
    assert not [call for call in calls if "autograph" not in call[2]]


def list_functions(tree):
    """Yield calls of tf.function, and its uses without a call."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tf.function"
    ]
    names = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "tf.function"
    ]
    return iter(
        [
            *calls,
            *(node for node in names if not any(node is call.func for call in calls)),
        ]
    )


def test_slow_files_are_there():
    assert all((TESTS / name).exists() for name in (*SLOW, *LONG, *CLUSTERS))
