"""The machines, versions and conditions of the runs of a report."""

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
# The common window may differ from rank 0's clock by the larger of these: barriers take
# some time.
BARRIERS_S = 0.1
BARRIERS_SHARE = 0.02


@dataclasses.dataclass(frozen=True)
class EnvironmentFact:
    """One property of the environment."""

    name: str
    values: tuple[tuple[str, int], ...]  # value, number of runs with it

    @property
    def text(self) -> str:
        """The value; several values with their numbers of runs."""
        if len(self.values) == 1:
            return self.values[0][0]
        texts = []
        for value, count in self.values[:SHOWN]:
            texts.append(f"{value} ({counted(count, 'run')})")
        num_hidden = len(self.values) - SHOWN
        if num_hidden > 0:
            texts.append(f"{num_hidden} more")
        return "; ".join(texts)


def facts(records: Sequence[RunRecord]) -> tuple[EnvironmentFact, ...]:
    """Return machines, versions, threads, load and clocks of all runs.

    Facts that no record contains are omitted.
    """
    counts: dict[str, Counter[str]] = {}
    for record in records:
        for name, value in run_facts(record).items():
            if value not in (None, ""):
                counts.setdefault(name, Counter())[str(value)] += 1
    found = []
    for name, values in counts.items():
        found.append(EnvironmentFact(name, tuple(values.items())))
    return (*found, *_load_facts(records), *_clock_facts(records))


def statements(records: Sequence[RunRecord]) -> list[Statement]:
    """Return cautions about shared devices, cores, hosts, clocks and links."""
    found = []
    for kind, check in _CHECKS.items():
        if count := sum(map(bool, map(check, records))):
            found.append(_counted_runs(kind, count, records))
    links: dict[str, None] = {}
    for run in records:
        if run.workers and len(run.workers.workers) > 1 and run.workers.link:
            links[run.workers.link] = None
    found += [Statement("network-simulated", link) for link in links]
    if shares := [share for share in map(_window_deviation, records) if share]:
        found.append(
            _counted_runs("window-off", len(shares), records, most=max(shares))
        )
    return [
        *found,
        *skipped_updates(records),
        *_clock_statements(records),
        *_link_statements(records),
    ]


def skipped_updates(records: Sequence[RunRecord]) -> list[Statement]:
    """Return how many runs skipped updates because of float16; [] if none did."""
    counts = [run.batches.skipped_updates or 0 for run in records]
    num_runs = sum(map(bool, counts))
    if not num_runs:
        return []
    return [_counted_runs("updates-skipped", num_runs, records, most=max(counts))]


def _counted_runs(
    kind: str,
    count: int,
    records: Sequence[RunRecord],
    subject: str = "",
    **values: object,
) -> Statement:
    """Return a statement about some of the runs.

    Args:
      kind: The kind of the statement.
      count: The number of runs that it is about.
      records: All runs.
      subject: The subject.
      **values: Further values.
    """
    if kind == "cpu-devices" and not any(map(_has_gpus, records)):
        kind = "cpu-devices-only"
    return Statement(kind, subject, {"runs": count, "total": len(records), **values})


def _has_gpus(record: RunRecord) -> bool:
    return record.resolved.device_type not in ("CPU", None)


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
        map(_is_throttled, record.environment.gpus_after)
    ),
    "workers-on-one-host": _has_workers_on_one_host,
}


def _window_deviation(run: RunRecord) -> float:
    """Return the difference of the common window from rank 0's clock, as a share.

    Returns:
      0.0 if barriers explain the difference.
    """
    workers = run.workers
    if workers is None or len(workers.workers) < 2 or not run.throughput:
        return 0.0
    if not workers.window_seconds:
        return 0.0
    measured = math.fsum(run.batches.seconds[run.batches.warmup :])
    difference = abs(workers.window_seconds - measured)
    is_explained = difference <= max(BARRIERS_S, BARRIERS_SHARE * measured)
    return 0.0 if is_explained else difference / measured


def _clock_statements(records: Sequence[RunRecord]) -> list[Statement]:
    """Return which GPUs ran at other clocks than equal ones, or were slowed down.

    Each kind of caution has one statement, with the numbers of its first run.
    """
    counts: Counter[Any] = Counter()
    texts: dict[Any, str] = {}
    for record in records:
        for caution in clock_cautions(record.environment.clocks):
            counts[caution.key] += 1
            texts.setdefault(caution.key, caution.text)
    return [
        _counted_runs("clocks", count, records, subject=texts[key])
        for key, count in counts.items()
    ]


def _link_statements(records: Sequence[RunRecord]) -> list[Statement]:
    """Return which runs used GPUs with farther links than others of the machine."""
    counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for record in records:
        matrix = record.environment.topology
        exchanges = registry.mode_of(record.options["variable_update"]).trains_one_model
        if matrix is not None and exchanges and record.resolved.device_type == "GPU":
            gpus = record.environment.gpus[: record.options["num_devices"]]
            counts[matrix, tuple(str(gpu.get("index")) for gpu in gpus)] += 1
    found = []
    for (matrix, indices), count in counts.items():
        if values := _far_links(matrix, indices):
            used = ",".join(indices)
            found.append(
                _counted_runs("far-links", count, records, subject=used, **values)
            )
    return found


# The runs of a report use few sets of GPUs, and 16 GPUs have 12,870 sets of 8.
@functools.lru_cache(maxsize=64)
def _far_links(matrix: str, indices: tuple[str, ...]) -> Mapping[str, str] | None:
    """Return GPUs with nearer links than a run's GPUs; None if no others are nearer.

    Args:
      matrix: The output of `nvidia-smi topo -m`.
      indices: The GPUs of a run.
    """
    try:
        links = topology.parse(matrix)
        used = [int(index) for index in indices]
    except ValueError:
        return None
    best = topology.better(links, used)
    if best is None:
        return None
    return {
        "farthest": topology.farthest(links, used),
        "devices": ",".join(map(str, best.subsets[0])),
        "worst": best.worst,
    }


def run_facts(record: RunRecord) -> dict[str, Any]:
    """Return a run's machine, software and processes.

    A fact that the record does not contain is None or "".
    """
    env = record.environment
    resolved = record.resolved
    kernels = {resolved.encoder_kernel or "", resolved.decoder_kernel or ""} - {""}
    onednn = {None: None, True: "on", False: "off"}[resolved.onednn]
    memory = None
    if env.memory_bytes is not None:
        memory = f"{env.memory_bytes / 2**30:.1f} GiB"
    found: dict[str, Any] = {
        **_gpu_facts(record),
        "CPU": env.cpu,
        "CPU vector units": " ".join(env.cpu_vector_units or ()),
        "oneDNN": onednn,
        "CPU cores of the machine": env.cpu_cores,
        "CPU cores of the run": len(resolved.cpu_affinity or ()) or None,
        "CPU frequency governor": env.cpu_governor,
        "Memory": memory,
        "Platform": env.platform,
        "Python": env.python,
        **dict(sorted(env.packages.items())),
        "Dispatching threads": resolved.inter_op_parallelism_threads,
        "Threads inside an operator": resolved.intra_op_parallelism_threads,
        "Parameters": _parameters_text(record),
        "Kernel": ", ".join(sorted(kernels)),
        **dict(sorted(env.variables.items())),
    }
    if env.commit:
        changes = ", with changes that are not committed" if env.commit.modified else ""
        found["Commit"] = f"{env.commit.hash[:12]}{changes}"
    if workers := record.workers:
        hosts = ""
        if workers.hosts:
            num_hosts = counted(len(workers.hosts), "host")
            hosts = f"{len(workers.workers)} on {num_hosts}"
        found |= {
            "Launcher": workers.launcher,
            "Workers on hosts": hosts,
            "Network between workers": workers.link,
        }
    return found


def _gpu_facts(record: RunRecord) -> dict[str, str]:
    env = record.environment
    names = Counter(gpu.get("name", "unknown") for gpu in env.gpus)
    drivers = {gpu.get("driver_version", "") for gpu in env.gpus}
    clocks = set()
    for gpu in env.gpus_after:
        clocks.add(f"{gpu.get('clocks.sm', '?')}, {gpu.get('clocks.mem', '?')}")
    return {
        "GPUs": ", ".join(f"{count} x {name}" for name, count in names.items()),
        "GPU driver": ", ".join(sorted(drivers)),
        "GPU clocks (SM, memory)": "; ".join(sorted(clocks)),
    }


def _parameters_text(record: RunRecord) -> str:
    """Return the numbers of one copy: trained, moving averages and optimizer.

    Returns:
      "" if the record does not contain them.
    """
    numbers = record.parameters
    if numbers is None or numbers.moving is None or numbers.optimizer is None:
        return ""
    moving = f", {numbers.moving:,} moving averages" if numbers.moving else ""
    optimizer = f"{numbers.optimizer:,} of the optimizer"
    return f"{numbers.trainable:,} trained{moving}, {optimizer}"


def _load_facts(records: Sequence[RunRecord]) -> list[EnvironmentFact]:
    loads = []
    for record in records:
        if load := record.environment.load:
            loads.append(load.others + load.steal)
    if not loads:
        return []
    mean = sum(loads) / len(loads)
    text = f"{mean:.1%} of the run's cores on average, {max(loads):.1%} at most"
    return [EnvironmentFact("Load of other processes", ((text, len(loads)),))]


def _clock_facts(records: Sequence[RunRecord]) -> list[EnvironmentFact]:
    """Return the range of the clocks of each kind, during the batches."""
    sampled = [
        clocks for record in records if (clocks := medians(record.environment.clocks))
    ]
    if not sampled:
        return []
    clocks_by_kind: dict[str, list[float]] = {}
    for clocks in sampled:
        for kind, values in clocks.items():
            clocks_by_kind.setdefault(kind, []).extend(values)
    texts = []
    for kind, values in clocks_by_kind.items():
        ends = dict.fromkeys((f"{min(values):.0f}", f"{max(values):.0f}"))
        texts.append(f"{kind} {' to '.join(ends)} MHz")
    name = "Clocks during the batches (medians of each device)"
    return [EnvironmentFact(name, ((", ".join(texts), len(sampled)),))]


def _is_throttled(gpu: Mapping[str, str]) -> bool:
    """Return whether a GPU had reduced clocks for any reason except idling."""
    reasons = throttling.parse(gpu.get(throttling.FIELD, "0")) or 0
    return bool(reasons & ~throttling.IDLE)
