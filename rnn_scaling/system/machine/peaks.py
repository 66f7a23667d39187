"""Keep the measured rates of matrix products in a file of the user's cache.

The field names of `Peak` and `DeviceKind` are keys of this file. An entry that lacks
one is ignored without a message.
"""

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.system.files import input_files

SCHEMA = "rnn_scaling.peaks/1"
_MAX_FLOPS_PER_SECOND = 1e18  # the highest rate in a record


@dataclasses.dataclass(frozen=True)
class DeviceKind:
    """A kind of devices, which have the same peak.

    Attributes:
      device: The name of the processor or GPU.
      vector_units: The vector units by which TensorFlow chooses kernels; empty for
        GPUs.
      onednn: Whether TensorFlow uses oneDNN; False for GPUs.
      cores_per_device: The cores of a CPU device; 0 for GPUs.
      dtype: The type of the arithmetic: "float32", "bfloat16" or "float16".
    """

    device: str
    vector_units: tuple[str, ...]
    onednn: bool
    cores_per_device: int
    dtype: str


@dataclasses.dataclass(frozen=True)
class Peak:
    """The best total rate of `num_devices` devices in FLOP/s, with quartiles of repeats."""

    place: DeviceKind  # "place" is the key in the file
    num_devices: int
    flops_per_second: float
    lower_quartile: float
    upper_quartile: float


def find_path(variables: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of the file, which may be missing; None without a home folder."""
    cache = variables.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):  # The XDG specification ignores relative paths.
        home = variables.get("HOME") or os.path.expanduser("~")
        if not os.path.isabs(home):
            return None
        cache = os.path.join(home, ".cache")
    return Path(cache, "rnn_scaling", "peaks.json")


def find_device_kind(
    environment: Mapping[str, Any],
    device_type: str,
    onednn: bool,
    cores: int,
    dtype: str,
) -> DeviceKind | None:
    """Return the kind of devices of a run or measurement.

    Args:
      environment: The environment of its record.
      device_type: "CPU" or "GPU".
      onednn: Whether oneDNN runs the operators of CPUs.
      cores: Number of CPU cores per device.
      dtype: The type of the products.

    Returns:
      None if the GPUs have several names.
    """
    if device_type == "CPU":
        units = tuple(environment.get("cpu_vector_units") or ())
        return DeviceKind(str(environment["cpu"]), units, onednn, cores, dtype)
    names = {str(gpu.get("name")) for gpu in environment.get("gpus") or ()}
    return DeviceKind(names.pop(), (), False, 0, dtype) if len(names) == 1 else None


def run_peak(
    environment: Mapping[str, Any],
    resolved: Mapping[str, Any],
    cores_per_device: int,
    dtype: str,
) -> float | None:
    """Return the total peak of a run's devices in FLOP/s; None if not measured."""
    if "devices" not in resolved:
        return None
    on_cpus = resolved["device_type"] == "CPU"
    device_kind = find_device_kind(
        environment,
        resolved["device_type"],
        bool(resolved.get("onednn")),
        cores_per_device,
        dtype,
    )
    # Several towers on one device share its peak.
    num_devices = len(environment["gpus"])
    if on_cpus:
        num_devices = len(resolved["cpu_affinity"]) // cores_per_device
    num_devices = max(1, min(len(resolved["devices"]), num_devices))
    return flops_per_second(read(find_path()), device_kind, num_devices)


def read(file: Path | None) -> list[Peak]:
    """Return the valid entries of a file; an empty list if it cannot be read."""
    try:
        content = input_files.parse_json(input_files.read_text(file)) if file else None
    except (OSError, input_files.JsonError):
        return []
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        return []
    entries = content.get("peaks")
    if not isinstance(entries, list):
        return []
    return [peak for entry in entries if (peak := _find_peak(entry))]


def format_peaks(old_peaks: Iterable[Peak], new_peaks: Iterable[Peak]) -> str:
    """Return the text of the file; new peaks replace old ones of the same devices."""
    peaks = {(p.place, p.num_devices): p for p in (*old_peaks, *new_peaks)}
    entries = [dataclasses.asdict(peak) for peak in peaks.values()]
    return input_files.format_json({"schema": SCHEMA, "peaks": entries})


def flops_per_second(
    peaks: Sequence[Peak], device_kind: DeviceKind | None, num_devices: int
) -> float | None:
    """Return the total FLOP/s of some devices, measured or as a multiple of one.

    Returns:
      None if neither was measured.
    """
    rates = {
        peak.num_devices: peak.flops_per_second
        for peak in peaks
        if peak.place == device_kind
    }
    if num_devices in rates:
        return rates[num_devices]
    total = num_devices * rates.get(1, math.inf)
    return total if total <= _MAX_FLOPS_PER_SECOND else None


def _find_peak(entry: Any) -> Peak | None:
    try:
        fields = dict(entry["place"])
        units = tuple(str(unit) for unit in fields.pop("vector_units"))
        rates = [
            float(entry[name])
            for name in ("flops_per_second", "lower_quartile", "upper_quartile")
        ]
        if not all(1 <= rate <= _MAX_FLOPS_PER_SECOND for rate in rates):
            return None
        hash(tuple(fields.values()))  # Kinds are compared; a list raises TypeError.
        return Peak(
            DeviceKind(vector_units=units, **fields), int(entry["num_devices"]), *rates
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
