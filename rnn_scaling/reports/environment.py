"""What the runs of a report ran on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.record import RunRecord

SHOWN = 4  # different values that are listed


@dataclasses.dataclass(frozen=True)
class Fact:
    """One property of the environment: its different values, each with the number of runs that had it."""

    name: str
    values: tuple[tuple[str, int], ...]

    @property
    def text(self) -> str:
        """The value; several with their counts."""
        if len(self.values) == 1:
            return self.values[0][0]
        shown = [f"{value} ({count} run{'' if count == 1 else 's'})" for value, count in self.values[:SHOWN]]
        rest = len(self.values) - SHOWN
        return "; ".join([*shown, *([f"{rest} more"] if rest > 0 else [])])


def facts(records: Sequence[RunRecord]) -> tuple[Fact, ...]:
    """Machine, versions, threads, load and clocks over all runs; what no record tells is left out."""
    alike: dict[tuple[int, ...], list[RunRecord]] = {}
    for record in records:  # most runs share all parts but their load: look at those once
        parts = (value for name, value in record.environment.items() if name != "load")
        alike.setdefault((id(record.resolved), *map(id, parts)), []).append(record)
    counts: dict[str, dict[str, int]] = {}
    for group in alike.values():
        for name, value in _facts(group[0]):
            values = counts.setdefault(name, {})
            values[value] = values.get(value, 0) + len(group)
    found = [Fact(name, tuple(values.items())) for name, values in counts.items()]
    return (*found, *_load(records))


def cautions(records: Sequence[RunRecord]) -> list[str]:
    """What a reader must know before trusting the numbers, one sentence each."""
    lines = []
    logical = [r.resolved.get("device_type") for r in records if r.resolved.get("logical_devices")]
    if any(kind != "CPU" for kind in logical):
        lines.append(
            f"In {_runs(len(logical))} of {len(records)} several towers share one real GPU (logical devices): "
            "this shows what the software costs, not how hardware scales."
        )
    elif logical:
        lines.append(
            "The devices are cores of one CPU: they share its caches, memory and clock, so this is not how separate "
            "machines or GPUs scale."
        )
    crowded = sum(bool(r.resolved.get("oversubscribed")) for r in records)
    if crowded:
        lines.append(f"In {_runs(crowded)} of {len(records)} the devices wanted more CPU cores than there are.")
    throttled = sum(any(_throttled(gpu) for gpu in _gpus(record, "gpus_after")) for record in records)
    if throttled:
        lines.append(f"In {_runs(throttled)} of {len(records)} the driver held the GPUs' clocks down.")
    return lines


def _facts(record: RunRecord) -> Iterator[tuple[str, str]]:
    env, resolved = record.environment, record.resolved
    gpus = _gpus(record, "gpus")
    yield from _told("GPUs", _counted([str(gpu.get("name", "unknown")) for gpu in gpus]))
    yield from _told("GPU driver", ", ".join(sorted({str(gpu.get("driver_version", "")) for gpu in gpus})))
    clocks = [f"{gpu.get('clocks.sm', '?')}, {gpu.get('clocks.mem', '?')}" for gpu in _gpus(record, "gpus_after")]
    yield from _told("GPU clocks (SM, memory)", "; ".join(sorted(set(clocks))))
    yield from _told("CPU", env.get("cpu"))
    yield from _told("CPU cores of the machine", env.get("cpu_cores"))
    yield from _told("CPU cores of the run", len(_list(resolved.get("cpu_affinity"))) or None)
    yield from _told("CPU frequency governor", env.get("cpu_governor"))
    memory = env.get("memory_bytes")
    yield from _told("Memory", f"{memory / 2**30:.1f} GiB" if isinstance(memory, (int, float)) else None)
    yield from _told("Platform", env.get("platform"))
    yield from _told("Python", env.get("python"))
    for name, version in sorted(_mapping(env.get("packages")).items()):
        yield from _told(name, version)
    yield from _told("Dispatching threads", resolved.get("inter_op_parallelism_threads"))
    yield from _told("Threads inside an operator", resolved.get("intra_op_parallelism_threads"))
    kernels = [str(kernel) for side in ("encoder", "decoder") if (kernel := resolved.get(f"{side}_kernel"))]
    yield from _told("Kernel", ", ".join(sorted(set(kernels))))
    for name, value in sorted(_mapping(env.get("variables")).items()):
        yield name, str(value)
    commit = _mapping(env.get("commit"))
    changed = ", with changes that are not committed" if commit.get("modified") else ""
    yield from _told("Commit", f"{str(commit['hash'])[:12]}{changed}" if commit.get("hash") else None)


def _load(records: Sequence[RunRecord]) -> list[Fact]:
    loads = [load for record in records if (load := _others(record)) is not None]
    if not loads:
        return []
    text = f"{sum(loads) / len(loads):.1%} of the run's cores on average, {max(loads):.1%} at most"
    return [Fact("Load of other processes", ((text, len(loads)),))]


def _others(record: RunRecord) -> float | None:
    load = _mapping(record.environment.get("load"))
    shares = [load.get(name) for name in ("others", "steal")]
    known = [share for share in shares if isinstance(share, (int, float))]
    return sum(known) if known else None


def _gpus(record: RunRecord, name: str) -> list[Mapping[str, Any]]:
    return [gpu for gpu in _list(record.environment.get(name)) if isinstance(gpu, Mapping)]


def _throttled(gpu: Mapping[str, Any]) -> bool:
    """Any reason but idling (bit 0), as `nvidia-smi` prints it: a hexadecimal mask."""
    try:
        return bool(int(str(gpu.get("clocks_throttle_reasons.active", "0")), 16) & ~1)
    except ValueError:
        return False


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def _told(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if value not in (None, ""):
        yield name, str(value)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
