"""The rate of matrix products that was measured on this machine, kept for its runs in a file of the user's cache."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.system.files import input_files

SCHEMA = "rnn_scaling.peaks/1"
MOST = 1e18  # FLOP/s that a record can hold


@dataclasses.dataclass(frozen=True)
class PeakPlace:
    device: str  # name of the processor or GPU
    vector_units: tuple[
        str, ...
    ]  # of the processor that TensorFlow chooses kernels by; none of a GPU
    onednn: bool  # TensorFlow multiplies by oneDNN; False of a GPU
    cores_per_device: int  # cores that a CPU device has; 0 of a GPU
    dtype: str  # of the arithmetic, "float32", "bfloat16" or "float16"


@dataclasses.dataclass(frozen=True)
class Peak:
    """The best rate of `num_devices` such devices at once, in FLOP/s together, and its quartiles over the repeats."""

    place: PeakPlace
    num_devices: int
    flops_per_second: float
    lower_quartile: float
    upper_quartile: float


def path(variables: Mapping[str, str] = os.environ) -> Path | None:
    """The file, which need not be there; None for a user without a home."""
    cache = variables.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(
        cache
    ):  # the XDG specification says to pass over a relative one
        home = variables.get("HOME") or os.path.expanduser("~")
        if not os.path.isabs(home):
            return None
        cache = os.path.join(home, ".cache")
    return Path(cache, "rnn_scaling", "peaks.json")


def place(
    environment: Mapping[str, Any],
    device_type: str,
    onednn: bool,
    cores: int,
    dtype: str,
) -> PeakPlace | None:
    """The place of a run or of a measurement on "CPU" or "GPU"; None where its devices have no one name."""
    if device_type == "CPU":
        units = tuple(environment.get("cpu_vector_units") or ())
        return PeakPlace(str(environment["cpu"]), units, onednn, cores, dtype)
    names = {str(gpu.get("name")) for gpu in environment.get("gpus") or ()}
    return PeakPlace(names.pop(), (), False, 0, dtype) if len(names) == 1 else None


def of_run(
    environment: Mapping[str, Any],
    resolved: Mapping[str, Any],
    cores_per_device: int,
    dtype: str,
) -> float | None:
    """FLOP/s that the devices of a run reach together; None if they are not measured, or not known yet."""
    if "devices" not in resolved:
        return None
    on_cpus = resolved["device_type"] == "CPU"
    where = place(
        environment,
        resolved["device_type"],
        bool(resolved.get("onednn")),
        cores_per_device,
        dtype,
    )
    # Towers that share a device have no more than it.
    real = (
        len(resolved["cpu_affinity"]) // cores_per_device
        if on_cpus
        else len(environment["gpus"])
    )
    return flops_per_second(
        read(path()), where, max(1, min(len(resolved["devices"]), real))
    )


def read(file: Path | None) -> list[Peak]:
    """What the file holds; nothing of a file that cannot be read, and no entry that is not whole."""
    try:
        content = input_files.parse_json(input_files.read_text(file)) if file else None
    except (OSError, input_files.JsonError):
        return []
    entries = (
        content.get("peaks")
        if isinstance(content, dict) and content.get("schema") == SCHEMA
        else None
    )
    return (
        [peak for entry in entries if (peak := _peak(entry))]
        if isinstance(entries, list)
        else []
    )


def as_text(known: Iterable[Peak], measured: Iterable[Peak]) -> str:
    """The file with what was measured now in place of what was known of the same devices."""
    peaks = {(peak.place, peak.num_devices): peak for peak in (*known, *measured)}
    entries = [dataclasses.asdict(peak) for peak in peaks.values()]
    return input_files.json_text({"schema": SCHEMA, "peaks": entries})


def flops_per_second(
    peaks: Sequence[Peak], where: PeakPlace | None, num_devices: int
) -> float | None:
    """FLOP/s of so many devices together, measured or as a multiple of one; None where neither was measured."""
    rates = {
        peak.num_devices: peak.flops_per_second for peak in peaks if peak.place == where
    }
    if num_devices in rates:
        return rates[num_devices]
    together = num_devices * rates[1] if 1 in rates else None
    return together if together is None or together <= MOST else None


def _peak(entry: Any) -> Peak | None:
    try:
        fields = dict(entry["place"])
        units = tuple(str(unit) for unit in fields.pop("vector_units"))
        rates = [
            float(entry[name])
            for name in ("flops_per_second", "lower_quartile", "upper_quartile")
        ]
        if not all(1 <= rate <= MOST for rate in rates):
            return None
        hash(tuple(fields.values()))  # places are looked up
        return Peak(
            PeakPlace(vector_units=units, **fields), int(entry["num_devices"]), *rates
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
