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

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.clock_texts import format_caution
from rnn_scaling.analysis.clocks import clock_cautions
from rnn_scaling.records.decoding import build, encode
from rnn_scaling.records.environment import Clocks, Environment, LoadWindows, Resolved
from rnn_scaling.records.environment import Load as RecordedLoad
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
from rnn_scaling.system.machine import clock_sampler, peaks
from rnn_scaling.system.machine.clock_sampler import ClockSampler
from rnn_scaling.system.machine.energy import EnergyMeter
from rnn_scaling.system.machine.environment import read_commit, read_environment
from rnn_scaling.system.machine.gpus import list_gpu_ids, query_gpus
from rnn_scaling.system.machine.load import (
    NOTICEABLE_LOAD,
    Load,
    LoadMeter,
    Sample,
    WindowMeter,
    share_of_one_device,
)
from rnn_scaling.system.machine.system import peak_process_bytes
from rnn_scaling.system.processes import alive
from rnn_scaling.training.clock import StepTimer

_MAX_SAMPLED_DEVICES = 4096
# Digits of the windows in a record: their shares err by more than 0.001.
_SHARE_DIGITS = 4
_SECONDS_DIGITS = 6


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
        move=state.move,
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


class Recording:
    """The measurements of one process, from which a record can be made at any time.

    Its phases are entered in order. "start" is entered by the constructor, and every
    run must enter "batches".

    Attributes:
      flat: The options by name.
      unit: The unit of the items.
      resolved: The fields of a `records.environment.Resolved`.
      timer: The clock of the steps.
      clients: Number of processes that run the step, each for its own devices.
      flops_per_item: Operations of forward and backward, or None if unknown.
      parameters: The fields of a `records.parts.Parameters`.
      variables: Environment variables, as the user set them.
      program_folder: The folder of a program that is not the suite's trainer, whose
        commit is recorded; None to record no commit.
      load: The load of other processes on the run's cores, or None if unknown.
      energy: The energy meter. It is started after the warm-up.
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
        self._clock = clock
        if started is None:
            started = clock()
        self._phase_starts: list[tuple[str, float]] = [("start", started)]
        self.timer = StepTimer(config["num_warmup_batches"], clock)
        self.clients = 1
        self.flops_per_item: float | None = None
        self.parameters: dict[str, int] = {}
        # Seconds of the batches that earlier processes did.
        self._carried_s = 0.0
        self.variables: Mapping[str, str] = os.environ
        self.program_folder: Path | None = None
        self._environment: Environment | None = None
        self._memory: Memory | None = None
        self.load: Load | None = None
        self._meter: LoadMeter | None = None
        self._window_meter: WindowMeter | None = None
        self._sample: Sample | None = None
        self._sampler: ClockSampler | None = None
        self.energy = EnergyMeter()

    def enter(self, phase: str) -> None:
        """End the current phase and begin another one."""
        self._phase_starts.append((phase, self._clock()))

    def watch_machine(
        self, with_clocks: bool = True, sample: Sample | None = None
    ) -> None:
        """Watch the load of the cores and the clocks of the devices.

        Call this right before the first batch.

        Args:
          with_clocks: Whether to sample the clocks.
          sample: Reads the load, see `machine.load.LoadMeter`. With None, the load of
            all other processes counts.
        """
        self._sample = sample
        self._meter = LoadMeter(self.resolved.get("cpu_affinity", []), sample)
        if with_clocks:
            # For a Recorder, only the number of devices is known.
            devices = [""] * min(self.flat["num_devices"], _MAX_SAMPLED_DEVICES)
            self._sampler = clock_sampler.start({"devices": devices, **self.resolved})
        self.find_counters()

    def find_counters(self) -> None:
        """Find the energy counters of this process's devices.

        If several processes share the GPUs of a machine, all visible ones count.
        """
        gpus = list_gpu_ids() if self.resolved.get("device_type") == "GPU" else []
        num_processes = max(self.clients, self.flat.get("num_workers") or 1)
        if num_processes == 1:
            gpus = gpus[: self.flat["num_devices"]]
        self.energy.find(gpus)

    def start_measuring(self) -> None:
        """Start the meters of the measured batches, right before the first of them."""
        self.energy.start()
        self._window_meter = WindowMeter(
            self.resolved.get("cpu_affinity", []),
            self.flat["num_devices"],
            self._sample,
        )

    def end_window(self) -> bool:
        """Read the load after a batch, if its window is long enough.

        Returns:
          True if it was read, which takes some time.
        """
        meter = self._window_meter
        return meter is not None and meter.end_batch(self._count_measured())

    def _count_measured(self) -> int:
        return len(self.timer.step_s) - self.timer.warmup_steps

    def stop_watching(self) -> list[str]:
        """Stop watching the machine.

        Returns:
          A line for each device that was slower than the others, or throttled.
        """
        self.energy.stop()
        if self._meter is not None:
            self.load = self._meter.read()
        if self._window_meter is not None:
            self._window_meter.finish(self._count_measured())
        if self._sampler is None:
            return []
        self._sampler.stop()
        return list(map(format_caution, clock_cautions(self._read_clocks())))

    def load_caution(self, record: RunRecord) -> str:
        """Return a warning about other processes on the run's cores, or "".

        Args:
          record: The complete record.
        """
        if left_out := disturbance.count_batches_left_out([[record]]):
            return (
                f"other processes disturbed {left_out['batches']} of "
                f"{left_out['measured']} batches, which do not count in reports"
            )
        if self.load is None or disturbance.has_counted_windows(record):
            return ""
        num_cores = len(self.resolved.get("cpu_affinity", []))
        num_devices = self.flat["num_devices"]
        if (
            share_of_one_device(self.load.others, num_cores, num_devices)
            <= NOTICEABLE_LOAD
        ):
            return ""
        return (
            f"other processes used {self.load.others:.0%} of this run's cores while it "
            f"ran; {self.unit}/s may be too low"
        )

    def keep_memory(self, peak_device_bytes: Sequence[int] | None) -> None:
        """Keep the peak of the memory so far.

        It must be called after the last measured batch.

        Args:
          peak_device_bytes: The peak of each device, or None if unknown.
        """
        devices = None if peak_device_bytes is None else tuple(peak_device_bytes)
        self._memory = Memory(
            peak_process_bytes=peak_process_bytes(), peak_device_bytes=devices
        )

    def batches_since(self, first: int) -> dict[str, list[Any]]:
        """Return this process's batches from number `first`.

        They are the fields of a `records.workers.Rank`.
        """
        return self._timed_columns(first, len(self.timer.step_loss))

    def _timed_columns(self, first: int, stop: int) -> dict[str, list[Any]]:
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
        """Return further facts about this process.

        They are fields of a `records.workers.Rank`.
        """
        memory = self._memory
        windows = self.load_windows()
        return {
            "cpu_affinity": self.resolved.get("cpu_affinity"),
            "phases": encode(self._phase_seconds(self.timer.step_s)),
            "load_others": self.load.others if self.load else None,
            "load_windows": encode(windows) if windows else None,
            "peak_process_bytes": memory.peak_process_bytes if memory else None,
            "energy": self.energy.read(),
        }

    def load_windows(self) -> LoadWindows | None:
        """Return the load of each window so far; None if it is unknown."""
        windows = self._window_meter.windows() if self._window_meter else None
        if not windows:
            return None
        loads = [window.load for window in windows]
        return LoadWindows(
            batches=tuple(window.batches for window in windows),
            seconds=tuple(round(load.seconds, _SECONDS_DIGITS) for load in loads),
            others=tuple(round(load.others, _SHARE_DIGITS) for load in loads),
            steal=tuple(round(load.steal, _SHARE_DIGITS) for load in loads),
            own=tuple(round(load.own, _SHARE_DIGITS) for load in loads),
        )

    def record(
        self, status: str, error: RunError | None = None, workers: Workers | None = None
    ) -> RunRecord:
        """Return the record as of now.

        Args:
          status: "ok", "failed" or "interrupted".
          error: Why the run ended early, or None.
          workers: All processes of the run, or None if it has one.
        """
        environment = self._read_environment()
        batches = self._batches(workers)
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
            "peak_flops_per_second": self._peak_flops(environment),
        }
        energy = self.energy.read()
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
            phases=self._phase_seconds(batches.seconds),
            environment=dataclasses.replace(
                environment,
                gpus_after=tuple(gpus_after),
                load=self._recorded_load(),
                clocks=self._read_clocks(),
                missing=frozenset(),
            ),
            unit=self.unit,
            flops_per_item=self.flops_per_item,
            workers=workers,
            energy=build(Energy, energy) if energy else None,
        )

    def _recorded_load(self) -> RecordedLoad | None:
        if self.load is None:
            return None
        return RecordedLoad(
            others=self.load.others,
            steal=self.load.steal,
            seconds=self.load.seconds,
            windows=self.load_windows(),
        )

    def _read_environment(self) -> Environment:
        """Return the environment, which is read once.

        Reading it starts other programs, for which an interrupted run has no time.
        """
        if self._environment is None:
            fields = read_environment(self.variables)
            if self.program_folder is not None:
                fields["program_commit"] = read_commit(self.program_folder)
            self._environment = build(Environment, fields)
        return self._environment

    def _batches(self, workers: Workers | None) -> Batches:
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
            for name, values in self._timed_columns(0, steps).items()
        }
        return Batches(
            warmup=min(steps, timer.warmup_steps),
            measured=max(0, steps - timer.warmup_steps),
            **columns,
            **self._tower_columns(steps),
        )

    def _tower_columns(self, steps: int) -> dict[str, Any]:
        """Return further fields of a `records.parts.Batches` for the first `steps`."""
        return {}

    def _peak_flops(self, environment: Environment) -> float | None:
        cores = self.flat.get("cpu_cores_per_device")
        dtype = self.flat.get("compute_dtype")
        if not cores or not dtype:
            return None
        return peaks.run_peak(encode(environment), self.resolved, cores, dtype)

    def _read_clocks(self) -> Clocks | None:
        sampled = self._sampler.read() if self._sampler else None
        return build(Clocks, sampled) if sampled else None

    def _phase_seconds(self, step_s: Sequence[float]) -> Phases:
        """Return the seconds of each phase, which add up to the total.

        The phases of the batches are sums of their seconds.
        """
        now = self._clock()
        warmup = self.timer.warmup_steps
        starts = self._phase_starts
        ends = [start for _, start in starts[1:]] + [now]
        spent = {name: end - start for (name, start), end in zip(starts, ends)}
        phases = Phases(
            start=spent["start"],
            cluster=spent.get("cluster", 0.0),
            build=spent.get("build", 0.0),
            resume=spent.get("resume"),
            first_batch=sum(step_s[: min(1, warmup)]),
            warmup=sum(step_s[1:warmup]),
            measured=sum(step_s[warmup:]),
        )
        known_s = sum(phases.parts.values())
        elapsed_s = now - starts[0][1] + self._carried_s
        # The batches may have been timed by another rank's clock.
        total = max(known_s, elapsed_s)
        return dataclasses.replace(phases, teardown=total - known_s, total=total)
