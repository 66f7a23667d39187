"""What the sampled clocks of a record say of devices that should be equal. Pure."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from rnn_scaling.machine import throttling
from rnn_scaling.records.environment import ClockedDevice, ClockReading, Clocks

TOLERANCE = 0.01  # equal devices may differ by so much
NOTICEABLE = 0.05  # share of the samples under load from which on a GPU that was held down is named
REMEDY = "a step waits for the slowest; `nvidia-smi -q -d CLOCK,POWER` shows how they are set"
# field -> what it is, its unit, and how devices have it
_SAMPLED = {"sm_mhz": ("SM clock", "MHz"), "memory_mhz": ("memory clock", "MHz")}
_LIMITS = {
    "max_sm_mhz": ("highest SM clock", "MHz"),
    "max_memory_mhz": ("highest memory clock", "MHz"),
    "power_limit_w": ("power limit", "W"),
}


@dataclasses.dataclass(frozen=True)
class Differing:
    """GPUs of one name that are not alike.

    Attributes:
      name: of the GPUs.
      what, unit: the quantity, of which `values` has ((value, nvidia-smi's indices), ...), the lowest value first.
      ran: it was sampled; otherwise it is a limit.
    """

    name: str
    what: str
    unit: str
    values: tuple[tuple[float, tuple[int, ...]], ...]
    ran: bool

    @property
    def key(self) -> tuple[Any, ...]:
        """What is the same in two runs of the same GPUs, whatever the exact values."""
        return (self.name, self.what, tuple(devices for _, devices in self.values))

    @property
    def text(self) -> str:
        """The sentence, without its full stop."""
        (low, first), *others = self.values

        def verb(devices: Sequence[int]) -> str:
            return "ran at" if self.ran else "has" if len(devices) == 1 else "have"

        shown = [
            f"{_gpus(devices)} {verb(devices)} {value:g} {self.unit} ({value / low - 1:+.1%})"
            for value, devices in others
        ]
        article = "an" if self.what.startswith("SM") else "a"
        lowest = f"{_gpus(first)} ({self.name}) {verb(first)} {article} {self.what} of {low:g} {self.unit}"
        return f"{lowest}, {', '.join(shown)}: {REMEDY}"


@dataclasses.dataclass(frozen=True)
class HeldDown:
    """A reason that held GPUs' clocks down: nvidia-smi's indices, and the share of each one's samples under load."""

    reason: str
    devices: tuple[int, ...]
    shares: tuple[float, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """What is the same in two runs."""
        return (self.reason,)

    @property
    def text(self) -> str:
        """The sentence, without its full stop."""
        low, high = (f"{100 * share:.0f}" for share in (min(self.shares), max(self.shares)))
        share = high if low == high else f"{low} to {high}"
        were = "was" if len(self.devices) == 1 else "were"
        return f"{_gpus(self.devices)} {were} held down in {share} % of the samples under load: {self.reason}"


def clock_cautions(clocks: Clocks | None) -> list[Differing | HeldDown]:
    """All that a record's `environment.clocks` shows which makes its GPUs unequal or slow."""
    return [*differing(clocks), *held_down(clocks)]


def differing(clocks: Clocks | None) -> list[Differing]:
    """GPUs of the same name whose median clocks under load, highest clocks or power limits differ by over 1 %.

    Args:
      clocks: a record's `environment.clocks`; None: nothing was sampled.
    """
    unlike = []
    devices = _devices(clocks)
    for name in dict.fromkeys(device.name for device in devices):
        alike = [(i, _index(device, i)) for i, device in enumerate(devices) if device.name == name]
        for field, (what, unit) in (_SAMPLED | _LIMITS).items():
            ran = field in _SAMPLED
            pairs = []
            for i, index in alike:
                value = _median(clocks, i, field) if ran else getattr(devices[i], field)
                if value is not None and value > 0:
                    pairs.append((value, index))
            values = _cluster(pairs)
            if len(values) > 1:
                unlike.append(Differing(name or "", what, unit, values, ran))
    return unlike


def held_down(clocks: Clocks | None) -> list[HeldDown]:
    """What held clocks down in at least 5 % of a GPU's samples under load, by reason."""
    reasons = []
    devices = _devices(clocks)
    for bit, reason in throttling.REASONS.items():
        shares: dict[int, float] = {}
        for i, device in enumerate(devices):
            loaded = _under_load(clocks, i)
            share = sum(bool((s.reasons or 0) & bit) for s in loaded) / max(1, len(loaded))
            if share >= NOTICEABLE:
                shares[_index(device, i)] = share
        if shares:
            reasons.append(HeldDown(reason, tuple(shares), tuple(shares.values())))
    return reasons


def medians(clocks: Clocks | None) -> dict[str, list[float]]:
    """What kind of clock -> its median under load in MHz, one a device that tells it."""
    if clocks is None or not clocks.samples:
        return {}
    fields = {"CPU": "mhz", "SM": "sm_mhz", "memory": "memory_mhz"}
    numbers = range(len(clocks.devices))
    clock_of_each = {kind: [_median(clocks, i, field) for i in numbers] for kind, field in fields.items()}
    known = {kind: [value for value in values if value is not None] for kind, values in clock_of_each.items()}
    return {kind: values for kind, values in known.items() if values}


def _devices(clocks: Clocks | None) -> tuple[ClockedDevice, ...]:
    """The GPUs of a record; none for CPUs, and none where there is no sample."""
    if clocks is None or not clocks.samples or any(device.name is None for device in clocks.devices):
        return ()
    return clocks.devices


def _index(device: ClockedDevice, i: int) -> int:
    return i if device.index is None else device.index


def _under_load(clocks: Clocks | None, i: int) -> list[ClockReading]:
    """Samples of device `i` while it was not idle, maybe none: what its clocks do then means nothing."""
    readings = [sample.devices[i] for sample in clocks.samples] if clocks else []
    return [
        reading for reading in readings if not (reading.reasons or 0) & throttling.IDLE and reading.utilisation != 0
    ]


def _median(clocks: Clocks | None, i: int, field: str) -> float | None:
    values = [value for each in _under_load(clocks, i) if (value := getattr(each, field)) is not None]
    return statistics.median(values) if values else None


def _cluster(pairs: Sequence[tuple[float, int]]) -> tuple[tuple[float, tuple[int, ...]], ...]:
    """(median value, devices) of groups whose values are within TOLERANCE of the group's lowest, low ones first."""
    clusters: list[list[tuple[float, int]]] = []
    for value, index in sorted(pairs):
        if clusters and value <= clusters[-1][0][0] * (1 + TOLERANCE):
            clusters[-1].append((value, index))
        else:
            clusters.append([(value, index)])
    return tuple(
        (statistics.median(value for value, _ in cluster), tuple(sorted(index for _, index in cluster)))
        for cluster in clusters
    )


def _gpus(indices: Sequence[int]) -> str:
    return f"GPU{'' if len(indices) == 1 else 's'} {', '.join(map(str, indices))}"
