"""Times the steps of any training loop and leaves a run record, which report, compare and audit read like our own."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rnn_scaling.machine import alive, clock_sampler
from rnn_scaling.machine.cores import available_cores
from rnn_scaling.machine.environment import read_environment
from rnn_scaling.machine.load import LoadMeter
from rnn_scaling.machine.system import peak_process_bytes
from rnn_scaling.records import record
from rnn_scaling.records.decoding import build
from rnn_scaling.records.environment import Clocks, Environment, Load, Resolved
from rnn_scaling.records.parts import Batches, Memory, Phases, RunError, Throughput
from rnn_scaling.records.record import RunRecord
from rnn_scaling.training.clock import StepTimer, measured_window, steady_state


class Recorder:
    """The clock of a training loop that is not ours; standard library alone.

        with Recorder("run.json", unit="images", num_devices=2) as recorder:
            for batch in batches:
                loss = float(train_step(batch))  # returns when the devices have finished
                recorder.step(items=len(batch), loss=loss)

    A step's seconds run from the end of the step before it, the first one's from the beginning of the `with`. The
    record is written when that ends, also by an exception; while it goes on, the file says that it has not ended.
    """

    def __init__(
        self,
        result_file: str | os.PathLike[str],
        *,
        unit: str = "items",
        num_devices: int = 1,
        trainer: str = "",
        num_warmup_batches: int = 10,
        device_type: str = "CPU",
        options: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Args:
        result_file: where the record goes.
        unit: what is counted, in the plural: "images", "tokens".
        num_devices: that the program trains on.
        trainer: what it is called in reports; the program's name when not given.
        num_warmup_batches: steps at the start that no rate counts.
        device_type: "CPU" or "GPU".
        options: what else tells this run from others: single values by name; a name of our trainer's means the same.
        clock: returns seconds.

        Raises:
          ValueError: if an option is no single value, or a number is below what it may be.
          OSError: if the record cannot be written; before anything is timed.
        """
        if num_devices < 1 or num_warmup_batches < 0:
            raise ValueError(
                f"expected num_devices >= 1 and num_warmup_batches >= 0, got {num_devices} and {num_warmup_batches}"
            )
        self._path, self._unit, self._clock = Path(result_file), unit, clock
        self._timer = StepTimer(num_warmup_batches, clock)
        self._cores = available_cores()
        self._resolved = {"device_type": device_type, "scaling": "weak", "cpu_affinity": self._cores}
        self._config: dict[str, Any] = {
            "trainer": trainer or Path(sys.argv[0] or "python").stem,
            "num_devices": num_devices,
            "num_warmup_batches": num_warmup_batches,
            **(options or {}),
        }
        self._began = self._started = clock()
        self._environment: Environment | None = None
        self._meter: LoadMeter | None = None
        self._sampler: clock_sampler.ClockSampler | None = None
        if faults := list(record.checks.config_faults(self._config)):
            raise ValueError(f"options: {faults[0]}")
        unfinished = RunError(type="Killed", message="the process ended without a result", process=alive.this_process())
        record.write(self._record("failed", unfinished), self._path)

    def __enter__(self) -> Recorder:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)

    def start(self) -> None:
        """Reads the clock before the first step; a `with` does it."""
        self._environment = build(Environment, read_environment())
        self._meter = LoadMeter(self._cores)
        self._sampler = clock_sampler.start({**self._resolved, "devices": [""] * self._config["num_devices"]})
        self._started = self._clock()
        self._timer.start()

    def resume(self) -> None:
        """Leaves out of the clock what the program did since the last step: a validation, a checkpoint."""
        self._timer.resume()

    def step(self, items: int, loss: float = math.nan) -> float:
        """A step has ended on all devices.

        Args:
          items: that it processed, on all devices, padding left out.
          loss: of the step; NaN: not told.

        Returns:
          Its seconds.

        Raises:
          ValueError: if it processed nothing: it would be no step.
        """
        if not items >= 1:
            raise ValueError(f"step {len(self.step_s)}: expected at least one of the {self._unit}, got items={items}")
        return self._timer.end_step(items, loss)

    @property
    def step_s(self) -> list[float]:
        """Seconds of every step so far."""
        return self._timer.step_s

    @property
    def step_items(self) -> list[int]:
        """Items of every step so far."""
        return self._timer.step_items

    def close(self, error: BaseException | None = None) -> RunRecord:
        """Writes the record and returns it; a `with` does it.

        Args:
          error: what ended the loop; None: it is done.

        Raises:
          OSError: if the file can no longer be written.
        """
        if self._sampler is not None:
            self._sampler.stop()
        if error is None and len(self._timer.step_s) <= self._timer.warmup_steps:
            steps, warmup = len(self._timer.step_s), self._timer.warmup_steps
            error = ValueError(f"{steps} steps, and the first {warmup} are warm-up: lower num_warmup_batches")
        if error is None:
            result = self._record("ok")
        else:
            is_interrupt = isinstance(error, KeyboardInterrupt)
            status, kind = ("interrupted", "Interrupted") if is_interrupt else ("failed", type(error).__name__)
            result = self._record(status, RunError(type=kind, message=str(error)[:500] or kind))
        record.write(result, self._path)
        return result

    def _record(self, status: str, error: RunError | None = None) -> RunRecord:
        timer, warmup = self._timer, self._timer.warmup_steps
        measured = max(0, len(timer.step_s) - warmup)
        throughput = steady = None
        if measured and status != "failed":
            window = measured_window(timer.step_s, timer.step_items, warmup)
            rate = window.items / window.seconds
            throughput = Throughput(items=window.items, seconds=window.seconds, items_per_second=rate)
            steady = steady_state(timer.step_s, timer.step_items, warmup, self._unit)
        losses = tuple(loss if math.isfinite(loss) else None for loss in timer.step_loss)
        return RunRecord(
            status=status,
            error=error,
            config={**self._config, "num_batches": max(1, measured)},
            resolved=build(Resolved, self._resolved),
            batches=Batches(
                warmup=len(timer.step_s) - measured,
                measured=measured,
                seconds=tuple(timer.step_s),
                items=tuple(timer.step_items),
                loss=losses,
            ),
            throughput=throughput,
            memory=Memory(peak_process_bytes=peak_process_bytes(), peak_device_bytes=None),
            steady_state=steady,
            phases=self._phases(),
            environment=self._machine(),
            unit=self._unit,
        )

    def _machine(self) -> Environment:
        if self._environment is None:
            return record.NOTHING_TOLD
        load = self._meter.read() if self._meter else None
        sampled = self._sampler.read() if self._sampler else None
        return dataclasses.replace(
            self._environment,
            load=build(Load, dataclasses.asdict(load)) if load else None,
            clocks=build(Clocks, sampled) if sampled else None,
            missing=frozenset(),
        )

    def _phases(self) -> Phases:
        """What the program did between steps, and left out of the clock, is part of the end."""
        step_s, warmup = self._timer.step_s, self._timer.warmup_steps
        phases = Phases(
            start=self._started - self._began,
            first_batch=sum(step_s[: min(1, warmup)]),
            warmup=sum(step_s[1:warmup]),
            measured=sum(step_s[warmup:]),
        )
        total = self._clock() - self._began
        return dataclasses.replace(phases, teardown=total - sum(phases.parts.values()), total=total)
