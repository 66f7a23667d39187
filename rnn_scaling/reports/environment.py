"""What the runs of a report ran on."""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.clocks import clock_cautions, medians
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config import registry
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.files.terminal import counted
from rnn_scaling.system.machine import throttling, topology

SHOWN = 4  # different values that are listed
BARRIERS_S, BARRIERS_SHARE = (
    0.1,
    0.02,
)  # by which a window by rank 0's clock may differ without being named


@dataclasses.dataclass(frozen=True)
class EnvironmentFact:
    """One property of the environment: its different values, each with the number of runs that had it."""

    name: str
    values: tuple[tuple[str, int], ...]

    @property
    def text(self) -> str:
        """The value; several with their counts."""
        if len(self.values) == 1:
            return self.values[0][0]
        shown = [
            f"{value} ({counted(count, 'run')})" for value, count in self.values[:SHOWN]
        ]
        hidden = len(self.values) - SHOWN
        return "; ".join([*shown, *([f"{hidden} more"] if hidden > 0 else [])])


def facts(records: Sequence[RunRecord]) -> tuple[EnvironmentFact, ...]:
    """Machine, versions, threads, load and clocks over all runs; what no record tells is left out."""
    counts: dict[str, Counter[str]] = {}
    for record in records:
        for name, value in run_facts(record).items():
            if value not in (None, ""):
                counts.setdefault(name, Counter())[str(value)] += 1
    listed = [
        EnvironmentFact(name, tuple(values.items())) for name, values in counts.items()
    ]
    return (*listed, *_load(records), *_sampled_clocks(records))


def statements(records: Sequence[RunRecord]) -> list[Statement]:
    """Devices that are not separate, too few cores, workers on one host, clocks and links that differ."""
    found = []
    for kind, holds in _CHECKS.items():
        if count := sum(map(bool, map(holds, records))):
            found.append(_counted_runs(kind, count, records))
    links = [
        run.workers.link
        for run in records
        if run.workers and len(run.workers.workers) > 1 and run.workers.link
    ]
    found += [Statement("network-simulated", link) for link in dict.fromkeys(links)]
    if windows := [share for share in map(_window_off, records) if share]:
        found.append(
            _counted_runs("window-off", len(windows), records, most=max(windows))
        )
    return [
        *found,
        *skipped_updates(records),
        *_clock_statements(records),
        *_link_statements(records),
    ]


def skipped_updates(records: Sequence[RunRecord]) -> list[Statement]:
    counts = [
        run.batches.skipped_updates for run in records if run.batches.skipped_updates
    ]
    return (
        [_counted_runs("updates-skipped", len(counts), records, most=max(counts))]
        if counts
        else []
    )


def _counted_runs(
    kind: str,
    count: int,
    records: Sequence[RunRecord],
    subject: str = "",
    **values: object,
) -> Statement:
    has_gpus = any(
        record.resolved.device_type not in ("CPU", None) for record in records
    )
    kind = "cpu-devices-only" if kind == "cpu-devices" and not has_gpus else kind
    return Statement(kind, subject, {"runs": count, "total": len(records), **values})


def _has_workers_on_one_host(record: RunRecord) -> bool:
    workers = record.workers
    return (
        workers is not None
        and len(workers.workers) > 1
        and 0 < len(workers.hosts) < len(workers.workers)
    )


_CHECKS: Mapping[str, Callable[[RunRecord], object]] = {
    "gpus-shared": lambda record: (
        record.resolved.logical_devices and record.resolved.device_type != "CPU"
    ),
    "cpu-devices": lambda record: (
        record.resolved.logical_devices and record.resolved.device_type == "CPU"
    ),
    "too-few-cores": lambda record: record.resolved.oversubscribed,
    "gpus-throttled": lambda record: any(
        map(_throttled, record.environment.gpus_after)
    ),
    "workers-on-one-host": _has_workers_on_one_host,
}


def _window_off(run: RunRecord) -> float:
    """By what share the common window differs from rank 0's clock; 0 where it is no more than barriers take."""
    measured = math.fsum(run.batches.seconds[run.batches.warmup :])
    workers = run.workers
    if (
        workers is None
        or len(workers.workers) < 2
        or not workers.window_seconds
        or not run.throughput
    ):
        return 0.0
    off = abs(workers.window_seconds - measured)
    return off / measured if off > max(BARRIERS_S, BARRIERS_SHARE * measured) else 0.0


def _clock_statements(records: Sequence[RunRecord]) -> list[Statement]:
    """Equal GPUs that ran differently, and GPUs that were held down: each kind once, by its first run."""
    cautions = [
        caution
        for record in records
        for caution in clock_cautions(record.environment.clocks)
    ]
    first = {
        caution.key: caution.text for caution in reversed(cautions)
    }  # the last one assigned is the first
    counts = Counter(caution.key for caution in cautions)
    return [
        _counted_runs("clocks", count, records, subject=first[key])
        for key, count in counts.items()
    ]


def _link_statements(records: Sequence[RunRecord]) -> list[Statement]:
    """Runs on GPUs with farther links between them than others of the same machine have."""
    counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for record in records:
        matrix, towers = record.environment.topology, record.options["num_devices"]
        exchanges = registry.mode_of(record.options["variable_update"]).trains_one_model
        if matrix is not None and exchanges and record.resolved.device_type == "GPU":
            counts[
                matrix,
                tuple(
                    str(gpu.get("index")) for gpu in record.environment.gpus[:towers]
                ),
            ] += 1
    found = []
    for (matrix, indices), count in counts.items():
        if values := _far_links(matrix, indices):
            found.append(
                _counted_runs(
                    "far-links", count, records, subject=",".join(indices), **values
                )
            )
    return found


@functools.lru_cache(
    maxsize=64
)  # the runs of a report are on few sets of GPUs, and 16 GPUs have 12,870 of 8
def _far_links(matrix: str, indices: tuple[str, ...]) -> Mapping[str, str] | None:
    """GPUs with nearer links than these; `matrix` is the output of `nvidia-smi topo -m`."""
    try:
        links, used = topology.parse(matrix), [int(index) for index in indices]
    except ValueError:
        return None
    best = topology.better(links, used)
    if best is None:
        return None
    devices = ",".join(map(str, best.subsets[0]))
    return {
        "farthest": topology.farthest(links, used),
        "devices": devices,
        "worst": best.worst,
    }


def run_facts(record: RunRecord) -> dict[str, Any]:
    """What a record tells of its machine, its software and its processes; None or "" where it does not."""
    env, resolved = record.environment, record.resolved
    gpus = [gpu.get("name", "unknown") for gpu in env.gpus]
    clocks = {
        f"{gpu.get('clocks.sm', '?')}, {gpu.get('clocks.mem', '?')}"
        for gpu in env.gpus_after
    }
    named = {
        "GPUs": ", ".join(
            f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)
        ),
        "GPU driver": ", ".join(
            sorted({gpu.get("driver_version", "") for gpu in env.gpus})
        ),
        "GPU clocks (SM, memory)": "; ".join(sorted(clocks)),
        "CPU": env.cpu,
        "CPU vector units": " ".join(env.cpu_vector_units or ()),
        "oneDNN": None
        if resolved.onednn is None
        else "on"
        if resolved.onednn
        else "off",
        "CPU cores of the machine": env.cpu_cores,
        "CPU cores of the run": len(resolved.cpu_affinity or ()) or None,
        "CPU frequency governor": env.cpu_governor,
        "Memory": None
        if env.memory_bytes is None
        else f"{env.memory_bytes / 2**30:.1f} GiB",
        "Platform": env.platform,
        "Python": env.python,
        **dict(sorted(env.packages.items())),
        "Dispatching threads": resolved.inter_op_parallelism_threads,
        "Threads inside an operator": resolved.intra_op_parallelism_threads,
        "Parameters": _parameters(record),
        "Kernel": ", ".join(
            sorted(
                {resolved.encoder_kernel or "", resolved.decoder_kernel or ""} - {""}
            )
        ),
        **dict(sorted(env.variables.items())),
    }
    if env.commit:
        changed = ", with changes that are not committed" if env.commit.modified else ""
        named["Commit"] = f"{env.commit.hash[:12]}{changed}"
    if workers := record.workers:
        count = len(workers.hosts)
        places = f"{len(workers.workers)} on {counted(count, 'host')}" if count else ""
        named |= {
            "Launcher": workers.launcher,
            "Workers on hosts": places,
            "Network between workers": workers.link,
        }
    return named


def _parameters(record: RunRecord) -> str:
    """Trained numbers, moving averages and the optimizer's numbers of one copy; empty of records that do not tell."""
    counted = record.parameters
    if counted is None or counted.moving is None or counted.optimizer is None:
        return ""
    moving = f", {counted.moving:,} moving averages" if counted.moving else ""
    return (
        f"{counted.trainable:,} trained{moving}, {counted.optimizer:,} of the optimizer"
    )


def _load(records: Sequence[RunRecord]) -> list[EnvironmentFact]:
    loads = [
        load.others + load.steal
        for record in records
        if (load := record.environment.load)
    ]
    if not loads:
        return []
    text = f"{sum(loads) / len(loads):.1%} of the run's cores on average, {max(loads):.1%} at most"
    return [EnvironmentFact("Load of other processes", ((text, len(loads)),))]


def _sampled_clocks(records: Sequence[RunRecord]) -> list[EnvironmentFact]:
    sampled = [
        found for record in records if (found := medians(record.environment.clocks))
    ]
    shown = []
    for kind in dict.fromkeys(kind for found in sampled for kind in found):
        clocks = [clock for found in sampled for clock in found.get(kind, ())]
        ends = dict.fromkeys(f"{end:.0f}" for end in (min(clocks), max(clocks)))
        shown.append(f"{kind} {' to '.join(ends)} MHz")
    name = "Clocks during the batches (medians of each device)"
    return [EnvironmentFact(name, ((", ".join(shown), len(sampled)),))] if shown else []


def _throttled(gpu: Mapping[str, str]) -> bool:
    """Any reason but idling."""
    return bool(
        (throttling.parse(gpu.get(throttling.FIELD, "0")) or 0) & ~throttling.IDLE
    )
