"""What the sampled clocks of a record say of devices that should be equal. Pure."""

import dataclasses
import statistics
from collections.abc import Hashable, Sequence

from rnn_scaling.records.environment import ClockedDevice, ClockReading, Clocks
from rnn_scaling.system.machine import throttling

TOLERANCE = 0.01  # equal devices may differ by so much
NOTICEABLE = 0.05  # share of the samples under load from which on a GPU that was held down is named
REMEDY = "a step waits for the slowest; `nvidia-smi -q -d CLOCK,POWER` shows how they are set"
# field -> its name, unit and verb
_QUANTITIES = {
    "sm_mhz": ("SM clock", "MHz", "ran at"),
    "memory_mhz": ("memory clock", "MHz", "ran at"),
    "max_sm_mhz": ("highest SM clock", "MHz", "with"),
    "max_memory_mhz": ("highest memory clock", "MHz", "with"),
    "power_limit_w": ("power limit", "W", "with"),
}
_SAMPLED = ("sm_mhz", "memory_mhz")
_KINDS = {"CPU": "mhz", "SM": "sm_mhz", "memory": "memory_mhz"}


@dataclasses.dataclass(frozen=True)
class ClockCaution:
    """What makes GPUs of a run unequal or slow."""

    key: tuple[
        Hashable, ...
    ]  # the same in two runs of the same GPUs, whatever the exact values
    text: str  # the sentence, without its full stop


def clock_cautions(clocks: Clocks | None) -> list[ClockCaution]:
    """All that a record's `environment.clocks` shows which makes its GPUs unequal or slow; nothing for CPUs."""
    if (
        clocks is None
        or not clocks.samples
        or any(device.name is None for device in clocks.devices)
    ):
        return []
    return [*differing(clocks), *held_down(clocks)]


def differing(clocks: Clocks) -> list[ClockCaution]:
    """GPUs of the same name whose median clocks under load, highest clocks or power limits differ by over 1 %."""
    unlike = []
    devices = clocks.devices
    for name in dict.fromkeys(device.name for device in devices):
        alike = [i for i, device in enumerate(devices) if device.name == name]
        for field, (title, unit, verb) in _QUANTITIES.items():
            values = {
                i: _median(clocks, i, field)
                if field in _SAMPLED
                else getattr(devices[i], field)
                for i in alike
            }
            clusters = _clusters(
                [(value, _index(devices[i], i)) for i, value in values.items() if value]
            )
            if len(clusters) < 2:
                continue
            (lowest, lowest_gpus), *higher = clusters
            texts = [
                f"{_gpus(gpus)} {verb} {value:g} {unit} ({value / lowest - 1:+.1%})"
                for value, gpus in higher
            ]
            text = f"{_gpus(lowest_gpus)} ({name}) {verb} a {title} of {lowest:g} {unit}, {', '.join(texts)}: {REMEDY}"
            unlike.append(
                ClockCaution(
                    (name, title, tuple(indices for _, indices in clusters)), text
                )
            )
    return unlike


def held_down(clocks: Clocks) -> list[ClockCaution]:
    """What held clocks down in at least 5 % of a GPU's samples under load, by reason."""
    reasons = []
    for bit, reason in throttling.REASONS.items():
        shares: dict[int, float] = {}
        for i, device in enumerate(clocks.devices):
            loaded = _under_load(clocks, i)
            share = sum(bool((reading.reasons or 0) & bit) for reading in loaded) / max(
                1, len(loaded)
            )
            if share >= NOTICEABLE:
                shares[_index(device, i)] = share
        if shares:
            low, high = (
                f"{100 * share:.0f}"
                for share in (min(shares.values()), max(shares.values()))
            )
            percent = high if low == high else f"{low} to {high}"
            text = f"{_gpus([*shares])}: clocks held down in {percent} % of the samples under load: {reason}"
            reasons.append(ClockCaution((reason,), text))
    return reasons


def medians(clocks: Clocks | None) -> dict[str, list[float]]:
    """What kind of clock -> its median under load in MHz, one a device that tells it."""
    if clocks is None or not clocks.samples:
        return {}
    numbers = range(len(clocks.devices))
    clocks_of = {
        kind: [_median(clocks, i, field) for i in numbers]
        for kind, field in _KINDS.items()
    }
    known = {
        kind: [value for value in values if value is not None]
        for kind, values in clocks_of.items()
    }
    return {kind: values for kind, values in known.items() if values}


def _index(device: ClockedDevice, i: int) -> int:
    return i if device.index is None else device.index


def _under_load(clocks: Clocks, i: int) -> list[ClockReading]:
    """Samples of device `i` while it was not idle, maybe none: what its clocks do then means nothing."""
    readings = [sample.devices[i] for sample in clocks.samples]
    return [
        read
        for read in readings
        if not (read.reasons or 0) & throttling.IDLE and read.utilisation != 0
    ]


def _median(clocks: Clocks, i: int, field: str) -> float | None:
    values = [
        value
        for reading in _under_load(clocks, i)
        if (value := getattr(reading, field)) is not None
    ]
    return statistics.median(values) if values else None


def _clusters(
    pairs: Sequence[tuple[float, int]],
) -> list[tuple[float, tuple[int, ...]]]:
    """(median value, devices) of groups whose values are within TOLERANCE of the group's lowest, low ones first."""
    clusters: list[list[tuple[float, int]]] = []
    for value, index in sorted(pairs):
        if not clusters or value > clusters[-1][0][0] * (1 + TOLERANCE):
            clusters.append([])
        clusters[-1].append((value, index))
    parted = [list(zip(*cluster)) for cluster in clusters]
    return [
        (statistics.median(values), tuple(sorted(indices)))
        for values, indices in parted
    ]


def _gpus(indices: Sequence[int]) -> str:
    return f"GPU{'' if len(indices) == 1 else 's'} {', '.join(map(str, indices))}"
