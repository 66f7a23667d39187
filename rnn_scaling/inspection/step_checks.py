"""Whether a step runs where it should, and whether its clock covers what the devices do."""

import statistics
import time
from collections.abc import Iterator

from rnn_scaling.inspection import observe, operators, tracing, xplane
from rnn_scaling.inspection.operators import COPY, TracedStep
from rnn_scaling.records.certificate import Check
from rnn_scaling.records.step_parts import BACKWARD, FORWARD
from rnn_scaling.system.machine.cores import available_cores
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.towers import TrainStep

STEPS = 10  # that are timed, and that are traced
CLOCKS = 0.02  # share of a step by which two clocks may differ, in addition to SLACK_S
SLACK_S = 2e-4
# What does a tower's work; shapes and numbers of control flow may be on the host whatever the device.
HEAVY = (
    *("MatMul", "BatchMatMul", "Conv2D", "CudnnRNN"),
    *("BlockLSTM", "LSTMBlockCell", "SoftmaxCrossEntropy", "FusedBatchNorm"),
)


def checks(step: TrainStep, engine: Engine) -> Iterator[Check]:
    """Yield all checks of a step that has collected its graphs."""
    yield from placement(step, engine)
    yield from clock(step, engine)


def placement(step: TrainStep, engine: Engine) -> Iterator[Check]:
    """Whether variables, their updates and the towers' work are on the towers' devices."""
    devices = engine.devices
    graph = observe.graph(step)
    variables = graph.placement.variables if graph.placement else ()
    placed = [
        (variable, devices[variable.tower])
        for variable in variables
        if variable.tower is not None
    ]
    wrong = []
    for variable, device in placed:
        found = (variable.device, variable.update.device)
        if found != (device, device):
            wrong.append(
                f"{variable.name} of tower {variable.tower} is on {found[0]}, updated on {found[1]}"
            )
    text = (
        wrong[0]
        if wrong
        else f"{len(placed)} variables and their updates are on their towers' devices"
    )
    if not placed:
        text = f"the towers share all {len(variables)} variables: none has a place that it must have"
    yield Check(
        name="placement of variables",
        holds=not wrong if placed else None,
        text=text,
    )
    nodes = operators.nodes_of(observe.partitions(step))
    towers = [
        n
        for n in nodes.values()
        if n.owner.tower is not None and n.owner.phase in (FORWARD, BACKWARD)
    ]
    heavy = [node for node in towers if any(kind in node.type for kind in HEAVY)]
    off = [node for node in heavy if node.device != devices[node.owner.tower or 0]]
    text = f"{len(heavy)} products and fused kernels are on their towers' devices"
    if off:
        first = f"a {off[0].type} of tower {off[0].owner.tower} on {off[0].device}"
        text = f"{len(off)} of {len(heavy)} are elsewhere, as {first}"
    yield Check(name="placement of operators", holds=bool(heavy) and not off, text=text)


def clock(step: TrainStep, engine: Engine) -> Iterator[Check]:
    """Whether the step's clock covers what the devices do: their kernels by the profiler, and the cores' time."""
    is_gpu = engine.device_type == "GPU"
    seconds, core_s = _timed(step)
    try:
        partitions = observe.partitions(step)
        traced = tracing.trace(step, STEPS)
        traced_steps = xplane.read(
            traced.space,
            operators.nodes_of(partitions),
            operators.exchanged(partitions),
        ).steps
    except xplane.TraceError as e:
        yield Check(name="clock", holds=None, text=str(e))
        return
    spans = [
        (traced_step.end_ns - traced_step.start_ns) / 1e9
        for traced_step in traced_steps
    ]
    off = max(
        abs(span - clock_s) - SLACK_S - CLOCKS * span
        for span, clock_s in zip(spans, traced.step_s)
    )
    text = f"{_ms(traced.step_s)} a step by the clock, {_ms(spans)} by the profiler's"
    yield Check(name="clock against the profiler's", holds=off <= 0, text=text)
    late = [_late_s(traced_step) for traced_step in traced_steps]
    busy = [_busy_s(traced_step) for traced_step in traced_steps]
    kind = "GPUs' kernels" if is_gpu else "kernels"
    before_s = max(0.0, -max(late))
    text = f"{kind} take {_ms(busy)} of a step of {_ms(spans)}; the last ends {_ms([before_s])} before it"
    if max(late) > SLACK_S:
        text = f"a kernel ends {_ms([max(late)])} after the clock was read"
    yield Check(
        name="clock after the last kernel", holds=max(late) <= SLACK_S, text=text
    )
    cores = len(available_cores())
    share = core_s / seconds
    text = f"{share:.2f} of {cores} cores were busy in {STEPS} steps of {1e3 * seconds / STEPS:.2f} ms"
    # A clock that leaves out a part of the step sees more work than its cores can do.
    yield Check(
        name="clock against the cores'",
        holds=share <= cores * (1 + CLOCKS),
        text=text,
    )


def _timed(step: TrainStep) -> tuple[float, float]:
    """(seconds by the clock, seconds of all cores) of untraced steps."""
    step()
    begun = time.perf_counter()
    cores = time.process_time()
    for _ in range(STEPS):
        step()
    return time.perf_counter() - begun, time.process_time() - cores


def _late_s(step: TracedStep) -> float:
    """By how much the last kernel of a step ends after it, in seconds; negative where it ends before."""
    return (
        max((kernel.end_ns for kernel in step.kernels), default=step.start_ns)
        - step.end_ns
    ) / 1e9


def _busy_s(step: TracedStep) -> float:
    """Seconds in which any device ran a kernel."""
    total = 0
    until = step.start_ns
    for kernel in sorted(step.kernels, key=lambda kernel: kernel.start_ns):
        if kernel.kind == COPY:
            continue
        total += max(0, kernel.end_ns - max(until, kernel.start_ns))
        until = max(until, kernel.end_ns)
    return total / 1e9


def _ms(seconds: list[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.2f} ms"
