"""Find GPUs of a run that are unequal or slow, from the clocks in its record.

Runs warn with `list_clock_cautions`; reports list the differences. The constants of
this module decide what counts as unequal or slow.
"""

import dataclasses
import statistics
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from rnn_scaling.records.environment import ClockedDevice, ClockReading, Clocks
from rnn_scaling.system.machine import throttling

_TOLERANCE = 0.01  # clocks of equal devices may differ by this share
# Share of the samples under load from which slowed-down clocks are reported.
_MIN_THROTTLED_SHARE = 0.05
_SAMPLED_FIELDS = ("sm_mhz", "memory_mhz")
_COMPARED_FIELDS = (*_SAMPLED_FIELDS, "max_sm_mhz", "max_memory_mhz", "power_limit_w")
_FIELDS_BY_KIND = {"CPU": "mhz", "SM": "sm_mhz", "memory": "memory_mhz"}


class ClockLevel(NamedTuple):
    """GPUs with equal clocks or limits."""

    value: float  # median value of the GPUs
    gpus: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ClockDifference:
    """GPUs of one name that differ in a clock or a limit.

    Attributes:
      name: Name of the GPUs.
      field: One of _COMPARED_FIELDS.
      levels: The groups of equal GPUs, the lowest value first.
    """

    name: str
    field: str
    levels: tuple[ClockLevel, ...]

    @property
    def key(self) -> Hashable:
        """The difference without its values, which vary between runs."""
        return self.name, self.field, tuple(level.gpus for level in self.levels)


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


def list_clock_cautions(clocks: Clocks | None) -> list[ClockCaution]:
    """Return the differences and the throttling of a run's GPUs; [] for CPUs."""
    if clocks is None or not clocks.samples:
        return []
    if any(device.name is None for device in clocks.devices):
        return []
    return [*find_differences(clocks), *find_throttling(clocks)]


def find_differences(clocks: Clocks) -> list[ClockDifference]:
    """Return the clocks and limits in which GPUs of the same name differ.

    Clocks are medians under load.
    """
    differences = []
    devices = clocks.devices
    for name in dict.fromkeys(device.name for device in devices):
        for field in _COMPARED_FIELDS:
            values = [
                (
                    _find_reading_value(clocks, number, field) or 0.0,
                    _find_device_index(device, number),
                )
                for number, device in enumerate(devices)
                if device.name == name
            ]
            levels = _group_by_value([pair for pair in values if pair[0]])
            if len(levels) > 1:
                differences.append(ClockDifference(str(name), field, levels))
    return differences


def find_throttling(clocks: Clocks) -> list[Throttling]:
    """Return the reasons that slowed GPUs down in many of their samples under load.

    Many are a share of _MIN_THROTTLED_SHARE or more.
    """
    throttlings = []
    for bit, reason in throttling.REASONS.items():
        shares = []
        for number, device in enumerate(clocks.devices):
            readings = _select_readings_under_load(clocks, number)
            count = sum(bool((reading.reasons or 0) & bit) for reading in readings)
            share = count / max(1, len(readings))
            if share >= _MIN_THROTTLED_SHARE:
                shares.append((_find_device_index(device, number), share))
        if shares:
            throttlings.append(Throttling(reason, tuple(shares)))
    return throttlings


def compute_median_clocks_mhz(clocks: Clocks | None) -> dict[str, list[float]]:
    """Return the median under load in MHz of each device, by kind of clock."""
    if clocks is None or not clocks.samples:
        return {}
    medians_by_kind = {}
    for kind, field in _FIELDS_BY_KIND.items():
        values = [
            _compute_median_under_load(clocks, device, field)
            for device in range(len(clocks.devices))
        ]
        known_values = [value for value in values if value is not None]
        if known_values:
            medians_by_kind[kind] = known_values
    return medians_by_kind


def _find_reading_value(clocks: Clocks, device: int, field: str) -> float | None:
    if field in _SAMPLED_FIELDS:
        return _compute_median_under_load(clocks, device, field)
    value: float | None = getattr(clocks.devices[device], field)
    return value


def _find_device_index(device: ClockedDevice, number: int) -> int:
    return number if device.index is None else device.index


def _select_readings_under_load(clocks: Clocks, device: int) -> list[ClockReading]:
    """Return the readings of a device while it was not idle; [] if it always was.

    Clocks of an idle device mean nothing.
    """
    readings = []
    for sample in clocks.samples:
        reading = sample.devices[device]
        reasons = reading.reasons or 0
        is_idle = bool(reasons & throttling.IDLE_BIT) or reading.utilisation == 0
        if not is_idle:
            readings.append(reading)
    return readings


def _compute_median_under_load(clocks: Clocks, device: int, field: str) -> float | None:
    readings = _select_readings_under_load(clocks, device)
    values = [getattr(reading, field) for reading in readings]
    known_values = [value for value in values if value is not None]
    return statistics.median(known_values) if known_values else None


def _group_by_value(values: Iterable[tuple[float, int]]) -> tuple[ClockLevel, ...]:
    """Group (value, GPU) by values that are within _TOLERANCE of the lowest.

    Returns:
      The groups, low values first.
    """
    clusters: list[list[tuple[float, int]]] = []
    for value, index in sorted(values):
        if not clusters or value > clusters[-1][0][0] * (1 + _TOLERANCE):
            clusters.append([])
        clusters[-1].append((value, index))
    levels = []
    for cluster in clusters:
        median = statistics.median(value for value, _ in cluster)
        gpus = tuple(sorted(index for _, index in cluster))
        levels.append(ClockLevel(median, gpus))
    return tuple(levels)


_REMEDY = (
    "every step waits for the slowest GPU; `nvidia-smi -q -d CLOCK,POWER` "
    "shows the settings"
)
# Field -> title, unit and verb.
_QUANTITIES = {
    "sm_mhz": ("SM clock", "MHz", "ran at"),
    "memory_mhz": ("memory clock", "MHz", "ran at"),
    "max_sm_mhz": ("highest SM clock", "MHz", "with"),
    "max_memory_mhz": ("highest memory clock", "MHz", "with"),
    "power_limit_w": ("power limit", "W", "with"),
}


def format_caution(caution: ClockCaution) -> str:
    """Return a sentence about GPUs, without its full stop."""
    if isinstance(caution, Throttling):
        return _format_throttling(caution)
    return _format_difference(caution)


def _format_difference(difference: ClockDifference) -> str:
    title, unit, verb = _QUANTITIES[difference.field]
    (lowest, lowest_gpus), *higher = difference.levels
    texts = []
    for value, gpus in higher:
        excess = f"{value / lowest - 1:+.1%}"
        texts.append(f"{_format_gpus(gpus)} {verb} {value:g} {unit} ({excess})")
    return (
        f"{_format_gpus(lowest_gpus)} ({difference.name}) {verb} a {title} of {lowest:g}"
        f" {unit}, {', '.join(texts)}: {_REMEDY}"
    )


def _format_throttling(throttling: Throttling) -> str:
    shares = [share for _, share in throttling.shares]
    low = f"{100 * min(shares):.0f}"
    high = f"{100 * max(shares):.0f}"
    percent = high if low == high else f"{low} to {high}"
    gpus = _format_gpus([gpu for gpu, _ in throttling.shares])
    return (
        f"{gpus}: the driver reduced the clocks in {percent} % of the samples "
        f"under load: {throttling.reason}"
    )


def _format_gpus(gpus: Sequence[int]) -> str:
    noun = "GPU" if len(gpus) == 1 else "GPUs"
    return f"{noun} {', '.join(map(str, gpus))}"
