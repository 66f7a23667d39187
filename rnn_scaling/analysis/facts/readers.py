"""Read single facts of run records, as values that can be compared and shown.

A reader is a function of a record that returns None if the record does not contain the
fact. `table` lists the readers with their names and severities. A reader with
parameters is made by a function: `package(("tensorflow",))` returns a reader.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.machine import throttling

Read = Callable[[RunRecord], Any]


class Absent(str):
    """The value of a fact that does not apply to a run, or that nothing reports."""


NOT_REPORTED = Absent("not reported by the system")
_ONE_PROCESS = Absent("one process alone")

# Bits of throttling.REASONS: settings that limit clocks, and cards that protect
# themselves.
LIMIT_REASONS = 0x2 | 0x4 | 0x10 | 0x100
PROTECTION_REASONS = 0x8 | 0x20 | 0x40 | 0x80


def _accept_arguments(read: Callable[..., Any]) -> Callable[..., Read]:
    """Turn `read(a, record)` into a function of `a` that returns a reader."""
    return lambda *arguments, **options: partial(read, *arguments, **options)


def _is_recorded(record: RunRecord, *fields: str) -> bool:
    """Return whether a record has fields of `environment`; older ones may lack some."""
    return record.environment.missing.isdisjoint(fields)


@_accept_arguments
def environment(
    name: str,
    record: RunRecord,
    convert: Callable[[Any], Any] = str,
    null: str = NOT_REPORTED,
) -> Any:
    """Read a field of `environment`.

    Args:
      null: The meaning of null in the record.
    """
    if not _is_recorded(record, name):
        return None
    value = getattr(record.environment, name)
    return null if value is None else convert(value)


@_accept_arguments
def resolved(
    name: str, record: RunRecord, convert: Callable[[Any], str] = str
) -> str | None:
    """Read a field of `resolved` as text."""
    value = getattr(record.resolved, name)
    return None if value is None else convert(value)


def operators(record: RunRecord) -> str | None:
    """Return the instruction set of this project's CPU operators, or "stock".

    Older records do not name the set, which was AVX-512.
    """
    if record.resolved.operators or record.resolved.own_operators is None:
        return record.resolved.operators
    return "avx512" if record.resolved.own_operators else "stock"


def certificate(record: RunRecord) -> str:
    """Return whether the configuration was compared with serial training."""
    return "not certified" if record.certificate is None else "certified"


def training(record: RunRecord) -> str:
    """Return the verdict of that comparison, if the training is wrong."""
    certificate = record.certificate
    if certificate is None or certificate.holds:
        return "not found wrong"
    return certificate.verdict


@_accept_arguments
def package(names: Sequence[str], record: RunRecord) -> str | None:
    """Return the version of the first of these packages that is installed."""
    if not _is_recorded(record, "packages"):
        return None
    packages = record.environment.packages
    return next(
        (packages[name] for name in names if name in packages), Absent("not installed")
    )


@_accept_arguments
def cuda(part: str, record: RunRecord) -> str | None:
    """Return the version of a part of CUDA that pip installed."""
    versions = record.environment.cuda
    return versions[part] or Absent("not from pip") if part in versions else None


memory = environment("memory_bytes", convert=lambda size: size / 2**30)
cpu_vector_units = environment(
    "cpu_vector_units", convert=lambda units: " ".join(units) or "none"
)
# The number of cores that the process was bound to, and their numbers.
cores = resolved("cpu_affinity", convert=lambda bound: str(len(bound)))
core_numbers = resolved("cpu_affinity", convert=lambda bound: ",".join(map(str, bound)))
# The cores that control groups allow.
cpu_limit = environment("cpu_limit", convert="{:g} cores".format, null="none")
# MHz of the fastest core, on which the program runs while the others idle.
highest_clock = environment(
    "cpu_mhz", convert=lambda mhz: max(mhz, default=NOT_REPORTED)
)
# When Linux backs memory with huge pages: always, madvise or never.
huge_pages = environment(
    "huge_pages", convert=partial(re.sub, r"(?s).*\[(\w+)\].*", r"\1")
)


def cpu_topology(record: RunRecord) -> str | None:
    topology = record.environment.cpu_topology
    if topology is None:
        return None
    texts = []
    for name in ("sockets", "cores", "threads"):
        texts.append(f"{getattr(topology, name) or '?'} {name}")
    nodes = topology.numa_nodes
    texts.append(f"NUMA nodes {' | '.join(nodes)}" if nodes else "NUMA not known")
    return ", ".join(texts)


def turbo(record: RunRecord) -> str | None:
    """Return "on" if the clock may rise above its nominal value, or "off"."""
    machine = record.environment
    if not _is_recorded(record, "cpu_no_turbo", "cpu_boost"):
        return None
    if machine.cpu_no_turbo is None and machine.cpu_boost is None:
        return NOT_REPORTED
    return "off" if machine.cpu_no_turbo == "1" or machine.cpu_boost == "0" else "on"


def oversubscribed(record: RunRecord) -> str | None:
    if record.options["device"] == "gpu":
        return Absent("not defined for GPUs")
    value = record.resolved.oversubscribed
    return None if value is None else str(value)


@_accept_arguments
def gpus(names: Sequence[str], record: RunRecord) -> str | None:
    """Return the text of some fields of every GPU, in the order of the devices."""
    texts = []
    for card in record.environment.gpus:
        if not card.keys() >= set(names):
            return None
        texts.append(" and ".join(card[name] for name in names))
    if len(texts) > 1 and len(set(texts)) == 1:
        return f"{len(texts)} x {texts[0]}"
    return ", ".join(texts) if texts else None


@_accept_arguments
def gpu_clock(name: str, field: str, record: RunRecord) -> float | None:
    """Return the mean over the GPUs in MHz.

    Args:
      name: Name of the clock.
      field: "gpus" before the run, or "gpus_after".
    """
    cards = getattr(record.environment, field)
    clocks = []
    for card in cards:
        match = re.match(r"[\d.]+", card.get(name, ""))
        if not match:
            return None
        clocks.append(float(match[0]))
    return sum(clocks) / len(clocks) if clocks else None


@_accept_arguments
def throttling_reasons(bits: int, record: RunRecord) -> str | None:
    """Return why clocks of any GPU were slowed down, before or after the run.

    Args:
      bits: Bits of the reasons that count.

    Returns:
      None if the record has no reasons, or if a card does not report any ("[N/A]").
    """
    if not _is_recorded(record, "gpus", "gpus_after"):
        return None
    reasons: dict[str, None] = {}
    for card in (*record.environment.gpus, *record.environment.gpus_after):
        mask = throttling.parse(card.get(throttling.FIELD, ""))
        if mask is None:
            return None
        for bit, reason in throttling.REASONS.items():
            if mask & bit & bits:
                reasons[reason] = None
    return ", ".join(reasons) or "nothing"


def gpu_topology(record: RunRecord) -> str | None:
    """Return the rows of the matrix of `nvidia-smi topo -m`, without its head.

    Returns:
      Absent("one device") if no devices exchange.
    """
    if record.options["num_devices"] == 1 and record.workers is None:
        return Absent("one device")
    if record.environment.topology is None:
        return None
    rows = []
    for line in record.environment.topology.splitlines():
        text = re.sub(r"\x1b\[[\d;]*m", "", line)
        if re.match(r"(GPU|NIC|mlx)", text):
            rows.append(" ".join(text.split()))
    return "; ".join(rows)


def all_reduce(record: RunRecord) -> str | None:
    """Return the algorithms that `auto` or the specification chose."""
    segments = record.resolved.all_reduce
    if segments is None:
        return None
    texts = [f"{segment.algorithm}#{segment.shards}" for segment in segments]
    return ":".join(texts) or "none"


def hosts(record: RunRecord) -> str | None:
    if record.workers is None:
        return _ONE_PROCESS
    return str(len(record.workers.hosts)) if record.workers.hosts else None


def link(record: RunRecord) -> str:
    """Return the network that was created between the workers of a run.

    Every run measures it, so only the requested values are compared.
    """
    if record.workers is None or not record.workers.link:
        return Absent("not emulated")
    return record.workers.link.partition(" asked;")[0]


@_accept_arguments
def variable(name: str, record: RunRecord) -> str | None:
    if not _is_recorded(record, "variables"):
        return None
    return record.environment.variables.get(name, "not set")


def launcher(record: RunRecord) -> str | None:
    return _ONE_PROCESS if record.workers is None else record.workers.launcher


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
