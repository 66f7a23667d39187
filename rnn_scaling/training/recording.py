"""What every timed run leaves, ours or a user's: its clock, its phases, what was watched, its record."""

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.clocks import clock_cautions
from rnn_scaling.records.decoding import build, encode
from rnn_scaling.records.environment import Clocks, Environment, Resolved
from rnn_scaling.records.environment import Load as RecordedLoad
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import (
    Batches,
    Energy,
    Memory,
    Parameters,
    Phases,
    RunError,
)
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.workers import WORKER, Workers, join_batches
from rnn_scaling.system.machine import clock_sampler, peaks
from rnn_scaling.system.machine.clock_sampler import ClockSampler
from rnn_scaling.system.machine.energy import EnergyMeter
from rnn_scaling.system.machine.environment import commit_of, read_environment
from rnn_scaling.system.machine.gpus import gpu_ids, query_gpus
from rnn_scaling.system.machine.load import (
    NOTICEABLE,
    Load,
    LoadMeter,
    Sample,
    of_one_device,
)
from rnn_scaling.system.machine.system import peak_process_bytes
from rnn_scaling.system.processes import alive
from rnn_scaling.training.clock import StepTimer, steady_state, throughput

MOST_DEVICES = 4096  # that are watched


def killed() -> RunError:
    """The error of a record that is written before the run ends; it stays if the process is killed."""
    return RunError(
        type="Killed",
        message="the process ended without a result",
        process=alive.this_process(),
    )


class Recording:
    """Fills while a run goes on. Its phases are entered in order, "start" by itself and "batches" in any case."""

    def __init__(
        self,
        config: Mapping[str, Any],
        unit: str,
        resolved: Mapping[str, Any],
        clock: Callable[[], float] = time.perf_counter,
        started: float | None = None,
    ) -> None:
        """started: the clock's reading when the program started; now when not given."""
        self.flat, self.unit, self.resolved, self._clock = (
            dict(config),
            unit,
            dict(resolved),
            clock,
        )
        self._entered: list[tuple[str, float]] = [
            ("start", clock() if started is None else started)
        ]
        self.timer = StepTimer(config["num_warmup_batches"], clock)
        self.clients = 1  # how many processes run the step, each for its own devices
        self.flops_per_item: float | None = (
            None  # of forward and backward, once that is known
        )
        self.parameters: dict[
            str, int
        ] = {}  # as the fields of a `records.parts.Parameters`
        self._carried_s = 0.0  # of the batches that processes before this one did
        self.variables: Mapping[str, str] = (
            os.environ
        )  # of the environment, as the user set them
        self._environment: Environment | None = None
        # Of another program than the suite's trainer; None if its commit is not asked.
        self.program_folder: Path | None = None
        self._memory: Memory | None = None
        self.load: Load | None = (
            None  # of other processes on the run's cores; None if unknown
        )
        self._meter: LoadMeter | None = None
        self._sampler: ClockSampler | None = None
        self.energy = (
            EnergyMeter()
        )  # to be started when the warm-up has ended, outside of the clock

    def enter(self, phase: str) -> None:
        """Ends the present phase and begins `phase`."""
        self._entered.append((phase, self._clock()))

    def watch_machine(
        self, with_clocks: bool = True, sample: Sample | None = None
    ) -> None:
        """Watches the load of the cores and the clocks of the devices; to be called right before the first batch.

        `sample` reads the load, as in `machine.load.LoadMeter`; without it, all load of others counts.
        """
        self._meter = LoadMeter(self.resolved.get("cpu_affinity", []), sample)
        if with_clocks:
            devices = [""] * min(
                self.flat["num_devices"], MOST_DEVICES
            )  # unknown for a user's program
            self._sampler = clock_sampler.start({"devices": devices, **self.resolved})
        self.find_counters()

    def find_counters(self) -> None:
        """Finds the energy counters of this process's devices; of several processes, which divide GPUs, all it sees."""
        gpus = gpu_ids() if self.resolved.get("device_type") == "GPU" else []
        is_alone = max(self.clients, self.flat.get("num_workers") or 1) == 1
        self.energy.find(gpus[: self.flat["num_devices"]] if is_alone else gpus)

    def stop_watching(self) -> list[str]:
        """End that.

        Returns:
          A line for each device that was slower than its equals, or held down.
        """
        self.energy.stop()
        if self._meter is not None:
            self.load = self._meter.read()
        if self._sampler is None:
            return []
        self._sampler.stop()
        return [caution.text for caution in clock_cautions(self._clocks())]

    def load_caution(self) -> str:
        """What others did to the run's cores, where it matters; empty where not."""
        load, cores = self.load, len(self.resolved.get("cpu_affinity", []))
        if (
            load is None
            or of_one_device(load.others, cores, self.flat["num_devices"]) <= NOTICEABLE
        ):
            return ""
        return f"other processes used {load.others:.0%} of this run's cores while it ran; {self.unit}/s may be low"

    def keep_memory(self, peak_device_bytes: Sequence[int] | None) -> None:
        """Keeps the most memory that was in use so far; to be called after the last measured batch."""
        devices = None if peak_device_bytes is None else tuple(peak_device_bytes)
        self._memory = Memory(
            peak_process_bytes=peak_process_bytes(), peak_device_bytes=devices
        )

    def batches_since(self, first: int) -> dict[str, list[Any]]:
        """This process's batches from number `first` on, as the fields of a `records.workers.Rank`."""
        return self._timed(first, len(self.timer.step_loss))

    def _timed(self, first: int, stop: int) -> dict[str, list[Any]]:
        timer = self.timer
        losses = [
            loss if math.isfinite(loss) else None
            for loss in timer.step_loss[first:stop]
        ]
        return {
            "seconds": timer.step_s[first:stop],
            "items": timer.step_items[first:stop],
            "loss": losses,
        }

    def details(self) -> dict[str, Any]:
        """Further facts about this process, as the fields of a `records.workers.Rank`."""
        return {
            "cpu_affinity": self.resolved.get("cpu_affinity"),
            "phases": encode(self._phases(self.timer.step_s)),
            "load_others": self.load.others if self.load else None,
            "peak_process_bytes": self._memory.peak_process_bytes
            if self._memory
            else None,
            "energy": self.energy.read(),
        }

    def record(
        self, status: str, error: RunError | None = None, workers: Workers | None = None
    ) -> RunRecord:
        """The record as of now: "ok", "failed" or "interrupted". `workers`: all processes of the run; None: one."""
        if (
            self._environment is None
        ):  # once: it asks other programs, which an interrupted run has no time for
            read = read_environment(self.variables)
            if self.program_folder is not None:
                read["program_commit"] = commit_of(self.program_folder)
            self._environment = build(Environment, read)
        batches, warmup = self._batches(workers), self.timer.warmup_steps
        rate = (
            throughput(batches.seconds, batches.items, warmup)
            if status != "failed"
            else None
        )
        return RunRecord(
            status=status,
            error=error,
            options=Options(self.flat),
            resolved=build(
                Resolved,
                {
                    **self.resolved,
                    "peak_flops_per_second": self._peak(self._environment),
                },
            ),
            parameters=build(Parameters, self.parameters) if self.parameters else None,
            batches=batches,
            throughput=rate,
            memory=self._memory,
            steady_state=steady_state(batches.seconds, batches.items, warmup)
            if rate
            else None,
            phases=self._phases(batches.seconds),
            environment=dataclasses.replace(
                self._environment,
                # Asking the driver takes seconds that an interrupted run does not have.
                gpus_after=tuple(query_gpus())
                if self._environment.gpus and status == "ok"
                else (),
                load=build(RecordedLoad, dataclasses.asdict(self.load))
                if self.load
                else None,
                clocks=self._clocks(),
                missing=frozenset(),
            ),
            unit=self.unit,
            flops_per_item=self.flops_per_item,
            workers=workers,
            energy=build(Energy, used) if (used := self.energy.read()) else None,
        )

    def _batches(self, workers: Workers | None) -> Batches:
        """Those of all ranks that run the step, or of this process if it runs the step for all."""
        if workers is not None and self.clients > 1:
            return join_batches(
                [r for r in workers.ranks if r.role == WORKER], self.timer.warmup_steps
            )
        timer, warmup = self.timer, self.timer.warmup_steps
        steps = min(
            len(timer.step_s), len(timer.step_items), len(timer.step_loss)
        )  # a step may be ending right now
        lists: dict[str, Any] = {
            name: tuple(values) for name, values in self._timed(0, steps).items()
        }
        measured = max(0, steps - warmup)
        return Batches(
            warmup=min(steps, warmup),
            measured=measured,
            **lists,
            **self._of_towers(steps),
        )

    def _of_towers(self, steps: int) -> dict[str, Any]:
        """Further facts about the batches, as the fields of a `records.parts.Batches`."""
        return {}

    def _peak(self, environment: Environment) -> float | None:
        cores, dtype = (
            self.flat.get("cpu_cores_per_device"),
            self.flat.get("compute_dtype"),
        )
        return (
            peaks.of_run(encode(environment), self.resolved, cores, dtype)
            if cores and dtype
            else None
        )

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
        spent_s = sum(phases.parts.values())
        total = max(
            spent_s, now - self._entered[0][1] + self._carried_s
        )  # batches may be by another rank's clock
        return dataclasses.replace(phases, teardown=total - spent_s, total=total)
