"""Watch the machine during a run: load of its cores, clocks of devices, energy.

`recording` creates a `MachineWatch` for each run.
"""

from collections.abc import Mapping
from typing import Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.clocks import format_caution, list_clock_cautions
from rnn_scaling.records.decoding import build
from rnn_scaling.records.environment import Clocks, LoadWindows
from rnn_scaling.records.environment import Load as RecordedLoad
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.machine import clock_sampler
from rnn_scaling.system.machine.clock_sampler import ClockSampler
from rnn_scaling.system.machine.energy import EnergyMeter
from rnn_scaling.system.machine.load import (
    NOTICEABLE_LOAD,
    Load,
    LoadMeter,
    Sample,
    WindowMeter,
    share_of_one_device,
)
from rnn_scaling.training.clock import StepTimer

_MAX_SAMPLED_DEVICES = 4096
# Digits of the windows in a record: their shares err by more than 0.001.
_SHARE_DIGITS = 4
_SECONDS_DIGITS = 6


class MachineWatch:
    """Reads the meters of the machine before, between and after the batches of a run.

    A `Recording` creates it and puts its readings into the record. The training loop
    starts and stops it, and calls it after each batch.

    Attributes:
      load: The load of other processes on the run's cores, or None if unknown.
      energy: The energy meter. It is started after the warm-up.
    """

    def __init__(
        self, resolved: Mapping[str, Any], num_devices: int, timer: StepTimer
    ) -> None:
        """Create the meters.

        Args:
          resolved: The fields of a `records.environment.Resolved`. The run may add its
            cores and devices until `start`.
          num_devices: Number of devices of this process.
          timer: The clock of the steps.
        """
        self.load: Load | None = None
        self.energy = EnergyMeter()
        self._resolved = resolved
        self._num_devices = num_devices
        self._timer = timer
        self._load_meter: LoadMeter | None = None
        self._window_meter: WindowMeter | None = None
        self._sample: Sample | None = None
        self._clock_sampler: ClockSampler | None = None

    def start(self, with_clocks: bool, sample: Sample | None) -> None:
        """Watch the load of the cores and, if wanted, the clocks of the devices.

        Args:
          with_clocks: Whether to sample the clocks.
          sample: Reads the load, see `LoadMeter`. With None, the load of all other
            processes counts.
        """
        self._sample = sample
        self.restart_load()
        if with_clocks:
            # For a Recorder, only the number of devices is known.
            devices = [""] * min(self._num_devices, _MAX_SAMPLED_DEVICES)
            self._clock_sampler = clock_sampler.start(
                {"devices": devices, **self._resolved}
            )

    def restart_load(self) -> None:
        """Forget the load so far."""
        self._load_meter = LoadMeter(self._cores, self._sample)

    def start_measuring(self) -> None:
        """Start the meters of the measured batches, right before the first of them."""
        self.energy.start()
        self._window_meter = WindowMeter(self._cores, self._num_devices, self._sample)

    def end_window(self) -> bool:
        """Read the load after a batch, if its window is long enough.

        Returns:
          True if it was read, which takes some time.
        """
        meter = self._window_meter
        return meter is not None and meter.end_batch(self._count_measured())

    def stop(self) -> list[str]:
        """Stop all meters.

        Returns:
          A line for each device that was slower than the others, or throttled.
        """
        self.energy.stop()
        if self._load_meter is not None:
            self.load = self._load_meter.read()
        if self._window_meter is not None:
            self._window_meter.finish(self._count_measured())
        if self._clock_sampler is None:
            return []
        self._clock_sampler.stop()
        return list(map(format_caution, list_clock_cautions(self.read_clocks())))

    def describe_disturbance(self, record: RunRecord) -> str:
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
        num_cores = len(self._cores)
        share = share_of_one_device(self.load.others, num_cores, self._num_devices)
        if share <= NOTICEABLE_LOAD:
            return ""
        return (
            f"other processes used {self.load.others:.0%} of this run's cores while it "
            f"ran; {record.unit}/s may be too low"
        )

    def read_load(self) -> RecordedLoad | None:
        """Return the load as the record contains it; None before `stop`."""
        if self.load is None:
            return None
        return RecordedLoad(
            others=self.load.others,
            steal=self.load.steal,
            seconds=self.load.seconds,
            windows=self.read_windows(),
        )

    def read_windows(self) -> LoadWindows | None:
        """Return the load of each window so far; None if it is unknown."""
        windows = self._window_meter.list_windows() if self._window_meter else None
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

    def read_clocks(self) -> Clocks | None:
        """Return the clocks of the devices so far; None if they are not sampled."""
        sampled = self._clock_sampler.read() if self._clock_sampler else None
        return build(Clocks, sampled) if sampled else None

    @property
    def _cores(self) -> list[int]:
        return self._resolved.get("cpu_affinity", [])

    def _count_measured(self) -> int:
        return len(self._timer.step_s) - self._timer.warmup_steps
