"""What a new machine must do before its speeds are believed: kernels, sums, placement, and the clock."""

import dataclasses
import statistics
import time
from collections.abc import Iterator

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.inspection import observe, operators, tracing, xplane
from rnn_scaling.inspection.operators import COPY, TracedStep
from rnn_scaling.records.certificate import Certificate, Check
from rnn_scaling.records.step_parts import BACKWARD, FORWARD
from rnn_scaling.reports.wording import sentence
from rnn_scaling.system import entry
from rnn_scaling.system.machine.cores import available_cores
from rnn_scaling.training.towers import TrainStep
from rnn_scaling.verification import kernel_checks
from rnn_scaling.verification.certifier import Certifier

STEPS = 10  # that are timed, and that are traced
CLOCKS = 0.02  # share of a step by which two clocks may differ, in addition to SLACK_S
SLACK_S = 2e-4
# What does a tower's work; shapes and numbers of control flow may be on the host whatever the device.
HEAVY = (
    *("MatMul", "BatchMatMul", "Conv2D", "CudnnRNN"),
    *("BlockLSTM", "LSTMBlockCell", "SoftmaxCrossEntropy", "FusedBatchNorm"),
)


class MachineCheck(Certifier):
    """A `Certifier`, and at the end the machine's checks; the step must have collected its graphs."""

    def end(self) -> Certificate:
        """The certificate, with what came of each check."""
        certificate = super().end()
        checks = (*certificate.checks, *self._machine_checks())
        wrong = [
            check for check in checks[len(certificate.checks) :] if check.holds is False
        ]
        if not wrong:
            return dataclasses.replace(certificate, checks=checks)
        fault = Statement(
            "verify-wrong-machine",
            "machine",
            {"checks": [f"{c.name}: {c.text}" for c in wrong]},
        )
        text, statements = (
            f"{sentence(fault)} {certificate.sentence}",
            (fault.data(), *certificate.statements),
        )
        return dataclasses.replace(
            certificate,
            verdict=fault.subject,
            holds=False,
            sentence=text,
            statements=statements,
            checks=checks,
        )

    def _machine_checks(self) -> Iterator[Check]:
        entry.note("checking kernels, all-reduces, placement and the clock")
        engine = self._engine
        yield from kernel_checks.kernels_on(engine.devices[0], engine.device_type)
        yield from kernel_checks.all_reduces_on(engine)
        yield from self._placement()
        yield from self._clock()

    def _placement(self) -> Iterator[Check]:
        """Whether variables, their updates and the towers' work are on the towers' devices."""
        devices, graph = self._engine.devices, observe.graph(self._step)
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
        nodes = operators.nodes_of(observe.partitions(self._step))
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
        yield Check(
            name="placement of operators", holds=bool(heavy) and not off, text=text
        )

    def _clock(self) -> Iterator[Check]:
        """Whether the step's clock covers what the devices do: their kernels by the profiler, and the cores' time."""
        is_gpu = self._engine.device_type == "GPU"
        seconds, core_s = _timed(self._step)
        try:
            partitions = observe.partitions(self._step)
            traced = tracing.trace(self._step, STEPS)
            steps = xplane.read(
                traced.space,
                operators.nodes_of(partitions),
                operators.exchanged(partitions),
            ).steps
        except xplane.TraceError as e:
            yield Check(name="clock", holds=None, text=str(e))
            return
        spans = [(step.end_ns - step.start_ns) / 1e9 for step in steps]
        off = max(
            abs(span - clock) - SLACK_S - CLOCKS * span
            for span, clock in zip(spans, traced.step_s)
        )
        text = (
            f"{_ms(traced.step_s)} a step by the clock, {_ms(spans)} by the profiler's"
        )
        yield Check(name="clock against the profiler's", holds=off <= 0, text=text)
        late = [_late_s(step) for step in steps]
        busy = [_busy_s(step) for step in steps]
        kind = "GPUs' kernels" if is_gpu else "kernels"
        before_s = max(0.0, -max(late))
        text = f"{kind} take {_ms(busy)} of a step of {_ms(spans)}; the last ends {_ms([before_s])} before it"
        if max(late) > SLACK_S:
            text = f"a kernel ends {_ms([max(late)])} after the clock was read"
        yield Check(
            name="clock after the last kernel", holds=max(late) <= SLACK_S, text=text
        )
        cores, share = len(available_cores()), core_s / seconds
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
    begun, cores = time.perf_counter(), time.process_time()
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
    total, until = 0, step.start_ns
    for kernel in sorted(step.kernels, key=lambda kernel: kernel.start_ns):
        if kernel.kind == COPY:
            continue
        total += max(0, kernel.end_ns - max(until, kernel.start_ns))
        until = max(until, kernel.end_ns)
    return total / 1e9


def _ms(seconds: list[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.2f} ms"
