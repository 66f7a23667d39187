"""How the GPUs of this machine are connected: links between each two, groups, and which of them to use together.

Read from `nvidia-smi topo -m` and NVML. No bandwidth is in it: what a link carries has to be measured.

Source: nvidia-smi's manual, "topo", and the legend that the command prints below its matrix.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

from rnn_scaling.machine import nvml
from rnn_scaling.machine.gpus import gpu_topology, visible_gpus
from rnn_scaling.machine.topology_matrix import MEANING, Topology, TopologyError, connected, levels, parse

EXHAUSTIVE = 16  # GPUs up to which every subset is looked at: 12,870 of 8 among 16
NAMED = 4  # equally good subsets that are named
# Only their order counts. A lane of NVLink carries one to four times what 16 lanes of PCIe do, so more lanes win.
_WORTH = {"N/A": 0, "SOC": 1, "SYS": 1, "NODE": 2, "PHB": 3, "PXB": 4, "PIX": 5, "PSB": 6}
_NVLINK = 10
_SAME = {"SOC": "SYS", "PSB": "PIX"}  # names of the same link, by tool and release


@dataclasses.dataclass(frozen=True)
class Best:
    """The subsets of one size that should exchange fastest.

    Attributes:
      subsets: nvidia-smi's indices; the first NAMED, those on the fewest NUMA nodes first.
      worst: the farthest link within each of them; "": a single GPU.
      count: how many are equally good.
    """

    subsets: tuple[tuple[int, ...], ...]
    worst: str
    count: int


def read() -> Topology | None:
    """The topology of this machine, from nvidia-smi and NVML, whichever answers; None: no visible GPU, or neither.

    The matrix is nvidia-smi's where both answer; `disagreements` says where NVML's is another.
    """
    printed = gpu_topology()
    api = nvml.start() if printed is not None or visible_gpus() else None
    other = None
    if api is not None:
        other = nvml.topology(api)
        nvml.ask(api, "nvmlShutdown")
    try:
        matrix = parse(printed) if printed is not None else None
    except TopologyError as e:
        return other and dataclasses.replace(other, disagreements=(f"`nvidia-smi topo -m` cannot be read: {e}",))
    return merge(matrix, other) if matrix and other else matrix or other


def groups(topology: Topology) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Level -> the GPUs (nvidia-smi's indices) that hang together by links of it or nearer, near levels first."""
    return {
        level: tuple(tuple(topology.devices[i] for i in group) for group in connected(topology.links, level))
        for level in levels(topology.links)
    }


def best_subsets(topology: Topology, count: int) -> Best:
    """The `count` GPUs that should exchange fastest: the farthest link between two of them is as near as can be, then
    the links together. With more than EXHAUSTIVE GPUs, only those with consecutive numbers are compared.

    An expectation from kinds of links, no measurement: it knows neither bandwidths nor rings that avoid a far link.

    Raises:
      ValueError: if there are not so many GPUs.
    """
    size = len(topology.devices)
    if not 1 <= count <= size:
        raise ValueError(f"expected 1 to {size} GPUs, got {count}")
    worth = [[_worth(link) for link in row] for row in topology.links]
    candidates = (
        itertools.combinations(range(size), count)
        if size <= EXHAUSTIVE
        else (tuple(range(first, first + count)) for first in range(size - count + 1))
    )
    best: tuple[int, int] | None = None
    equal: list[tuple[int, ...]] = []
    for subset in candidates:
        quality = _quality(worth, subset)
        if best is None or quality > best:
            best, equal = quality, []
        if quality == best:
            equal.append(subset)
    equal.sort(key=lambda subset: (len({topology.numa[i] for i in subset}), subset))
    named = tuple(tuple(topology.devices[i] for i in subset) for subset in equal[:NAMED])
    return Best(named, _worst(topology, equal[0]), len(equal))


def better(topology: Topology, used: Sequence[int]) -> Best | None:
    """The best subsets of as many GPUs as were used; None: those used are as good, or are not all known."""
    if len(set(used)) < 2 or not set(used) <= set(topology.devices):
        return None
    subset = sorted({topology.devices.index(device) for device in used})
    worth = [[_worth(link) for link in row] for row in topology.links]
    best = best_subsets(topology, len(subset))
    nearest = [topology.devices.index(device) for device in best.subsets[0]]
    return best if _quality(worth, nearest) > _quality(worth, subset) else None


def farthest(topology: Topology, used: Sequence[int]) -> str:
    """The farthest link between two of these GPUs (nvidia-smi's indices)."""
    return _worst(topology, [topology.devices.index(device) for device in used])


def merge(smi: Topology, other: Topology) -> Topology:
    """nvidia-smi's matrix with what only NVML tells, and where the two disagree."""
    if smi.devices != other.devices:
        line = f"nvidia-smi lists the GPUs {nvml.ranges(smi.devices)}, NVML {nvml.ranges(other.devices)}"
        return dataclasses.replace(smi, disagreements=(line,))
    lines = [
        f"GPUs {a} and {b}: nvidia-smi says {smi.links[a][b]}, NVML {other.links[a][b]}"
        for a, b in itertools.combinations(range(len(smi.devices)), 2)
        if other.links[a][b] != "N/A" and len({_SAME.get(t.links[a][b], t.links[a][b]) for t in (smi, other)}) == 2
    ]
    return dataclasses.replace(
        smi,
        cpu_affinity=tuple(a or b for a, b in zip(smi.cpu_affinity, other.cpu_affinity)),
        numa=tuple(a or b for a, b in zip(smi.numa, other.numa)),
        peer=other.peer,
        source="nvidia-smi and NVML",
        disagreements=tuple(lines),
    )


def _worth(link: str) -> int:
    return _NVLINK * int(link[2:]) if link.startswith("NV") else _WORTH.get(link, 0)


def _quality(worth: Sequence[Sequence[int]], subset: Iterable[int]) -> tuple[int, int]:
    """(worst link, sum of the links); of two subsets the one with the larger is the better."""
    values = [worth[a][b] for a, b in itertools.combinations(subset, 2)]
    return min(values, default=0), sum(values)


def _worst(topology: Topology, subset: Sequence[int]) -> str:
    links = [topology.links[a][b] for a, b in itertools.combinations(subset, 2)]
    return min(links, key=_worth, default="")


def text(topology: Topology) -> str:
    """What a person wants to know, for a terminal: the matrix, the groups, and the best GPUs for each count."""
    blocks = [
        f"GPU topology, from {topology.source}",
        _table(topology),
        _groups_text(topology),
        "\n".join([*topology.disagreements, *_peer_lines(topology)]),
        _best_text(topology),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _table(topology: Topology) -> str:
    names = [f"GPU{device}" for device in topology.devices]
    rows = [["", *names, *topology.nics, "CPUs", "NUMA node"]]
    for i, name in enumerate(names):
        nics = topology.nic_links[i] if topology.nic_links else ()
        near = (topology.cpu_affinity[i] or "n/a", topology.numa[i] or "n/a")
        rows.append([name, *topology.links[i], *nics, *near])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _groups_text(topology: Topology) -> str:
    if len(topology.devices) < 2:
        return ""
    lines = ["GPUs that hang together by a kind of link or nearer ones"]
    for level, members in groups(topology).items():
        shown = " ".join("{" + ", ".join(map(str, group)) + "}" for group in members)
        lines.append(f"  {level:<5} {MEANING[level]:<30} {shown}")
    return "\n".join(lines)


def _peer_lines(topology: Topology) -> list[str]:
    """The pairs that cannot copy directly, by reason."""
    pairs = list(itertools.combinations(range(len(topology.peer)), 2))
    by_reason: dict[str, list[str]] = {}
    for a, b in pairs:
        if topology.peer[a][b] not in ("", "OK"):
            pair = f"{topology.devices[a]}-{topology.devices[b]}"
            by_reason.setdefault(topology.peer[a][b], []).append(pair)
    return [
        f"no direct copies between {'any two GPUs' if len(without) == len(pairs) else ', '.join(without)}: {reason}; "
        "they go through the host's memory"
        for reason, without in by_reason.items()
    ]


def _best_text(topology: Topology) -> str:
    size = len(topology.devices)
    counts = [n for n in range(2, size) if size <= 8 or n & (n - 1) == 0]
    if not counts:
        return ""
    lines = ["GPUs that should exchange fastest (expected from the links, not measured)"]
    for count in counts:
        best = best_subsets(topology, count)
        first, *others = (",".join(map(str, subset)) for subset in best.subsets)
        if best.count == math.comb(size, count):
            lines.append(f"  best {count}: any ({best.worst})")
            continue
        more = f" and {best.count - NAMED} more" if best.count > NAMED else ""
        equal = f"; as good: {'; '.join(others)}{more}" if others else ""
        lines.append(f"  best {count}: {first} ({best.worst}){equal}")
        lines.append(f"    CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={first}")
    if size > EXHAUSTIVE:
        lines.append(f"With more than {EXHAUSTIVE} GPUs, only GPUs with consecutive numbers are compared.")
    return "\n".join(lines)
