"""Fill `describe_graph` and `trace` of a record from a step that has been timed.

docs/record.md describes both.

`step_inspection` calls these functions after the last batch of a run, so that tracing
slows no batch.
"""

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.inspection import chrome, operators, phases, placement, tracing, xplane
from rnn_scaling.inspection.operators import TracedStep
from rnn_scaling.inspection.tracing import Traced
from rnn_scaling.records.decoding import build
from rnn_scaling.records.step_parts import Graph, Trace
from rnn_scaling.system import entry
from rnn_scaling.system.files.output_files import write_bytes
from rnn_scaling.training.train_step import StepResult, TrainStep

# Steps in the trace that records every kernel: two, to compare them.
_COUNTED_STEPS = 2
_TRACE_FILE = "trace.json.gz"


def describe_graph(step: TrainStep) -> Graph:
    """Return operators, placement and copies of a step.

    Raises:
      ValueError: If the step did not collect its graphs.
    """
    collected = step.function_graphs
    if not collected:
        raise ValueError("expected a step that collected its graphs on its first call")
    graphs = list_partitions(step)
    nodes = operators.index_nodes(graphs)
    traced = step.graph()
    num_python = 0
    num_optimized = 0
    for call in collected:
        num_python += operators.count_operators(call.pre_optimization_graph)
        num_optimized += operators.count_operators(call.post_optimization_graph)
    fields = {
        "python": {"operators": num_python},
        "optimized": {"operators": num_optimized},
        "partitions": operators.tally_operators(nodes),
        "placement": {
            "variables": placement.list_variables(
                step.list_variables(), step.tower_gradients, traced, nodes
            )
        },
        "copies": placement.list_copies(graphs, traced),
    }
    if step.cut is not None:
        fields["slicing"] = placement.describe_slices(
            step.cut, step.engine, graphs, traced
        )
    return build(Graph, fields)


def trace(
    step: TrainStep, num_batches: int, log_dir: str, untraced_s: Sequence[float]
) -> Trace:
    """Run the step under the profiler, first to count kernels, then to time them.

    Args:
      step: The step.
      num_batches: Number of batches that are timed.
      log_dir: Folder for the profiler's file and a Chrome trace; "" to keep neither.
      untraced_s: Seconds of the measured batches of this run.
    """
    graphs = list_partitions(step)
    nodes = operators.index_nodes(graphs)
    transfers = operators.find_exchange_transfers(graphs)
    num_towers = len(step.engine.own_devices)
    results: list[StepResult] = []
    entry.note(
        f"tracing {_COUNTED_STEPS} batches to count kernels "
        f"and {num_batches} to time them"
    )
    count_run = tracing.trace(
        lambda: results.append(step()), _COUNTED_STEPS, every_kernel=True
    )
    count_trace = xplane.read(count_run.space, nodes, transfers)
    counted_steps = _share_foreign_towers(count_trace.steps, num_towers)
    time_run = tracing.trace(step, num_batches, log_dir)
    time_trace = xplane.read(time_run.space, nodes, transfers)
    timed_steps = _share_foreign_towers(time_trace.steps, num_towers)
    files = []
    if log_dir:
        profile_file = _write_profile(time_run, Path(log_dir))
        events = chrome.render(timed_steps, num_towers)
        write_bytes(events, Path(log_dir) / _TRACE_FILE)
        files = [profile_file, _TRACE_FILE]
    fields = {
        "batches": num_batches,
        # Items of the step whose kernels are listed by type.
        "items": int(results[_COUNTED_STEPS - 1].items.sum()),
        "kernels": {
            **operators.tally_kernels(counted_steps),
            "input_pipeline": count_trace.num_foreign / _COUNTED_STEPS,
        },
        "cost": {
            "untraced_s": statistics.median(untraced_s),
            "timed_s": time_run.step_s,
            "counted_s": count_run.step_s,
            "start_s": time_run.start_s,
            "stop_s": time_run.stop_s,
        },
        "steps": [phases.split(traced, num_towers) for traced in timed_steps],
        "files": files,
    }
    return build(Trace, fields)


def _write_profile(traced: Traced, log_dir: Path) -> str:
    """Write the profiler's file without iterations; return its path in the folder."""
    xplane.drop_iterations(traced.space)
    write_bytes(traced.space.SerializeToString(), Path(traced.file))
    return str(Path(traced.file).relative_to(log_dir))


def _share_foreign_towers(
    steps: Sequence[TracedStep], num_towers: int
) -> list[TracedStep]:
    """Return the steps with kernels for towers of other processes as shared kernels."""
    shared_towers = []
    for step in steps:
        kernels = []
        for kernel in step.kernels:
            if kernel.tower is not None and kernel.tower >= num_towers:
                kernel = kernel._replace(tower=None)
            kernels.append(kernel)
        shared_towers.append(dataclasses.replace(step, kernels=kernels))
    return shared_towers


def list_partitions(step: TrainStep) -> list[Any]:
    """Return the graphs that run, one per device and function."""
    partitions: list[Any] = []
    for graphs in step.function_graphs:
        partitions += graphs.partition_graphs
    return partitions
