"""Looks inside a step that has been timed: its graphs, its kernels, where its time goes -> the record's two parts.

docs/record.md describes `graph` and `trace`.
"""

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.inspection import chrome, operators, phases, placement, tracing, xplane
from rnn_scaling.records.decoding import build
from rnn_scaling.records.step_parts import Graph, Trace
from rnn_scaling.system import entry
from rnn_scaling.system.files.output_files import write_bytes
from rnn_scaling.training.towers import StepResult, TrainStep

COUNTED_STEPS = (
    2  # under the trace of every kernel; two, so that a difference between steps shows
)
TRACE_FILE = "trace.json.gz"


def graph(step: TrainStep) -> Graph:
    """The record's `graph`: operators, placement, copies. The step must have collected its graphs."""
    collected = step.function_graphs
    if not collected:
        raise ValueError("expected a step that collected its graphs on its first call")
    parts = partitions(step)
    nodes = operators.nodes_of(parts)
    traced = step.graph()
    fields = {
        "python": {
            "operators": sum(
                operators.num_operators(call.pre_optimization_graph)
                for call in collected
            )
        },
        "optimized": {
            "operators": sum(
                operators.num_operators(call.post_optimization_graph)
                for call in collected
            )
        },
        "partitions": operators.tally_operators(nodes),
        "placement": {
            "variables": placement.variables(
                step.variable_states(), step.tower_gradients, traced, nodes
            )
        },
        "copies": placement.copies(parts, traced),
    }
    if step.cut is not None:
        fields["slicing"] = placement.slices(step.cut, step.engine, parts, traced)
    return build(Graph, fields)


def trace(
    step: TrainStep, num_batches: int, log_dir: str, untraced_s: Sequence[float]
) -> Trace:
    """The record's `trace`: runs the step under the profiler, first to count kernels, then to time them.

    log_dir: keeps the profiler's file and a Chrome trace; "": neither is kept. untraced_s: seconds of the same run's
    measured batches.
    """
    parts = partitions(step)
    nodes = operators.nodes_of(parts)
    exchanged = operators.exchanged(parts)
    num_towers = len(step.engine.own_devices)
    results: list[StepResult] = []
    entry.note(
        f"tracing {COUNTED_STEPS} batches to count kernels and {num_batches} to time them"
    )
    counted = tracing.trace(
        lambda: results.append(step()), COUNTED_STEPS, every_kernel=True
    )
    every = _of_towers(xplane.read(counted.space, nodes, exchanged), num_towers)
    timed = tracing.trace(step, num_batches, log_dir)
    expensive = _of_towers(xplane.read(timed.space, nodes, exchanged), num_towers)
    files = [str(Path(timed.file).relative_to(log_dir))] if log_dir else []
    if log_dir:
        xplane.drop_iterations(timed.space)
        write_bytes(timed.space.SerializeToString(), Path(timed.file))
        write_bytes(
            chrome.render(expensive.steps, num_towers), Path(log_dir) / TRACE_FILE
        )
        files.append(TRACE_FILE)
    cost = {
        "timed_s": timed.step_s,
        "counted_s": counted.step_s,
        "start_s": timed.start_s,
        "stop_s": timed.stop_s,
    }
    fields = {
        "batches": num_batches,
        "items": int(
            results[COUNTED_STEPS - 1].items.sum()
        ),  # of the step whose kernels are listed by type
        "kernels": {
            **operators.tally_kernels(every.steps),
            "input_pipeline": every.foreign / COUNTED_STEPS,
        },
        "cost": {"untraced_s": statistics.median(untraced_s), **cost},
        "steps": [phases.split(traced, num_towers) for traced in expensive.steps],
        "files": files,
    }
    return build(Trace, fields)


def _of_towers(trace: xplane.XplaneTrace, num_towers: int) -> xplane.XplaneTrace:
    """The trace with what runs here for towers of other processes, whose kernels run elsewhere, as everybody's."""
    steps = []
    for step in trace.steps:
        kernels = [
            kernel._replace(tower=None) if (kernel.tower or 0) >= num_towers else kernel
            for kernel in step.kernels
        ]
        steps.append(dataclasses.replace(step, kernels=kernels))
    return trace._replace(steps=steps)


def partitions(step: TrainStep) -> list[Any]:
    """The graphs that run, one a device, of a step that collected them."""
    return [
        partition
        for graphs in step.function_graphs
        for partition in graphs.partition_graphs
    ]
