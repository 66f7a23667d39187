"""How the GPUs of this machine are connected: links between each two, groups, and which of them to use together.

Read from `nvidia-smi topo -m`. No bandwidth is in it: what a link carries has to be measured.

Source: nvidia-smi's manual, "topo", and the legend that the command prints below its matrix.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

from rnn_scaling.machine.gpus import gpu_topology
from rnn_scaling.machine.topology_matrix import MEANING, Topology, connected, levels, parse

EXHAUSTIVE = 16  # GPUs up to which every subset is looked at: 12,870 of 8 among 16
NAMED = 4  # equally good subsets that are named
# Only their order counts. A lane of NVLink carries one to four times what 16 lanes of PCIe do, so more lanes win.
_WORTH = {"N/A": 0, "SOC": 1, "SYS": 1, "NODE": 2, "PHB": 3, "PXB": 4, "PIX": 5, "PSB": 6}
_NVLINK = 10


@dataclasses.dataclass(frozen=True)
class Best:
    """The subsets of one size that should exchange fastest."""

    subsets: tuple[tuple[int, ...], ...]  # nvidia-smi's indices; the first NAMED, those on the fewest NUMA nodes first
    worst: str  # the farthest link within each of them; "": a single GPU
    count: int  # how many are equally good


def read() -> Topology | None:
    """The topology of this machine; None: no GPU, or nvidia-smi does not answer. Raises TopologyError as `parse`."""
    printed = gpu_topology()
    return None if printed is None else parse(printed)


def groups(topology: Topology) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Level -> the GPUs (nvidia-smi's indices) that hang together by links of it or nearer, near levels first."""
    found = {}
    for level in levels(topology.links):
        places = connected(topology.links, level)
        found[level] = tuple(tuple(topology.devices[i] for i in group) for group in places)
    return found


def best_subsets(topology: Topology, count: int) -> Best:
    """The `count` GPUs that should exchange fastest: the farthest link between two of them is as near as can be, then
    the links together. With more than EXHAUSTIVE GPUs, only those with consecutive numbers are compared.

    An expectation from kinds of links, no measurement: it knows neither bandwidths nor rings that avoid a far link.
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
    qualities = {subset: _quality(worth, subset) for subset in candidates}
    best = max(qualities.values())
    equal = [subset for subset, quality in qualities.items() if quality == best]
    equal.sort(key=lambda subset: (len({topology.numa[i] for i in subset}), subset))
    named = tuple(tuple(topology.devices[i] for i in subset) for subset in equal[:NAMED])
    return Best(named, _worst(topology, equal[0]), len(equal))


def better(topology: Topology, used: Sequence[int]) -> Best | None:
    """The best subsets of the same number of GPUs; None: the used ones are as good, or some are unknown."""
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
    blocks = ["GPU topology, from nvidia-smi", _table(topology), _groups_text(topology), _best_text(topology)]
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
