"""Check that a step runs on its devices, and that its clock covers their work.

`verify` calls `check_step` for a step that it has built.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rnn_scaling.inspection import observe, operators, tracing, xplane
from rnn_scaling.inspection.operators import COPY, TracedStep
from rnn_scaling.inspection.trace_databases.sweep import Union
from rnn_scaling.records.certificate import Check
from rnn_scaling.records.step_parts import BACKWARD, FORWARD
from rnn_scaling.system.machine.cores import list_available_cores
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.train_step import TrainStep

_NUM_STEPS = 10  # steps that are timed, and steps that are traced
# Two clocks may differ by _SLACK_S and this share of a step.
_CLOCK_TOLERANCE = 0.02
_SLACK_S = 2e-4
# Types that must run on the device of their tower. Shapes and control flow may run on
# the host.
_HEAVY_TYPES = (
    "MatMul",
    "BatchMatMul",
    "Conv2D",
    "CudnnRNN",
    "BlockLSTM",
    "LSTMBlockCell",
    "SoftmaxCrossEntropy",
    "FusedBatchNorm",
)


class _StepTimes(NamedTuple):
    """The time that all untraced steps took together."""

    clock_s: float
    core_s: float  # CPU time of all threads of the process


def check_step(step: TrainStep, engine: Engine) -> Iterator[Check]:
    """Yield all checks of a step.

    They run the step further, which changes the weights: nothing may be measured or
    compared afterwards. The step must have been built with collected graphs.
    """
    yield check_variable_placement(step, engine)
    yield check_operator_placement(step, engine)
    yield from _check_clock(step, engine)


def check_variable_placement(step: TrainStep, engine: Engine) -> Check:
    """Check the devices of variables and of their updates."""
    name = "placement of variables"
    placement = observe.describe_graph(step).placement
    variables = placement.variables if placement else ()
    owned_variables = []
    for variable in variables:
        if variable.tower is not None:
            owned_variables.append((variable, engine.devices[variable.tower]))
    if not owned_variables:
        text = (
            f"the towers share all variables ({len(variables)}), so none must "
            "be on a particular device"
        )
        return Check(name=name, holds=None, text=text)
    for variable, device in owned_variables:
        if variable.device != device or variable.update.device != device:
            text = (
                f"{variable.name} of tower {variable.tower} is on {variable.device}, "
                f"updated on {variable.update.device}"
            )
            return Check(name=name, holds=False, text=text)
    text = (
        f"the variables ({len(owned_variables)}) and their updates are on their "
        "towers' devices"
    )
    return Check(name=name, holds=True, text=text)


def check_operator_placement(step: TrainStep, engine: Engine) -> Check:
    """Check the devices of the towers' products and fused kernels."""
    heavy_nodes = []
    misplaced_nodes = []
    nodes = operators.index_nodes(observe.list_partitions(step))
    for node in nodes.values():
        tower = node.owner.tower
        if tower is None or node.owner.phase not in (FORWARD, BACKWARD):
            continue
        if any(kind in node.type for kind in _HEAVY_TYPES):
            heavy_nodes.append(node)
            if node.device != engine.devices[tower]:
                misplaced_nodes.append(node)
    text = (
        f"the products and fused kernels ({len(heavy_nodes)}) are on their towers' "
        "devices"
    )
    if misplaced_nodes:
        first = misplaced_nodes[0]
        text = (
            f"{len(misplaced_nodes)} of {len(heavy_nodes)} are elsewhere, such as "
            f"a {first.type} of tower {first.owner.tower} on {first.device}"
        )
    holds = bool(heavy_nodes) and not misplaced_nodes
    return Check(name="placement of operators", holds=holds, text=text)


def _check_clock(step: TrainStep, engine: Engine) -> Iterator[Check]:
    """Compare the step's clock with the profiler's kernels and the cores' time."""
    untraced = _time_steps(step)
    try:
        partitions = observe.list_partitions(step)
        traced = tracing.trace(step, _NUM_STEPS)
        traced_steps = xplane.read(
            traced.space,
            operators.index_nodes(partitions),
            operators.find_exchange_transfers(partitions),
        ).steps
    except xplane.TraceError as e:
        yield Check(name="clock", holds=None, text=str(e))
        return
    yield _compare_with_profiler(traced.step_s, traced_steps)
    yield _check_last_kernel(traced_steps, engine)
    yield _compare_with_cores(untraced)


def _compare_with_profiler(
    clock_step_s: list[float], traced_steps: Sequence[TracedStep]
) -> Check:
    """Compare the seconds of each step with its span in the profiler's trace."""
    span_s = _read_spans_s(traced_steps)
    holds = all(
        abs(span - seconds) <= _SLACK_S + _CLOCK_TOLERANCE * span
        for span, seconds in zip(span_s, clock_step_s)
    )
    text = (
        f"{_format_ms(clock_step_s)} per step by this suite's clock, "
        f"{_format_ms(span_s)} by the profiler's clock"
    )
    return Check(name="clock against the profiler's", holds=holds, text=text)


def _check_last_kernel(traced_steps: Sequence[TracedStep], engine: Engine) -> Check:
    """Check that the clock is read after the last kernel; else it misses work."""
    latest_s = max(_measure_after_step(traced_step) for traced_step in traced_steps)
    holds = latest_s <= _SLACK_S
    busy_s = [_sum_busy_s(traced_step) for traced_step in traced_steps]
    kind = "GPUs' kernels" if engine.device_type == "GPU" else "kernels"
    text = (
        f"{kind} take {_format_ms(busy_s)} of a step of "
        f"{_format_ms(_read_spans_s(traced_steps))}; the last one ends "
        f"{_format_ms([max(0.0, -latest_s)])} before the clock was read"
    )
    if not holds:
        text = f"a kernel ends {_format_ms([latest_s])} after the clock was read"
    return Check(name="clock after the last kernel", holds=holds, text=text)


def _compare_with_cores(times: _StepTimes) -> Check:
    """Check that the cores were not busy for longer than the clock allows.

    If the clock leaves out a part of the step, its cores seem to do too much work.
    """
    num_cores = len(list_available_cores())
    busy_cores = times.core_s / times.clock_s
    text = (
        f"busy cores: {busy_cores:.2f} of {num_cores} on average, in {_NUM_STEPS} "
        f"steps of {1000.0 * times.clock_s / _NUM_STEPS:.2f} ms"
    )
    holds = busy_cores <= num_cores * (1 + _CLOCK_TOLERANCE)
    return Check(name="clock against the cores'", holds=holds, text=text)


def _time_steps(step: TrainStep) -> _StepTimes:
    """Time untraced steps, after one that is not timed."""
    step()
    start_s = time.perf_counter()
    start_core_s = time.process_time()
    for _ in range(_NUM_STEPS):
        step()
    return _StepTimes(
        clock_s=time.perf_counter() - start_s,
        core_s=time.process_time() - start_core_s,
    )


def _read_spans_s(traced_steps: Sequence[TracedStep]) -> list[float]:
    """Return the seconds of each step by the profiler's clock."""
    return [(step.end_ns - step.start_ns) / 1e9 for step in traced_steps]


def _measure_after_step(step: TracedStep) -> float:
    """Return how long the last kernel of a step runs after the step's end.

    Negative if the kernel ends first.
    """
    last_ns = max((kernel.end_ns for kernel in step.kernels), default=step.start_ns)
    return (last_ns - step.end_ns) / 1e9


def _sum_busy_s(step: TracedStep) -> float:
    """Return the seconds in which any device ran a kernel.

    Kernels are in order of their starts.
    """
    busy = Union()
    for kernel in step.kernels:
        if kernel.kind != COPY:
            busy.add(kernel.start_ns, kernel.end_ns)
    return busy.length / 1e9


def _format_ms(seconds: list[float]) -> str:
    """Return the median of seconds in milliseconds, as text."""
    return f"{1e3 * statistics.median(seconds):.2f} ms"
