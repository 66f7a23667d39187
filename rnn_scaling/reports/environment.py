"""What the runs of a report ran on."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling import registry
from rnn_scaling.analysis.clocks import clock_cautions, medians
from rnn_scaling.machine import throttling, topology
from rnn_scaling.records.environment import Environment
from rnn_scaling.records.record import VARYING, RunRecord
from rnn_scaling.records.workers import Workers

SHOWN = 4  # different values that are listed
BARRIERS_S, BARRIERS_SHARE = 0.1, 0.02  # by which a window by rank 0's clock may differ without being named
# What is shown of the machine: `missing` is not, and each record has its own.
_UNSHARED = {"missing", *VARYING} - {"gpus", "gpus_after"}
_SHARED = [field.name for field in dataclasses.fields(Environment) if field.name not in _UNSHARED]


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
    alike: dict[tuple[Any, ...], list[RunRecord]] = {}
    for record in records:  # most runs share all parts but their load: look at those once
        parts = (id(getattr(record.environment, name)) for name in _SHARED)
        alike.setdefault((id(record.resolved), *_cluster(record), *parts), []).append(record)
    counts: dict[str, dict[str, int]] = {}
    for group in alike.values():
        for name, value in (*_facts(group[0]), *_cluster(group[0])):
            values = counts.setdefault(name, {})
            values[value] = values.get(value, 0) + len(group)
    listed = [Fact(name, tuple(values.items())) for name, values in counts.items()]
    return (*listed, *_load(records), *_sampled_clocks(records))


def cautions(records: Sequence[RunRecord]) -> list[str]:
    """What a reader must know before trusting the numbers, one sentence each."""
    lines = []
    kinds = [r.resolved.device_type for r in records]
    logical = [kind for r, kind in zip(records, kinds) if r.resolved.logical_devices]
    of_gpus = [kind for kind in logical if kind != "CPU"]
    if of_gpus:
        lines.append(
            f"In {_runs(len(of_gpus))} of {len(records)} several towers share one real GPU (logical devices): "
            "this shows what the software costs, not how hardware scales."
        )
    if len(of_gpus) < len(logical):
        others = sum(kind not in ("CPU", None) for kind in kinds)
        where = f"In {_runs(kinds.count('CPU'))} of {len(records)} the" if others else "The"
        lines.append(
            f"{where} devices are cores of one CPU: they share its caches, memory and clock, so this is not how "
            "separate machines or GPUs scale."
        )
    crowded = sum(bool(r.resolved.oversubscribed) for r in records)
    if crowded:
        lines.append(f"In {_runs(crowded)} of {len(records)} the devices wanted more CPU cores than there are.")
    throttled = sum(any(_throttled(gpu) for gpu in record.environment.gpus_after) for record in records)
    if throttled:
        lines.append(f"In {_runs(throttled)} of {len(records)} the driver held the GPUs' clocks down.")
    return [*lines, *_cluster_cautions(records), *_clock_cautions(records), *_subset_cautions(records)]


def _cluster_cautions(records: Sequence[RunRecord]) -> list[str]:
    """Workers that share a host, links that were made, and windows that rank 0's clock saw otherwise."""
    several = [(run, run.workers) for run in records if run.workers and len(run.workers.workers) > 1]
    lines = []
    if together := [workers for _, workers in several if 0 < len(workers.hosts) < len(workers.workers)]:
        lines.append(
            f"In {_runs(len(together))} of {len(records)} several workers ran on one host: they share its memory, "
            "caches and clock and exchange over no network, so this is not how separate machines scale."
        )
    links = dict.fromkeys(workers.link for _, workers in several if workers.link)
    lines += [f"The network between the workers was made for the runs, on one machine: {link}." for link in links]
    off = [share for run, workers in several if (share := _window_off(run, workers))]
    if off:
        lines.append(
            f"In {_runs(len(off))} of {len(records)} the measured batches of all ranks make up to "
            f"{100 * max(off):.1f} % more or less than rank 0's clock saw between the barriers: rates are not known "
            "better than that."
        )
    return lines


def _window_off(run: RunRecord, workers: Workers) -> float:
    """By what share the common window differs from rank 0's clock; 0 where it is no more than barriers take."""
    measured = math.fsum(run.batches.seconds[run.batches.warmup :])
    if not workers.window_seconds or not run.throughput:
        return 0.0
    off = abs(workers.window_seconds - measured)
    return off / measured if off > max(BARRIERS_S, BARRIERS_SHARE * measured) else 0.0


def _clock_cautions(records: Sequence[RunRecord]) -> list[str]:
    """Equal GPUs that ran differently and GPUs that were held down: each kind once, in the words of its first run."""
    first: dict[tuple[Any, ...], str] = {}
    counts: dict[tuple[Any, ...], int] = {}
    for record in records:
        for caution in clock_cautions(record.environment.clocks):
            first.setdefault(caution.key, caution.text)
            counts[caution.key] = counts.get(caution.key, 0) + 1
    return [f"In {_runs(counts[key])} of {len(records)} (numbers of the first): {text}." for key, text in first.items()]


def _subset_cautions(records: Sequence[RunRecord]) -> list[str]:
    """Runs on GPUs with farther links between them than others of the same machine have."""
    counts: dict[str, int] = {}
    for record in records:
        if line := _subset_caution(record):
            counts[line] = counts.get(line, 0) + 1
    return [f"In {_runs(count)} of {len(records)} {line}" for line, count in counts.items()]


def _subset_caution(record: RunRecord) -> str | None:
    matrix, towers = record.environment.topology, record.config["num_devices"]
    exchanges = record.resolved.device_type == "GPU" and registry.trains_one_model(record.config.get("variable_update"))
    if not exchanges or matrix is None:
        return None
    return _far_links(matrix, tuple(str(gpu.get("index")) for gpu in record.environment.gpus[:towers]))


@functools.lru_cache(maxsize=64)  # the runs of a report are on few sets of GPUs, and 16 GPUs have 12,870 of 8
def _far_links(matrix: str, indices: tuple[str, ...]) -> str | None:
    """What to say of GPUs whose links are farther than others'; `said`: by `nvidia-smi topo -m`."""
    try:
        links, used = topology.parse(matrix), [int(index) for index in indices]
    except ValueError:
        return None
    best = topology.better(links, used)
    if best is None:
        return None
    devices, far = ",".join(map(str, best.subsets[0])), topology.farthest(links, used)
    nearer = f"nearer links ({best.worst} at most)" if best.worst != far else "nearer links beside it"
    return (
        f"the GPUs {','.join(indices)} exchanged, whose farthest link is {far}; {devices} have {nearer} "
        f"and should exchange faster: CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={devices}."
    )


def _facts(record: RunRecord) -> Iterator[tuple[str, str]]:
    env, resolved = record.environment, record.resolved
    yield from _told("GPUs", _counted([gpu.get("name", "unknown") for gpu in env.gpus]))
    yield from _told("GPU driver", ", ".join(sorted({gpu.get("driver_version", "") for gpu in env.gpus})))
    clocks = [f"{gpu.get('clocks.sm', '?')}, {gpu.get('clocks.mem', '?')}" for gpu in env.gpus_after]
    yield from _told("GPU clocks (SM, memory)", "; ".join(sorted(set(clocks))))
    yield from _told("CPU", env.cpu)
    yield from _told("CPU vector units", " ".join(env.cpu_vector_units or ()))
    yield from _told("oneDNN", None if resolved.onednn is None else "on" if resolved.onednn else "off")
    yield from _told("CPU cores of the machine", env.cpu_cores)
    yield from _told("CPU cores of the run", len(resolved.cpu_affinity or ()) or None)
    yield from _told("CPU frequency governor", env.cpu_governor)
    yield from _told("Memory", None if env.memory_bytes is None else f"{env.memory_bytes / 2**30:.1f} GiB")
    yield from _told("Platform", env.platform)
    yield from _told("Python", env.python)
    for name, version in sorted(env.packages.items()):
        yield from _told(name, version)
    yield from _told("Dispatching threads", resolved.inter_op_parallelism_threads)
    yield from _told("Threads inside an operator", resolved.intra_op_parallelism_threads)
    kernels = filter(None, (resolved.encoder_kernel, resolved.decoder_kernel))
    yield from _told("Parameters", _parameters(record))
    yield from _told("Kernel", ", ".join(sorted(set(kernels))))
    for name, value in sorted(env.variables.items()):
        yield name, value
    if env.commit:
        changed = ", with changes that are not committed" if env.commit.modified else ""
        yield "Commit", f"{env.commit.hash[:12]}{changed}"


def _parameters(record: RunRecord) -> str:
    """Trained numbers, moving averages and the optimizer's numbers of one copy; empty of records that do not tell."""
    counted = record.parameters
    if counted is None or counted.moving is None or counted.optimizer is None:
        return ""
    moving = f", {counted.moving:,} moving averages" if counted.moving else ""
    return f"{counted.trainable:,} trained{moving}, {counted.optimizer:,} of the optimizer"


def _cluster(record: RunRecord) -> list[tuple[str, str]]:
    """What started the processes of a distributed run, their hosts ("4 on 2 hosts") and the network between them."""
    workers = record.workers
    if workers is None:
        return []
    count = len(workers.hosts)
    places = f"{len(workers.workers)} on {count} host{'' if count == 1 else 's'}" if count else ""
    named = {"Launcher": workers.launcher, "Workers on hosts": places, "Network between workers": workers.link}
    return [pair for name, value in named.items() for pair in _told(name, value)]


def _load(records: Sequence[RunRecord]) -> list[Fact]:
    loads = [load.others + load.steal for record in records if (load := record.environment.load)]
    if not loads:
        return []
    text = f"{sum(loads) / len(loads):.1%} of the run's cores on average, {max(loads):.1%} at most"
    return [Fact("Load of other processes", ((text, len(loads)),))]


def _sampled_clocks(records: Sequence[RunRecord]) -> list[Fact]:
    clocks: dict[str, list[float]] = {}
    count = 0
    for record in records:
        run_medians = medians(record.environment.clocks)
        count += bool(run_medians)
        for kind, values in run_medians.items():
            clocks.setdefault(kind, []).extend(values)
    shown = []
    for kind, values in clocks.items():
        low, high = f"{min(values):.0f}", f"{max(values):.0f}"
        shown.append(f"{kind} {low if low == high else f'{low} to {high}'} MHz")
    name = "Clocks during the batches (medians of each device)"
    return [Fact(name, ((", ".join(shown), count),))] if shown else []


def _throttled(gpu: Mapping[str, str]) -> bool:
    """Any reason but idling."""
    return bool((throttling.parse(gpu.get(throttling.FIELD, "0")) or 0) & ~throttling.IDLE)


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def _told(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if value not in (None, ""):
        yield name, str(value)


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
