"""Run record -> one fact of it, in a form that can be compared and shown; None: the record does not hold it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rnn_scaling.records.record import RunRecord

Read = Callable[[RunRecord], Any]
NOT_TOLD = "not told by the system"
LARGEST = 1e18  # number that a system can tell; a larger one is of a file that was edited

# Bits of clocks_throttle_reasons.active. Source: nvml.h, nvmlClocksEventReasons. Idle (0x1) holds nothing down.
LIMITED = {0x2: "application clocks", 0x4: "power cap", 0x10: "sync boost", 0x100: "display clocks"}
SLOWED = {0x8: "hardware slowdown", 0x20: "heat (software)", 0x40: "heat (hardware)", 0x80: "power brake"}


def throttle_reasons(mask: str, names: dict[int, str]) -> list[str]:
    """Names of the bits that are set in an NVML mask ("0x0000000000000004").

    Raises:
      ValueError: if `mask` is no hexadecimal number.
    """
    bits = int(mask, 16)
    return [name for bit, name in names.items() if bits & bit]


def environment(name: str) -> Read:
    """A field of `environment` as text; null in the record: the system did not tell."""

    def read(record: RunRecord) -> Any:
        if name not in record.environment:
            return None
        value = record.environment[name]
        return NOT_TOLD if value is None else str(value)

    return read


def resolved(name: str) -> Read:
    """A field of `resolved` as text."""

    def read(record: RunRecord) -> Any:
        return str(record.resolved[name]) if record.resolved.get(name) is not None else None

    return read


def package(*names: str) -> Read:
    """Version of the first of these packages that is installed."""

    def read(record: RunRecord) -> Any:
        packages = record.environment.get("packages")
        if not isinstance(packages, dict):
            return None
        return next((str(packages[name]) for name in names if name in packages), "not installed")

    return read


def cuda(part: str) -> Read:
    """Version of a part of CUDA that pip installed."""

    def read(record: RunRecord) -> Any:
        versions = record.environment.get("cuda")
        if not isinstance(versions, dict) or part not in versions:
            return None
        return str(versions[part] or "not from pip")

    return read


def number(name: str) -> Read:
    """A number of `environment`; null in the record: the system did not tell."""

    def read(record: RunRecord) -> float | str | None:
        if name not in record.environment:
            return None
        value = record.environment[name]
        return float(value) if _is_number(value) else NOT_TOLD

    return read


def cpu_vector_units(record: RunRecord) -> str | None:
    """Vector units of the processor."""
    if "cpu_vector_units" not in record.environment:
        return None
    held = record.environment["cpu_vector_units"]
    return " ".join(map(str, held)) or "none" if isinstance(held, list) else NOT_TOLD


def cpu_topology(record: RunRecord) -> str | None:
    """Sockets, cores, threads and NUMA nodes."""
    held = record.environment.get("cpu_topology")
    if not isinstance(held, dict):
        return None
    counts = [f"{held.get(part) or '?'} {part}" for part in ("sockets", "cores", "threads")]
    nodes = held.get("numa_nodes")
    return ", ".join(
        [*counts, f"NUMA nodes {' | '.join(map(str, nodes))}" if isinstance(nodes, list) and nodes else "NUMA not told"]
    )


def cpu_limit(record: RunRecord) -> str | None:
    """What control groups grant."""
    if "cpu_limit" not in record.environment:
        return None
    limit = record.environment["cpu_limit"]
    return "none" if limit is None else f"{limit:g} cores" if _is_number(limit) else str(limit)


def turbo(record: RunRecord) -> str | None:
    """Whether the clock may rise above its nominal value."""
    held = record.environment
    if "cpu_no_turbo" not in held or "cpu_boost" not in held:
        return None
    if held["cpu_no_turbo"] is None and held["cpu_boost"] is None:
        return NOT_TOLD
    return "off" if held["cpu_no_turbo"] == "1" or held["cpu_boost"] == "0" else "on"


def highest_clock(record: RunRecord) -> float | str | None:
    """The fastest core's, in MHz: the one that the program runs on while the others idle."""
    clocks = record.environment.get("cpu_mhz")
    if not isinstance(clocks, list):
        return None
    return max(filter(_is_number, clocks), default=NOT_TOLD)


def huge_pages(record: RunRecord) -> str | None:
    """When the kernel backs memory with huge pages: always, madvise or never."""
    value = environment("huge_pages")(record)
    match = re.search(r"\[(\w+)\]", value or "")
    return match[1] if match else value


def cores(record: RunRecord) -> str | None:
    """How many cores the process was bound to."""
    held = record.resolved.get("cpu_affinity")
    return str(len(held)) if isinstance(held, list) else None


def cores_by_number(record: RunRecord) -> str | None:
    """Which cores the process was bound to."""
    held = record.resolved.get("cpu_affinity")
    return ",".join(map(str, held)) if isinstance(held, list) else None


def oversubscribed(record: RunRecord) -> str | None:
    """Whether CPU devices share cores."""
    if record.config.get("device") == "gpu":
        return "only asked of CPU devices"
    return resolved("oversubscribed")(record)


def gpus(*names: str, when: str = "gpus") -> Read:
    """Text of these fields of every GPU, in the order of the devices."""

    def read(record: RunRecord) -> str | None:
        held = record.environment.get(when)
        if not isinstance(held, list) or not held:
            return None
        cells = [[gpu.get(name) for name in names] for gpu in held if isinstance(gpu, dict)]
        if any(cell is None for row in cells for cell in row):
            return None
        words = [" and ".join(map(str, row)) for row in cells]
        return f"{len(words)} x {words[0]}" if len(words) > 1 and len(set(words)) == 1 else ", ".join(words)

    return read


def gpu_clock(name: str, when: str) -> Callable[[RunRecord], float | None]:
    """Mean over the GPUs in MHz."""

    def read(record: RunRecord) -> float | None:
        held = record.environment.get(when)
        texts = [str(gpu.get(name)) for gpu in held if isinstance(gpu, dict)] if isinstance(held, list) else []
        numbers = [float(match[0]) for match in (re.match(r"[\d.]+", text) for text in texts) if match]
        return sum(numbers) / len(numbers) if numbers and len(numbers) == len(texts) else None

    return read


def held_down(names: dict[int, str]) -> Read:
    """Why clocks were held down before or after the run, on any GPU."""

    def read(record: RunRecord) -> str | None:
        found: dict[str, None] = {}
        for when in ("gpus", "gpus_after"):
            try:
                masks = [gpu["clocks_throttle_reasons.active"] for gpu in record.environment[when]]
                found.update(dict.fromkeys(reason for mask in masks for reason in throttle_reasons(mask, names)))
            except (KeyError, TypeError, ValueError):  # "[N/A]": the card does not tell
                return None
        return ", ".join(found) or "nothing"

    return read


def gpu_topology(record: RunRecord) -> str | None:
    """The rows of the matrix of `nvidia-smi topo -m`, where several devices exchange."""
    if record.config.get("num_devices") == 1:
        return "one device"
    value = record.environment.get("topology")
    if not isinstance(value, str):
        return None
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in value.splitlines()]
    return "; ".join(" ".join(line.split()) for line in lines if re.match(r"(GPU|NIC|mlx)", line))  # not the head


def all_reduce(record: RunRecord) -> str | None:
    """The algorithms that `auto` or the specification came to."""
    held = record.resolved.get("all_reduce")
    if not isinstance(held, list):
        return None
    words = [f"{part.get('algorithm')}#{part.get('shards')}" for part in held if isinstance(part, dict)]
    return ":".join(words) or "none"


def commit(record: RunRecord) -> str | None:
    """The commit, and a digest of what was changed since."""
    if "commit" not in record.environment:
        return None
    held = record.environment["commit"]
    if not isinstance(held, dict):
        return "not in a git checkout"
    name = str(held.get("hash"))[:9]
    if not held.get("modified"):
        return name
    return f"{name} modified ({held['diff']})" if held.get("diff") else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and -LARGEST <= value <= LARGEST
