"""What is known of a run so far: the record of it can be made at any moment, also when it fails or is interrupted."""

from __future__ import annotations

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from models.workloads import WORKLOADS
from rnn_scaling import entry
from rnn_scaling.analysis import common_window
from rnn_scaling.analysis.clocks import clock_cautions
from rnn_scaling.machine import clock_sampler, peaks
from rnn_scaling.machine.clock_sampler import ClockSampler
from rnn_scaling.machine.environment import read_environment
from rnn_scaling.machine.gpus import query_gpus
from rnn_scaling.machine.load import NOTICEABLE, Load, of_one_device
from rnn_scaling.machine.system import peak_process_bytes
from rnn_scaling.records import certificate as certificates
from rnn_scaling.records.certificate import Certificate
from rnn_scaling.records.decoding import build, encode
from rnn_scaling.records.environment import Clocks, Environment, Resolved
from rnn_scaling.records.environment import Load as RecordedLoad
from rnn_scaling.records.parts import (
    Batches,
    Memory,
    Parameters,
    Phases,
    Resumption,
    RunError,
    Throughput,
)
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.step_parts import Graph, Trace
from rnn_scaling.records.workers import Workers
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.training.checkpoint_folder import Checkpoint
from rnn_scaling.training.clock import StepTimer, measured_window, steady_state


class NotFiniteError(ArithmeticError):
    """The loss of a batch is infinite or not a number."""


@dataclasses.dataclass(frozen=True)
class Done:
    """One step of a worker that a coordinator handed it: which, by whom, what it processed, how stale its gradient was.

    worker: its number among the workers. staleness: updates by other steps since it began to read the variables.
    """

    number: int
    worker: int
    staleness: int
    loss_sum: float
    loss_items: float
    items: int
    positions: int
    correct: int | None = None


class Watch(Protocol):
    """What looks at each batch of a run whose times nobody reads."""

    def batch(self, result: Any) -> None:
        """Told of the `StepResult` of a batch that has ended, before the next one begins."""

    def end(self) -> Certificate:
        """What it saw, once the last step has ended."""


StartWatch = Callable[[RunConfig, Any, Any], Watch]
"""Begins to watch: of the options, the engine, and the step before its first call."""


class RunState:
    """Fills while a run goes on. `start`, `cluster` if there is one, `build`, `resume` where it goes on from a
    checkpoint, `batches` and `teardown` are entered in this order.

    clients: how many processes run the step, each for its own towers; known once the engine has started.
    certificate: what a watch of this process saw.
    steps: that a coordinator handed to workers, in the order of their ends; as many for each batch.
    """

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
        self.certificate: Certificate | None = None
        self._environment: Environment | None = None
        self._memory: Memory | None = None
        self._load: Load | None = None
        self._sampler: ClockSampler | None = None
        self._tower_items: list[tuple[int, ...]] = []
        self._tower_positions: list[tuple[int, ...]] = []
        self._loss_items: list[int] = []
        self._correct: list[int] = []
        self._ready: list[float] = []
        self.checkpoint: Checkpoint | None = None  # that the run goes on from
        self.resumed: list[Resumption] = []
        self.files: Sequence[str] = ()  # that the run reads its data from
        self._carried_s = 0.0  # of the batches that processes before this one did
        self.clients = 1
        self.steps: Sequence[Done] = ()

    def enter(self, phase: str) -> None:
        """Ends the present phase and begins `phase`."""
        self._entered.append((phase, self._clock()))

    def end_batch(
        self,
        tower_items: Iterable[float],
        tower_positions: Iterable[float],
        loss_items: float = 0.0,
        ready_s: float | None = None,
        correct: float | None = None,
    ) -> None:
        """Keeps what the towers did in the batch that has just ended.

        Args:
          tower_items: that each tower processed.
          tower_positions: the same with padding.
          loss_items: of all towers; what the loss is a mean over.
          ready_s: seconds until the last tower's gradients were computed; None: not told.
          correct: of `loss_items`, how many were predicted right; None: not asked.
        """
        self._tower_positions.append(tuple(int(n) for n in tower_positions))
        self._loss_items.append(int(loss_items))
        if ready_s is not None:
            self._ready.append(max(0.0, ready_s))
        if correct is not None:
            self._correct.append(int(correct))
        self._tower_items.append(tuple(int(n) for n in tower_items))  # last: where it is, the others are

    def resume_from(self, checkpoint: Checkpoint) -> None:
        """Takes over the batches that were done before; to be called before the phase of the batches."""
        told, timer = checkpoint.told, self.timer
        self.checkpoint, self.resumed = checkpoint, [build(Resumption, each) for each in checkpoint.resumed]
        timer.step_s, timer.step_items = list(told["seconds"]), list(told["items"])
        timer.step_loss = list(told["loss"])
        self._loss_items, self._ready = list(told["loss_items"]), list(told["ready"])
        self._correct = list(told.get("correct", ()))
        self._tower_positions = [tuple(each) for each in told["tower_positions"]]
        self._tower_items = [tuple(each) for each in told["tower_items"]]
        self._carried_s = math.fsum(timer.step_s)

    @property
    def first_step(self) -> int:
        """The number of the first step that this process runs: with a checkpoint the first of its own warm-up."""
        if self.checkpoint is None:
            return 0
        return max(0, self.checkpoint.batches - max(1, self.timer.warmup_steps))

    def has_resumed(self) -> None:
        """Keeps how long it took until the next batch can begin; to be called then."""
        if self.checkpoint is not None:
            seconds = self._clock() - self._entered[0][1]
            self.resumed.append(Resumption(batch=self.checkpoint.batches, seconds=seconds))

    def accuracies(self) -> list[float]:
        """The share of right predictions of each batch; empty if they are not counted."""
        return [correct / items for correct, items in zip(self._correct, self._loss_items)]

    def batches_since(self, first: int) -> dict[str, list[Any]]:
        """This process's batches from number `first` on, as the fields of a `records.workers.Rank`."""
        timer, stop = self.timer, min(len(self.timer.step_loss), len(self._tower_items))
        loss = [value if math.isfinite(value) else None for value in timer.step_loss[first:stop]]
        return {
            "seconds": timer.step_s[first:stop],
            "items": timer.step_items[first:stop],
            "loss": loss,
            "loss_items": self._loss_items[first:stop],
            "tower_items": [list(each) for each in self._tower_items[first:stop]],
            "tower_positions": [list(each) for each in self._tower_positions[first:stop]],
            "ready": self._ready[first:stop],
            **({"correct": self._correct[first:stop]} if self._correct else {}),
        }

    def of_worker(self, index: int) -> dict[str, Any]:
        """What a coordinator knows of the steps of one worker, as the fields of a `records.workers.Rank`."""
        steps = [step for step in self._of_batches(0) if step.worker == index]
        losses = [step.loss_sum / step.loss_items for step in steps]
        return {
            "items": [step.items for step in steps],
            "loss": [loss if math.isfinite(loss) else None for loss in losses],
            "loss_items": [int(step.loss_items) for step in steps],
            **({"correct": [step.correct for step in steps]} if self._correct else {}),
        }

    def staleness(self) -> dict[str, int] | None:
        """How many of the measured steps had which staleness, least first; None: nobody handed out steps."""
        counts = collections.Counter(step.staleness for step in self._of_batches(self.timer.warmup_steps))
        return {str(staleness): counts[staleness] for staleness in sorted(counts)} or None

    def _of_batches(self, first: int) -> Sequence[Done]:
        """The steps of the batches from this number on; those that ended later belong to none."""
        each = self._config.cluster.num_workers
        return self.steps[each * first : each * len(self.timer.step_s)]

    def details(self) -> dict[str, Any]:
        """What else is told of this process, as the fields of a `records.workers.Rank`."""
        return {
            "cpu_affinity": self.resolved.get("cpu_affinity"),
            "phases": encode(self._phases(self.timer.step_s)),
            "load_others": self._load.others if self._load else None,
            "peak_process_bytes": self._memory.peak_process_bytes if self._memory else None,
            "certificate": encode(self.certificate),
        }

    def watched(self, load: Load | None) -> None:
        """Keeps what others did to the run's cores; None: that is not known."""
        self._load = load

    def load_caution(self) -> str:
        """What others did to the run's cores, where it matters; empty where not."""
        load, cores = self._load, len(self.resolved.get("cpu_affinity", []))
        if load is None or of_one_device(load.others, cores, self._config.devices.num_devices) <= NOTICEABLE:
            return ""
        return f"other processes used {load.others:.0%} of this run's cores while it ran; {self.unit}/s may be low"

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

    def record(self, status: str, error: RunError | None = None, workers: Workers | None = None) -> RunRecord:
        """The record as of now.

        Args:
          status: "ok", "failed" or "interrupted".
          error: what happened when not ok.
          workers: all processes of the run; None: this one is alone.
        """
        if self._environment is None:  # once: it asks other programs, which an interrupted run has no time for
            self._environment = build(Environment, read_environment())
        batches = self._batches(workers)
        seconds, items, warmup = batches.seconds, batches.items, self.timer.warmup_steps
        throughput = None
        if len(seconds) > warmup and status != "failed":
            window = measured_window(seconds, items, warmup)
            rate = window.items / window.seconds
            throughput = Throughput(items=window.items, seconds=window.seconds, items_per_second=rate)
        return RunRecord(
            status=status,
            error=error,
            config=self._config.flat(),
            resolved=build(Resolved, {**self.resolved, "peak_flops_per_second": self._peak()}),
            parameters=build(Parameters, self.parameters) if self.parameters else None,
            batches=batches,
            throughput=throughput,
            memory=self._memory,
            steady_state=steady_state(seconds, items, self.timer.warmup_steps, self.unit) if throughput else None,
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
            workers=workers,
            certificate=self._certificate(workers),
        )

    def _certificate(self, workers: Workers | None) -> Certificate | None:
        """What all processes saw, this one first; None: nobody watched."""
        several = [rank.certificate for rank in workers.ranks] if workers else [self.certificate]
        return certificates.joined(each for each in several if each)

    def _batches(self, workers: Workers | None) -> Batches:
        """Those of all ranks that run the step, or of this process if it runs the step for all."""
        if workers is not None and self.clients > 1:
            batches = common_window.join([r for r in workers.ranks if r.role == "worker"], self.timer.warmup_steps)
            return dataclasses.replace(batches, resumed=tuple(self.resumed) or None)
        timer, warmup = self.timer, self.timer.warmup_steps
        steps = min(len(timer.step_s), len(timer.step_items), len(timer.step_loss))  # a step may be ending right now
        return Batches(
            warmup=min(steps, warmup),
            measured=max(0, steps - warmup),
            seconds=tuple(timer.step_s[:steps]),
            items=tuple(timer.step_items[:steps]),
            loss=tuple(timer.step_loss[:steps]),
            tower_items=tuple(self._tower_items[:steps]),
            tower_positions=tuple(self._tower_positions[:steps]),
            loss_items=tuple(self._loss_items[:steps]) if self._correct else None,
            correct=tuple(self._correct[:steps]) if self._correct else None,
            resumed=tuple(self.resumed) or None,
        )

    def _peak(self) -> float | None:
        if self._environment is None:
            return None
        cores, dtype = self._config.devices.cpu_cores_per_device, self._config.model.compute_dtype
        return peaks.of_run(encode(self._environment), self.resolved, cores, dtype)

    def _clocks(self) -> Clocks | None:
        sampled = self._sampler.read() if self._sampler else None
        return build(Clocks, sampled) if sampled else None

    def _phases(self, step_s: Sequence[float]) -> Phases:
        """Seconds of each phase; they sum to the total, and the batches' phases are sums of the batches' seconds."""
        now, warmup = self._clock(), self.timer.warmup_steps
        ends = [at for _, at in self._entered[1:]] + [now]
        spent = {name: end - at for (name, at), end in zip(self._entered, ends)}
        phases = Phases(
            start=spent["start"],
            cluster=spent.get("cluster", 0.0),
            build=spent.get("build", 0.0),
            resume=spent.get("resume"),
            first_batch=sum(step_s[: min(1, warmup)]),
            warmup=sum(step_s[1:warmup]),
            measured=sum(step_s[warmup:]),
        )
        total = now - self._entered[0][1] + self._carried_s
        return dataclasses.replace(phases, teardown=total - sum(phases.parts.values()), total=total)
