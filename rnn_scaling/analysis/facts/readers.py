"""Run record -> one fact of it, in a form that can be compared and shown; None: the record does not hold it."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.machine import throttling

Read = Callable[[RunRecord], Any]
NOT_TOLD = "not reported by the system"
ONE_PROCESS = "one process alone"

# Bits of throttling.REASONS: a setting that holds clocks down, and a card that protects itself.
LIMITED = 0x2 | 0x4 | 0x10 | 0x100
SLOWED = 0x8 | 0x20 | 0x40 | 0x80


def _with_arguments(read: Callable[..., Any]) -> Callable[..., Read]:
    """Makes `read(a, record)` a function of `a` that returns a reader."""
    return lambda *arguments, **options: partial(read, *arguments, **options)


def _is_recorded(record: RunRecord, *fields: str) -> bool:
    """False for a record that is older than one of these fields of `environment`."""
    return record.environment.missing.isdisjoint(fields)


@_with_arguments
def environment(
    name: str,
    record: RunRecord,
    convert: Callable[[Any], Any] = str,
    null: str = NOT_TOLD,
) -> Any:
    """A field of `environment`; `null`: what null in the record means, by default that the system did not tell."""
    if not _is_recorded(record, name):
        return None
    value = getattr(record.environment, name)
    return null if value is None else convert(value)


@_with_arguments
def resolved(
    name: str, record: RunRecord, convert: Callable[[Any], str] = str
) -> str | None:
    """A field of `resolved` as text."""
    value = getattr(record.resolved, name)
    return None if value is None else convert(value)


def operators(record: RunRecord) -> str | None:
    """Instruction set of our own operators for CPUs, or "stock"; older records do not name the set: AVX-512."""
    of_older = {True: "avx512", False: "stock", None: None}[
        record.resolved.own_operators
    ]
    return record.resolved.operators or of_older


def certificate(record: RunRecord) -> str:
    """Whether the configuration was compared with serial training."""
    return "not certified" if record.certificate is None else "certified"


def training(record: RunRecord) -> str:
    """What came of that comparison, where it is wrong."""
    certificate = record.certificate
    return (
        "not found wrong"
        if certificate is None or certificate.holds
        else certificate.verdict
    )


@_with_arguments
def package(names: Sequence[str], record: RunRecord) -> str | None:
    """Version of the first of these packages that is installed."""
    packages = record.environment.packages
    version = next(
        (packages[name] for name in names if name in packages), "not installed"
    )
    return version if _is_recorded(record, "packages") else None


@_with_arguments
def cuda(part: str, record: RunRecord) -> str | None:
    """Version of a part of CUDA that pip installed."""
    versions = record.environment.cuda
    return versions[part] or "not from pip" if part in versions else None


memory = environment("memory_bytes", convert=float)
cpu_vector_units = environment(
    "cpu_vector_units", convert=lambda units: " ".join(units) or "none"
)
cores = resolved(
    "cpu_affinity", convert=lambda bound: str(len(bound))
)  # how many the process was bound to
core_numbers = resolved("cpu_affinity", convert=lambda bound: ",".join(map(str, bound)))
cpu_limit = environment(
    "cpu_limit", convert="{:g} cores".format, null="none"
)  # what control groups grant
# The fastest core's, in MHz: the one that the program runs on while the others idle.
highest_clock = environment("cpu_mhz", convert=lambda mhz: max(mhz, default=NOT_TOLD))
# When the kernel backs memory with huge pages: always, madvise or never.
huge_pages = environment(
    "huge_pages", convert=partial(re.sub, r"(?s).*\[(\w+)\].*", r"\1")
)


def cpu_topology(record: RunRecord) -> str | None:
    topology = record.environment.cpu_topology
    if topology is None:
        return None
    counts = [
        f"{getattr(topology, part) or '?'} {part}"
        for part in ("sockets", "cores", "threads")
    ]
    nodes = topology.numa_nodes
    return ", ".join(
        [*counts, f"NUMA nodes {' | '.join(nodes)}" if nodes else "NUMA not known"]
    )


def turbo(record: RunRecord) -> str | None:
    """Whether the clock may rise above its nominal value."""
    machine = record.environment
    if not _is_recorded(record, "cpu_no_turbo", "cpu_boost"):
        return None
    if machine.cpu_no_turbo is None and machine.cpu_boost is None:
        return NOT_TOLD
    return "off" if machine.cpu_no_turbo == "1" or machine.cpu_boost == "0" else "on"


def oversubscribed(record: RunRecord) -> str | None:
    return (
        "of CPU devices alone"
        if record.options["device"] == "gpu"
        else resolved("oversubscribed")(record)
    )


@_with_arguments
def gpus(names: Sequence[str], record: RunRecord) -> str | None:
    """Text of these fields of every GPU, in the order of the devices."""
    cards = record.environment.gpus
    if not cards or any(name not in card for card in cards for name in names):
        return None
    words = [" and ".join(card[name] for name in names) for card in cards]
    return (
        f"{len(words)} x {words[0]}"
        if len(words) > 1 and len(set(words)) == 1
        else ", ".join(words)
    )


@_with_arguments
def gpu_clock(name: str, when: str, record: RunRecord) -> float | None:
    """Mean over the GPUs in MHz."""
    cards = getattr(record.environment, when)
    matches = [re.match(r"[\d.]+", card.get(name, "")) for card in cards]
    numbers = [float(match[0]) for match in matches if match]
    return (
        sum(numbers) / len(numbers) if numbers and len(numbers) == len(cards) else None
    )


@_with_arguments
def held_down(among: int, record: RunRecord) -> str | None:
    """Why clocks were held down before or after the run, on any GPU; `among`: bits of the reasons asked for."""
    cards = (*record.environment.gpus, *record.environment.gpus_after)
    masks = [throttling.parse(card.get(throttling.FIELD, "")) for card in cards]
    if None in masks or not _is_recorded(
        record, "gpus", "gpus_after"
    ):  # or "[N/A]": the card does not tell
        return None
    held = {
        why: None
        for mask in masks
        for bit, why in throttling.REASONS.items()
        if (mask or 0) & bit & among
    }
    return ", ".join(held) or "nothing"


def gpu_topology(record: RunRecord) -> str | None:
    """The rows of the matrix of `nvidia-smi topo -m`, where several devices exchange."""
    if record.options["num_devices"] == 1 and record.workers is None:
        return "one device"
    if record.environment.topology is None:
        return None
    lines = [
        re.sub(r"\x1b\[[\d;]*m", "", line)
        for line in record.environment.topology.splitlines()
    ]
    return "; ".join(
        " ".join(line.split()) for line in lines if re.match(r"(GPU|NIC|mlx)", line)
    )  # not the head


def all_reduce(record: RunRecord) -> str | None:
    """What `auto` or the specification came to."""
    segments = record.resolved.all_reduce
    if segments is None:
        return None
    return (
        ":".join(f"{segment.algorithm}#{segment.shards}" for segment in segments)
        or "none"
    )


def hosts(record: RunRecord) -> str | None:
    if record.workers is None:
        return ONE_PROCESS
    return str(len(record.workers.hosts)) if record.workers.hosts else None


def link(record: RunRecord) -> str:
    """The network that was made between the workers of a run: as it was asked for, since each run measures it anew."""
    return (
        (record.workers.link if record.workers else None) or "none made for the run"
    ).partition(" asked;")[0]


@_with_arguments
def variable(name: str, record: RunRecord) -> str | None:
    return (
        record.environment.variables.get(name, "not set")
        if _is_recorded(record, "variables")
        else None
    )


def launcher(record: RunRecord) -> str | None:
    return ONE_PROCESS if record.workers is None else record.workers.launcher


def commit(record: RunRecord) -> str | None:
    commit = record.environment.commit
    if not _is_recorded(record, "commit"):
        return None
    if commit is None:
        return "not in a git checkout"
    name = commit.hash[:9]
    if not commit.modified:
        return name
    return f"{name} modified ({commit.diff})" if commit.diff else None
