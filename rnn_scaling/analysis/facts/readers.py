"""Run record -> one fact of it, in a form that can be compared and shown; None: the record does not hold it."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from rnn_scaling.machine import throttling
from rnn_scaling.records.environment import ReduceSegment
from rnn_scaling.records.record import RunRecord

Read = Callable[[RunRecord], Any]
NOT_TOLD = "not reported by the system"
ONE_PROCESS = "one process alone"

# Bits of throttling.REASONS: a setting that holds clocks down, and a card that protects itself.
LIMITED, SLOWED = 0x2 | 0x4 | 0x10 | 0x100, 0x8 | 0x20 | 0x40 | 0x80


def _recorded(*fields: str) -> Callable[[Read], Read]:
    """Makes a reader return None for a record that is older than one of these fields of `environment`."""

    def decorate(read: Read) -> Read:
        @functools.wraps(read)
        def guarded(record: RunRecord) -> Any:
            return None if record.environment.missing.intersection(fields) else read(record)

        return guarded

    return decorate


def environment(name: str, convert: Callable[[Any], Any] = str, null: str | None = NOT_TOLD) -> Read:
    """A field of `environment`; `null`: what null in the record means, by default that the system did not tell."""

    @_recorded(name)
    def read(record: RunRecord) -> Any:
        value = getattr(record.environment, name)
        return null if value is None else convert(value)

    return read


def resolved(name: str, convert: Callable[[Any], str] = str) -> Read:
    """A field of `resolved` as text."""

    def read(record: RunRecord) -> str | None:
        value = getattr(record.resolved, name)
        return None if value is None else convert(value)

    return read


def operators(record: RunRecord) -> str | None:
    """Instruction set of our own operators for CPUs, or "stock"; older records do not name the set: AVX-512."""
    of_older = {True: "avx512", False: "stock", None: None}[record.resolved.own_operators]
    return record.resolved.operators or of_older


def certificate(record: RunRecord) -> str:
    """Whether the configuration was compared with serial training."""
    return "not certified" if record.certificate is None else "certified"


def training(record: RunRecord) -> str:
    """What came of that comparison, where it is wrong."""
    certificate = record.certificate
    return "not found wrong" if certificate is None or certificate.holds else certificate.sentence


def package(*names: str) -> Read:
    """Version of the first of these packages that is installed."""

    @_recorded("packages")
    def read(record: RunRecord) -> str:
        packages = record.environment.packages
        return next((packages[name] for name in names if name in packages), "not installed")

    return read


def cuda(part: str) -> Read:
    """Version of a part of CUDA that pip installed."""

    def read(record: RunRecord) -> str | None:
        versions = record.environment.cuda
        return versions[part] or "not from pip" if part in versions else None

    return read


cpu_vector_units = environment("cpu_vector_units", lambda units: " ".join(units) or "none")
cores = resolved("cpu_affinity", lambda bound: str(len(bound)))  # how many the process was bound to
core_numbers = resolved("cpu_affinity", lambda bound: ",".join(map(str, bound)))


cpu_limit = environment("cpu_limit", "{:g} cores".format, "none")  # what control groups grant
# The fastest core's, in MHz: the one that the program runs on while the others idle.
highest_clock = environment("cpu_mhz", lambda mhz: max(mhz, default=NOT_TOLD))
# When the kernel backs memory with huge pages: always, madvise or never.
huge_pages = environment("huge_pages", lambda text: re.sub(r"(?s).*\[(\w+)\].*", r"\1", text))


def cpu_topology(record: RunRecord) -> str | None:
    topology = record.environment.cpu_topology
    if topology is None:
        return None
    counts = [f"{getattr(topology, part) or '?'} {part}" for part in ("sockets", "cores", "threads")]
    nodes = topology.numa_nodes
    return ", ".join([*counts, f"NUMA nodes {' | '.join(nodes)}" if nodes else "NUMA not known"])


@_recorded("cpu_no_turbo", "cpu_boost")
def turbo(record: RunRecord) -> str:
    """Whether the clock may rise above its nominal value."""
    machine = record.environment
    if machine.cpu_no_turbo is None and machine.cpu_boost is None:
        return NOT_TOLD
    return "off" if machine.cpu_no_turbo == "1" or machine.cpu_boost == "0" else "on"


def oversubscribed(record: RunRecord) -> str | None:
    return "of CPU devices alone" if record.config.get("device") == "gpu" else resolved("oversubscribed")(record)


def gpus(*names: str) -> Read:
    """Text of these fields of every GPU, in the order of the devices."""

    def read(record: RunRecord) -> str | None:
        cards = record.environment.gpus
        if not cards or any(name not in card for card in cards for name in names):
            return None
        words = [" and ".join(card[name] for name in names) for card in cards]
        return f"{len(words)} x {words[0]}" if len(words) > 1 and len(set(words)) == 1 else ", ".join(words)

    return read


def gpu_clock(name: str, when: str) -> Read:
    """Mean over the GPUs in MHz."""

    def read(record: RunRecord) -> float | None:
        cards = getattr(record.environment, when)
        matches = [re.match(r"[\d.]+", card.get(name, "")) for card in cards]
        numbers = [float(match[0]) for match in matches if match]
        return sum(numbers) / len(numbers) if numbers and len(numbers) == len(cards) else None

    return read


def held_down(among: int) -> Read:
    """Why clocks were held down before or after the run, on any GPU; `among`: bits of the reasons asked for."""

    @_recorded("gpus", "gpus_after")
    def read(record: RunRecord) -> str | None:
        cards = (*record.environment.gpus, *record.environment.gpus_after)
        masks = [throttling.parse(card.get(throttling.FIELD, "")) for card in cards]
        if None in masks:  # an older record, or "[N/A]": the card does not tell
            return None
        held = {why: None for mask in masks for bit, why in throttling.REASONS.items() if (mask or 0) & bit & among}
        return ", ".join(held) or "nothing"

    return read


def gpu_topology(record: RunRecord) -> str | None:
    """The rows of the matrix of `nvidia-smi topo -m`, where several devices exchange."""
    if record.config.get("num_devices") == 1 and record.workers is None:
        return "one device"
    if record.environment.topology is None:
        return None
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in record.environment.topology.splitlines()]
    return "; ".join(" ".join(line.split()) for line in lines if re.match(r"(GPU|NIC|mlx)", line))  # not the head


def _algorithms(segments: Sequence[ReduceSegment]) -> str:
    return ":".join(f"{segment.algorithm}#{segment.shards}" for segment in segments) or "none"


all_reduce = resolved("all_reduce", _algorithms)  # what `auto` or the specification came to


def hosts(record: RunRecord) -> str | None:
    if record.workers is None:
        return ONE_PROCESS
    return str(len(record.workers.hosts)) if record.workers.hosts else None


def link(record: RunRecord) -> str:
    """The network that was made between the workers of a run: as it was asked for, since each run measures it anew."""
    return ((record.workers.link if record.workers else None) or "none made for the run").partition(" asked;")[0]


def variable(name: str) -> Read:
    return _recorded("variables")(lambda record: record.environment.variables.get(name, "not set"))


def launcher(record: RunRecord) -> str | None:
    return ONE_PROCESS if record.workers is None else record.workers.launcher


@_recorded("commit")
def commit(record: RunRecord) -> str | None:
    commit = record.environment.commit
    if commit is None:
        return "not in a git checkout"
    name = commit.hash[:9]
    if not commit.modified:
        return name
    return f"{name} modified ({commit.diff})" if commit.diff else None
