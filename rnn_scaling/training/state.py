"""What is known of a run so far: the record of it can be made at any moment, also when it fails or is interrupted."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from models.workloads import WORKLOADS
from rnn_scaling import entry
from rnn_scaling.analysis import steady_state
from rnn_scaling.analysis.clocks import clock_cautions
from rnn_scaling.machine import clock_sampler, peaks
from rnn_scaling.machine.clock_sampler import ClockSampler
from rnn_scaling.machine.environment import read_environment
from rnn_scaling.machine.gpus import query_gpus
from rnn_scaling.machine.load import NOTICEABLE, Load
from rnn_scaling.machine.system import peak_process_bytes
from rnn_scaling.records.decoding import build, encode
from rnn_scaling.records.environment import Clocks, Environment, Resolved
from rnn_scaling.records.environment import Load as RecordedLoad
from rnn_scaling.records.parts import Batches, Memory, Parameters, Phases, RunError, SteadyState, Throughput
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.step_parts import Graph, Trace
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.training.clock import StepTimer, measured_window


class NotFiniteError(ArithmeticError):
    """The loss of a batch is infinite or not a number."""


class RunState:
    """Fills while a run goes on. `start`, `build`, `batches` and `teardown` are entered in this order."""

    def __init__(
        self, config: RunConfig, clock: Callable[[], float] = time.perf_counter, started: float | None = None
    ) -> None:
        """Args:
        config: resolved options.
        clock: returns seconds.
        started: the clock's reading when the program started; now when not given.
        """
        self._config, self._clock = config, clock
        self._entered: list[tuple[str, float]] = [("start", clock() if started is None else started)]
        self.timer = StepTimer(config.measure.num_warmup_batches, clock)
        self.resolved: dict[str, Any] = {"scaling": "strong" if config.training.global_batch_size else "weak"}
        self.unit = WORKLOADS[config.model.model].unit
        self.flops_per_item: float | None = None  # of forward and backward, once the step is built
        self.parameters: dict[str, int] = {}
        self.graph: Graph | None = None
        self.trace: Trace | None = None
        self._environment: Environment | None = None
        self._memory: Memory | None = None
        self._load: Load | None = None
        self._sampler: ClockSampler | None = None
        self._tower_items: list[tuple[int, ...]] = []
        self._tower_positions: list[tuple[int, ...]] = []

    def enter(self, phase: str) -> None:
        """Ends the present phase and begins `phase`."""
        self._entered.append((phase, self._clock()))

    def end_batch(self, tower_items: Iterable[float], tower_positions: Iterable[float]) -> None:
        """Keeps what each tower processed in the batch that has just ended: items, and positions with padding."""
        self._tower_items.append(tuple(int(n) for n in tower_items))
        self._tower_positions.append(tuple(int(n) for n in tower_positions))

    def watched(self, load: Load | None) -> None:
        """Keeps what others did to the run's cores, and says so when it matters."""
        self._load = load
        if load is not None and load.others > NOTICEABLE:
            others = f"other processes used {load.others:.0%} of this run's cores while it ran"
            entry.warn(f"{others}; {self.unit}/s may be low")

    def keep_memory(self, peak_device_bytes: Sequence[int] | None) -> None:
        """Keeps the most memory that was in use so far; to be called after the last measured batch."""
        devices = None if peak_device_bytes is None else tuple(peak_device_bytes)
        self._memory = Memory(peak_process_bytes=peak_process_bytes(), peak_device_bytes=devices)

    def sample_clocks(self) -> None:
        """Begins to sample the clocks of the devices; to be called right before the first batch."""
        self._sampler = clock_sampler.start(self.resolved)

    def end_clocks(self) -> None:
        """Ends the sampling, and says where devices that should be equal were not, or were held down."""
        if self._sampler is None:
            return
        self._sampler.stop()
        for caution in clock_cautions(self._clocks()):
            entry.warn(caution.text)

    def record(self, status: str, error: RunError | None = None) -> RunRecord:
        """The record as of now.

        Args:
          status: "ok", "failed" or "interrupted".
          error: what happened when not ok.
        """
        if self._environment is None:  # once: it asks other programs, which an interrupted run has no time for
            self._environment = build(Environment, read_environment())
        timer = self.timer
        steps = min(len(timer.step_s), len(timer.step_items), len(timer.step_loss))  # a step may be ending right now
        seconds, items = tuple(timer.step_s[:steps]), tuple(timer.step_items[:steps])
        throughput = None
        if steps > timer.warmup_steps and status != "failed":
            window = measured_window(seconds, items, timer.warmup_steps)
            rate = window.items / window.seconds
            throughput = Throughput(items=window.items, seconds=window.seconds, items_per_second=rate)
        return RunRecord(
            status=status,
            error=error,
            config=self._config.flat(),
            resolved=build(Resolved, {**self.resolved, "peak_flops_per_second": self._peak()}),
            parameters=build(Parameters, self.parameters) if self.parameters else None,
            batches=Batches(
                warmup=min(steps, timer.warmup_steps),
                measured=max(0, steps - timer.warmup_steps),
                seconds=seconds,
                items=items,
                loss=tuple(timer.step_loss[:steps]),
                tower_items=tuple(self._tower_items[:steps]),
                tower_positions=tuple(self._tower_positions[:steps]),
            ),
            throughput=throughput,
            memory=self._memory,
            steady_state=self._steady_state(seconds, items) if throughput else None,
            phases=self._phases(seconds),
            environment=dataclasses.replace(
                self._environment,
                # Asking the driver takes seconds that an interrupted run does not have.
                gpus_after=tuple(query_gpus()) if self._environment.gpus and status == "ok" else (),
                load=build(RecordedLoad, dataclasses.asdict(self._load)) if self._load else None,
                clocks=self._clocks(),
                missing=frozenset(),
            ),
            graph=self.graph,
            trace=self.trace,
            unit=self.unit,
            flops_per_item=self.flops_per_item,
        )

    def _peak(self) -> float | None:
        if self._environment is None:
            return None
        cores, dtype = self._config.devices.cpu_cores_per_device, self._config.model.compute_dtype
        return peaks.of_run(encode(self._environment), self.resolved, cores, dtype)

    def _clocks(self) -> Clocks | None:
        sampled = self._sampler.read() if self._sampler else None
        return build(Clocks, sampled) if sampled else None

    def _steady_state(self, seconds: Sequence[float], items: Sequence[int]) -> SteadyState:
        state = steady_state.analyse(seconds, items, self.timer.warmup_steps, self.unit)
        names = ("kind", "start", "rate_steady", "move", "half_width", "period", "text")
        return SteadyState(outliers=tuple(state.outliers), **{name: getattr(state, name) for name in names})

    def _phases(self, step_s: Sequence[float]) -> Phases:
        """Seconds of each phase; they sum to the total, and the batches' phases are sums of the batches' seconds."""
        now, warmup = self._clock(), self.timer.warmup_steps
        ends = [at for _, at in self._entered[1:]] + [now]
        spent = {name: end - at for (name, at), end in zip(self._entered, ends)}
        phases = Phases(
            start=spent["start"],
            build=spent.get("build", 0.0),
            first_batch=sum(step_s[: min(1, warmup)]),
            warmup=sum(step_s[1:warmup]),
            measured=sum(step_s[warmup:]),
        )
        total = now - self._entered[0][1]
        return dataclasses.replace(phases, teardown=total - sum(phases.parts.values()), total=total)
