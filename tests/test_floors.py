"""Imports go in no circle, `models` knows nothing of `rnn_scaling`; few load TensorFlow."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# The only files that load TensorFlow: flags, validation and reports answer at once.
TENSORFLOW = [
    "models/lstm.py",
    "models/cross_entropy.py",
    "models/seq2seq.py",
    "models/encoders/",
    "rnn_scaling/all_reduce/",
    "rnn_scaling/data/",
    "rnn_scaling/engines/",
    "rnn_scaling/variable_update/",
    "rnn_scaling/benchmark.py",
    "rnn_scaling/gradients.py",
    "rnn_scaling/graph_view.py",
    "rnn_scaling/inspection/collect.py",
    "rnn_scaling/inspection/observe.py",
    "rnn_scaling/inspection/placement.py",
    "rnn_scaling/inspection/tracing.py",
    "rnn_scaling/link_tests/device_copies.py",
    "rnn_scaling/link_tests/reduce.py",
    "rnn_scaling/link_tests/worker.py",
    "rnn_scaling/optimizers.py",
    "rnn_scaling/replica.py",
    "rnn_scaling/shuffle_reduce.py",
    "rnn_scaling/tensorboard.py",
    "rnn_scaling/towers.py",
]
NEVER_TENSORFLOW = ["rnn_scaling/data/corpus.py", "rnn_scaling/data/make_corpus.py"]
LOADED_LATE = {("rnn_scaling/train.py", "rnn_scaling/benchmark.py")}  # inside the function that runs the benchmark


def modules():
    return sorted(
        str(path.relative_to(ROOT))
        for folder in ("rnn_scaling", "models")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "__init__.py"
    )


def imports(module):
    """Project files that a file imports, at its top or inside its functions."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            path = name.replace(".", "/") + ".py"
            if (ROOT / path).exists() and path.startswith(("rnn_scaling", "models", "tests")):
                found.add(path)
            elif name.split(".")[0] == "tensorflow":
                found.add("tensorflow")
    return found


def test_no_file_imports_itself_through_others():
    graph = {module: imports(module) - {"tensorflow"} for module in modules()}
    assert list(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("module", modules())
def test_models_know_nothing_of_the_suite(module):
    imported = imports(module) - {"tensorflow"}
    assert not module.startswith("models/") or all(name.startswith("models/") for name in imported)


@pytest.mark.parametrize("module", modules())
def test_only_the_files_that_need_it_load_tensorflow(module):
    loads = {m for m in imports(module) if m == "tensorflow" or (may_load(m) and (module, m) not in LOADED_LATE)}
    assert may_load(module) or not loads, f"{module} loads {loads}"


def may_load(module):
    return module not in NEVER_TENSORFLOW and any(module.startswith(entry) for entry in TENSORFLOW)


def test_init_files_are_empty():
    for folder in ("rnn_scaling", "models", "tests"):
        for path in (ROOT / folder).rglob("__init__.py"):
            assert path.read_text() == "", path
