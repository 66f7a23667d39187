"""Find GPUs of a run that are unequal or slow, from the clocks in its record.

Runs warn with `clock_cautions`; reports list the differences. The constants of this
module decide what counts as unequal or slow.
"""

import dataclasses
import statistics
from collections.abc import Hashable, Iterable

from rnn_scaling.records.environment import ClockedDevice, ClockReading, Clocks
from rnn_scaling.system.machine import throttling

_TOLERANCE = 0.01  # clocks of equal devices may differ by this share
# Share of the samples under load from which slowed-down clocks are reported.
_MIN_THROTTLED_SHARE = 0.05
_SAMPLED_FIELDS = ("sm_mhz", "memory_mhz")
_COMPARED_FIELDS = (*_SAMPLED_FIELDS, "max_sm_mhz", "max_memory_mhz", "power_limit_w")
_FIELDS_BY_KIND = {"CPU": "mhz", "SM": "sm_mhz", "memory": "memory_mhz"}


@dataclasses.dataclass(frozen=True)
class ClockDifference:
    """GPUs of one name that differ in a clock or a limit.

    Attributes:
      name: Name of the GPUs.
      field: One of _COMPARED_FIELDS.
      levels: (median value, GPUs) of each group of equal GPUs, the lowest value first.
    """

    name: str
    field: str
    levels: tuple[tuple[float, tuple[int, ...]], ...]

    @property
    def key(self) -> Hashable:
        """The difference without its values, which vary between runs."""
        return self.name, self.field, tuple(gpus for _, gpus in self.levels)


@dataclasses.dataclass(frozen=True)
class Throttling:
    """GPUs whose clocks were slowed down for one reason.

    Attributes:
      reason: One of throttling.REASONS.
      shares: (GPU, share of its samples under load).
    """

    reason: str
    shares: tuple[tuple[int, float], ...]

    @property
    def key(self) -> Hashable:
        """The reason, which is the same in all runs."""
        return self.reason


ClockCaution = ClockDifference | Throttling


def clock_cautions(clocks: Clocks | None) -> list[ClockCaution]:
    """Return why the GPUs of a run were unequal or slow; [] for CPUs."""
    if clocks is None or not clocks.samples:
        return []
    if any(device.name is None for device in clocks.devices):
        return []
    return [*find_differences(clocks), *find_throttling(clocks)]


def find_differences(clocks: Clocks) -> list[ClockDifference]:
    """Return in which medians under load, highest clocks and limits equal GPUs differ."""
    differences = []
    devices = clocks.devices
    for name in dict.fromkeys(device.name for device in devices):
        for field in _COMPARED_FIELDS:
            values = [
                (_reading_value(clocks, i, field) or 0.0, _device_index(device, i))
                for i, device in enumerate(devices)
                if device.name == name
            ]
            levels = _group_by_value([pair for pair in values if pair[0]])
            if len(levels) > 1:
                differences.append(ClockDifference(str(name), field, levels))
    return differences


def find_throttling(clocks: Clocks) -> list[Throttling]:
    """Return what slowed clocks down in many of a GPU's samples under load."""
    throttlings = []
    for bit, reason in throttling.REASONS.items():
        shares = []
        for i, device in enumerate(clocks.devices):
            readings = _select_readings_under_load(clocks, i)
            count = sum(bool((reading.reasons or 0) & bit) for reading in readings)
            share = count / max(1, len(readings))
            if share >= _MIN_THROTTLED_SHARE:
                shares.append((_device_index(device, i), share))
        if shares:
            throttlings.append(Throttling(reason, tuple(shares)))
    return throttlings


def medians(clocks: Clocks | None) -> dict[str, list[float]]:
    """Return the median under load in MHz of each device, by kind of clock."""
    if clocks is None or not clocks.samples:
        return {}
    medians_by_kind = {}
    for kind, field in _FIELDS_BY_KIND.items():
        values = [
            _median_under_load(clocks, i, field) for i in range(len(clocks.devices))
        ]
        known_values = [value for value in values if value is not None]
        if known_values:
            medians_by_kind[kind] = known_values
    return medians_by_kind


def _reading_value(clocks: Clocks, i: int, field: str) -> float | None:
    if field in _SAMPLED_FIELDS:
        return _median_under_load(clocks, i, field)
    value: float | None = getattr(clocks.devices[i], field)
    return value


def _device_index(device: ClockedDevice, i: int) -> int:
    return i if device.index is None else device.index


def _select_readings_under_load(clocks: Clocks, i: int) -> list[ClockReading]:
    """Return the readings of device i while it was not idle; [] if it always was.

    Clocks of an idle device mean nothing.
    """
    readings = []
    for sample in clocks.samples:
        reading = sample.devices[i]
        is_idle = (
            reading.reasons or 0
        ) & throttling.IDLE_BIT or reading.utilisation == 0
        if not is_idle:
            readings.append(reading)
    return readings


def _median_under_load(clocks: Clocks, i: int, field: str) -> float | None:
    values = [
        getattr(reading, field) for reading in _select_readings_under_load(clocks, i)
    ]
    known_values = [value for value in values if value is not None]
    return statistics.median(known_values) if known_values else None


def _group_by_value(
    values: Iterable[tuple[float, int]],
) -> tuple[tuple[float, tuple[int, ...]], ...]:
    """Group (value, device) by values that are within TOLERANCE of the lowest.

    Returns:
      (median value, devices) of each group, low values first.
    """
    clusters: list[list[tuple[float, int]]] = []
    for value, index in sorted(values):
        if not clusters or value > clusters[-1][0][0] * (1 + _TOLERANCE):
            clusters.append([])
        clusters[-1].append((value, index))
    levels = []
    for cluster in clusters:
        median = statistics.median(value for value, _ in cluster)
        levels.append((median, tuple(sorted(index for _, index in cluster))))
    return tuple(levels)
