"""Imports go down: siblings do not know each other, `models` knows nothing of `rnn_scaling`; few load TensorFlow."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# From the ground up; a file may import from the lines above its own, never from its own line.
FLOORS = [
    ["models/config.py", "models/batch.py", "models/kernels.py", "rnn_scaling/registry.py", "rnn_scaling/machine.py"],
    ["rnn_scaling/inspection/scopes.py", "rnn_scaling/inspection/events.py", "rnn_scaling/inspection/collect.py"],
    ["rnn_scaling/native_log.py", "rnn_scaling/load.py", "rnn_scaling/entry.py", "rnn_scaling/student.py"],
    ["rnn_scaling/nvml.py", "rnn_scaling/topo_matrix.py"],
    ["rnn_scaling/levels.py", "rnn_scaling/topology.py", "rnn_scaling/clock_sources.py"],
    ["rnn_scaling/statistics.py", "rnn_scaling/clocks.py"],
    ["rnn_scaling/steady_state.py"],
    ["rnn_scaling/progress.py", "rnn_scaling/timing.py", "rnn_scaling/scaling_table.py"],
    ["rnn_scaling/sweeps/estimate.py", "rnn_scaling/sweeps/failure.py", "rnn_scaling/sweeps/process.py"],
    ["rnn_scaling/sweeps/tether.py"],
    ["rnn_scaling/all_reduce_spec.py", "rnn_scaling/config.py", "rnn_scaling/record.py", "models/lstm.py"],
    ["rnn_scaling/inspection/operators.py"],
    ["rnn_scaling/inspection/phases.py"],
    ["rnn_scaling/inspection/step_parts.py", "rnn_scaling/inspection/chrome.py"],
    ["rnn_scaling/fact_readers.py"],
    ["rnn_scaling/facts.py"],
    ["rnn_scaling/importers/common.py", "rnn_scaling/importers/json_stream.py", "rnn_scaling/importers/rank_totals.py"],
    ["rnn_scaling/importers/nccl_rows.py"],
    ["rnn_scaling/importers/"],
    ["rnn_scaling/trace_dbs/database.py", "rnn_scaling/trace_dbs/cupti.py"],
    ["rnn_scaling/trace_dbs/layout.py"],
    ["rnn_scaling/trace_dbs/nsys.py", "rnn_scaling/trace_dbs/nvprof.py", "rnn_scaling/trace_dbs/sweep.py"],
    ["rnn_scaling/trace_dbs/summary.py"],
    ["rnn_scaling/trace_dbs/cut.py"],
    ["rnn_scaling/intervals.py", "rnn_scaling/tables/columns.py"],
    ["rnn_scaling/tables/grid.py"],
    ["rnn_scaling/finding.py", "rnn_scaling/causes.py", "rnn_scaling/baselines.py", "rnn_scaling/work_model.py"],
    ["rnn_scaling/tables/asides.py"],
    ["rnn_scaling/tables/text.py", "rnn_scaling/tables/json_rows.py", "rnn_scaling/tables/interpret.py"],
    ["rnn_scaling/tables/records.py", "rnn_scaling/tables/delimited.py", "rnn_scaling/checks/context.py"],
    ["rnn_scaling/checks/batch_rule.py"],
    ["rnn_scaling/tables/reading.py", "rnn_scaling/checks/"],
    ["rnn_scaling/audit.py", "rnn_scaling/importers/checked.py"],
    ["rnn_scaling/metrics/speedup.py"],
    ["rnn_scaling/flags.py", "rnn_scaling/rules.py", "rnn_scaling/run_state.py", "rnn_scaling/metrics/"],
    ["rnn_scaling/sweeps/options.py", "rnn_scaling/sweeps/plan.py", "rnn_scaling/sweeps/display.py"],
    ["rnn_scaling/sweeps/folder.py", "rnn_scaling/sweeps/traced.py"],
    ["rnn_scaling/sweeps/conduct.py"],
    ["rnn_scaling/data/corpus.py", "rnn_scaling/data/source.py", "rnn_scaling/gradients.py", "rnn_scaling/engines/"],
    ["rnn_scaling/rows.py", "rnn_scaling/optimizers.py", "rnn_scaling/shuffle_reduce.py"],
    ["rnn_scaling/comparability.py", "rnn_scaling/inspection/counts.py", "rnn_scaling/inspection/thread_probe.py"],
    ["rnn_scaling/inspection/growth.py", "rnn_scaling/inspection/why.py"],
    ["rnn_scaling/data/feed.py", "rnn_scaling/data/synthetic.py", "models/cross_entropy.py", "models/encoders/"],
    ["rnn_scaling/attribution.py", "rnn_scaling/reports/folder.py", "rnn_scaling/reports/environment.py"],
    ["rnn_scaling/reports/summary.py", "rnn_scaling/reports/steps.py"],
    ["rnn_scaling/reports/table.py", "rnn_scaling/reports/figures.py", "rnn_scaling/reports/csv_table.py"],
    ["rnn_scaling/reports/answer.py", "rnn_scaling/trace_dbs/report.py", "rnn_scaling/reports/step_figures.py"],
    ["rnn_scaling/inspection/counts_table.py", "rnn_scaling/inspection/threads_table.py"],
    ["rnn_scaling/inspection/placement_table.py"],
    ["rnn_scaling/reports/page_parts.py"],
    ["rnn_scaling/reports/inside.py"],
    ["rnn_scaling/data/", "rnn_scaling/all_reduce/", "rnn_scaling/reports/", "rnn_scaling/replica.py"],
    ["rnn_scaling/inspection/kernels.py", "rnn_scaling/inspection/xplane.py", "rnn_scaling/inspection/placement.py"],
    ["rnn_scaling/inspection/tracing.py"],
    ["rnn_scaling/matching.py", "rnn_scaling/run_text.py", "rnn_scaling/graph_view.py", "rnn_scaling/phases.py"],
    ["rnn_scaling/tensorboard.py", "rnn_scaling/reports/log_folder.py"],
    ["rnn_scaling/report_plugin.py"],
    ["rnn_scaling/judging.py"],
    ["rnn_scaling/reports/comparison.py"],
    ["rnn_scaling/compare.py"],
    ["rnn_scaling/all_reduce/exchange.py", "models/seq2seq.py"],
    ["rnn_scaling/variable_update/"],
    ["rnn_scaling/towers.py"],
    ["rnn_scaling/inspection/observe.py"],
    ["rnn_scaling/import_log.py", "rnn_scaling/trace_db.py", "rnn_scaling/tensorboard_app.py"],
    ["rnn_scaling/benchmark.py", "rnn_scaling/report.py"],
    ["rnn_scaling/train.py", "rnn_scaling/sweep.py"],
    ["rnn_scaling/link_tests/fit.py", "rnn_scaling/link_tests/rounds.py", "rnn_scaling/link_tests/display.py"],
    ["rnn_scaling/link_tests/series.py", "rnn_scaling/link_tests/room.py", "rnn_scaling/link_tests/cuda.py"],
    ["rnn_scaling/link_tests/"],
    ["rnn_scaling/link_tests/reduce.py", "rnn_scaling/link_tests/table.py"],
    ["rnn_scaling/link_tests/picture.py", "rnn_scaling/link_tests/worker.py"],
    ["rnn_scaling/links.py"],
    ["rnn_scaling/ab.py", "rnn_scaling/inspect_steps.py", "rnn_scaling/threads.py"],
]
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


def floor_of(module):
    named = {entry: floor for floor, entries in enumerate(FLOORS) for entry in entries}
    if module in named:
        return named[module]
    folder = str(Path(module).parent) + "/"
    assert folder in named, f"{module} stands on no floor: add it to the table"
    return named[folder]


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


@pytest.mark.parametrize("module", modules())
def test_imports_go_down(module):
    for imported in imports(module) - {"tensorflow"}:
        assert floor_of(imported) < floor_of(module), f"{module} imports {imported}"
        assert imported.startswith("models/") or not module.startswith("models/"), f"{module} imports {imported}"


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
