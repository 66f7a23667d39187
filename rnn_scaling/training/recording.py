"""The measurements of every timed run: times, load, clocks, energy, memory.

The Recorder and the suite's trainer (`state.RunState`) fill a `Recording`. A new
measurement of all runs belongs here, and a field of `records` with it.
"""

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.records.decoding import build, encode
from rnn_scaling.records.environment import Environment, Resolved
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import (
    Batches,
    Energy,
    Memory,
    Parameters,
    Phases,
    RunError,
    SteadyState,
    Throughput,
)
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.workers import WORKER, Workers, join_batches
from rnn_scaling.system.machine import peaks
from rnn_scaling.system.machine.environment import read_commit, read_environment
from rnn_scaling.system.machine.gpus import list_gpu_ids, query_gpus
from rnn_scaling.system.machine.load import Sample
from rnn_scaling.system.machine.system import find_peak_process_bytes
from rnn_scaling.system.processes import alive
from rnn_scaling.training.clock import PhaseClock, StepTimer
from rnn_scaling.training.machine_watch import MachineWatch


def compute_throughput(
    step_s: Sequence[float], step_items: Sequence[int], warmup_steps: int
) -> Throughput | None:
    """Return the throughput of the steps after the warm-up, or None without steps."""
    if len(step_s) <= warmup_steps:
        return None
    seconds = sum(step_s[warmup_steps:])
    items = sum(step_items[warmup_steps:])
    return Throughput(items=items, seconds=seconds, items_per_second=items / seconds)


def _find_steady_state(
    step_s: Sequence[float], step_items: Sequence[int], warmup_steps: int
) -> SteadyState | None:
    """Find the batch from which a run was steady.

    Returns:
      The fields of the record, or None if numpy is missing; readers then compute them
      from the step times.
    """
    try:
        from rnn_scaling.analysis.steady_state import analyse
    except ImportError:
        return None
    state = analyse(step_s, step_items, warmup_steps)
    return SteadyState(
        kind=state.kind,
        start=state.start,
        rate_steady=state.rate_steady,
        move=state.change,
        half_width=state.half_width,
        period=state.period,
        outliers=tuple(state.outliers),
    )


def make_killed_error() -> RunError:
    """Return the error of a record that is written before the run ends.

    It stays in the record if the process is killed.
    """
    return RunError(
        type="Killed",
        message="the process ended without a result",
        process=alive.identify_this_process(),
    )


class _Program:
    """Reads the environment of the program that is measured, once.

    Attributes:
      variables: Environment variables, as the user set them.
      folder: The folder of a program that is not the suite's trainer, whose commit is
        recorded; None to record no commit.
    """

    def __init__(self) -> None:
        self.variables: Mapping[str, str] = os.environ
        self.folder: Path | None = None
        self._environment: Environment | None = None

    def read_environment(self) -> Environment:
        """Return the environment as of the first call.

        Reading it starts other programs, for which an interrupted run has no time.
        """
        if self._environment is None:
            fields = read_environment(self.variables)
            if self.folder is not None:
                fields["program_commit"] = read_commit(self.folder)
            self._environment = build(Environment, fields)
        return self._environment


class Recording:
    """Collects the measurements of one process; makes a record from them at any time.

    Attributes:
      flat: The options by name.
      unit: The unit of the items.
      resolved: The fields of a `records.environment.Resolved`.
      timer: The clock of the steps.
      phases: The clock of the phases.
      machine: The meters of load, clocks and energy.
      program: The environment of the program.
      clients: Number of processes that run the step, each for its own devices.
      flops_per_item: Operations of forward and backward, or None if unknown.
      parameters: The fields of a `records.parts.Parameters`.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        unit: str,
        resolved: Mapping[str, Any],
        clock: Callable[[], float] = time.perf_counter,
        started: float | None = None,
    ) -> None:
        """Start a recording.

        Args:
          config: The options by name.
          unit: The unit of the items.
          resolved: The fields of a `records.environment.Resolved` that are known.
          clock: Returns seconds.
          started: The clock's reading when the program started; None for now.
        """
        self.flat = dict(config)
        self.unit = unit
        self.resolved = dict(resolved)
        self.phases = PhaseClock(clock, started)
        self.timer = StepTimer(config["num_warmup_batches"], clock)
        self.machine = MachineWatch(self.resolved, config["num_devices"], self.timer)
        self.program = _Program()
        self.clients = 1
        self.flops_per_item: float | None = None
        self.parameters: dict[str, int] = {}
        self._memory: Memory | None = None

    def watch_machine(
        self, with_clocks: bool = True, sample: Sample | None = None
    ) -> None:
        """Watch the load of the cores and the clocks of the devices.

        Call this right before the first batch.

        Args:
          with_clocks: Whether to sample the clocks.
          sample: Reads the load, see `LoadMeter`. With None, the load of
            all other processes counts.
        """
        self.machine.start(with_clocks, sample)
        self.find_counters()

    def find_counters(self) -> None:
        """Find the energy counters of this process's devices.

        If several processes share the GPUs of a machine, all visible ones count.
        """
        gpus = list_gpu_ids() if self.resolved.get("device_type") == "GPU" else []
        num_processes = max(self.clients, self.flat.get("num_workers") or 1)
        if num_processes == 1:
            gpus = gpus[: self.flat["num_devices"]]
        self.machine.energy.find(gpus)

    def keep_memory(self, peak_device_bytes: Sequence[int] | None) -> None:
        """Keep the peak of the memory so far.

        It must be called after the last measured batch.

        Args:
          peak_device_bytes: The peak of each device, or None if unknown.
        """
        devices = None if peak_device_bytes is None else tuple(peak_device_bytes)
        self._memory = Memory(
            peak_process_bytes=find_peak_process_bytes(), peak_device_bytes=devices
        )

    def collect_batches(self, first: int) -> dict[str, list[Any]]:
        """Return this process's batches from number `first`.

        They are the fields of a `records.workers.Rank`.
        """
        return self._collect_columns(first, len(self.timer.step_loss))

    def _collect_columns(self, first: int, stop: int) -> dict[str, list[Any]]:
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

    def collect_details(self) -> dict[str, Any]:
        """Return further facts about this process.

        They are fields of a `records.workers.Rank`.
        """
        memory = self._memory
        load = self.machine.load
        windows = self.machine.read_windows()
        return {
            "cpu_affinity": self.resolved.get("cpu_affinity"),
            "phases": encode(self._measure_phases(self.timer.step_s)),
            "load_others": load.others if load else None,
            "load_windows": encode(windows) if windows else None,
            "peak_process_bytes": memory.peak_process_bytes if memory else None,
            "energy": self.machine.energy.read(),
        }

    def make_record(
        self, status: str, error: RunError | None = None, workers: Workers | None = None
    ) -> RunRecord:
        """Return the record as of now.

        Args:
          status: "ok", "failed" or "interrupted".
          error: Why the run ended early, or None.
          workers: All processes of the run, or None if it has one.
        """
        environment = self.program.read_environment()
        batches = self._join_batches(workers)
        warmup = self.timer.warmup_steps
        rate = None
        steady = None
        if status != "failed":
            rate = compute_throughput(batches.seconds, batches.items, warmup)
        if rate is not None:
            steady = _find_steady_state(batches.seconds, batches.items, warmup)
        # The driver answers after seconds, which an interrupted run does not have.
        gpus_after = query_gpus() if environment.gpus and status == "ok" else []
        resolved = {
            **self.resolved,
            "peak_flops_per_second": self._find_peak_flops(environment),
        }
        energy = self.machine.energy.read()
        return RunRecord(
            status=status,
            error=error,
            options=Options(self.flat),
            resolved=build(Resolved, resolved),
            parameters=build(Parameters, self.parameters) if self.parameters else None,
            batches=batches,
            throughput=rate,
            memory=self._memory,
            steady_state=steady,
            phases=self._measure_phases(batches.seconds),
            environment=dataclasses.replace(
                environment,
                gpus_after=tuple(gpus_after),
                load=self.machine.read_load(),
                clocks=self.machine.read_clocks(),
                missing=frozenset(),
            ),
            unit=self.unit,
            flops_per_item=self.flops_per_item,
            workers=workers,
            energy=build(Energy, energy) if energy else None,
        )

    def _join_batches(self, workers: Workers | None) -> Batches:
        """Return the batches of all ranks that run the step.

        If one process runs the step for all ranks, they are this process's batches.
        """
        timer = self.timer
        if workers is not None and self.clients > 1:
            ranks = [rank for rank in workers.ranks if rank.role == WORKER]
            return join_batches(ranks, timer.warmup_steps)
        # A step may be ending in another thread.
        steps = min(len(timer.step_s), len(timer.step_items), len(timer.step_loss))
        columns: dict[str, Any] = {
            name: tuple(values)
            for name, values in self._collect_columns(0, steps).items()
        }
        return Batches(
            warmup=min(steps, timer.warmup_steps),
            measured=max(0, steps - timer.warmup_steps),
            **columns,
            **self._collect_tower_columns(steps),
        )

    def _collect_tower_columns(self, steps: int) -> dict[str, Any]:
        """Return further fields of a `records.parts.Batches` for the first `steps`."""
        return {}

    def _find_peak_flops(self, environment: Environment) -> float | None:
        cores = self.flat.get("cpu_cores_per_device")
        dtype = self.flat.get("compute_dtype")
        if not cores or not dtype:
            return None
        return peaks.run_peak(encode(environment), self.resolved, cores, dtype)

    def _measure_phases(self, step_s: Sequence[float]) -> Phases:
        return self.phases.measure(step_s, self.timer.warmup_steps)
