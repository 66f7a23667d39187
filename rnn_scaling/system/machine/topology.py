"""How the GPUs of this machine are connected: links between each two, groups, and which of them to use together.

Read from `nvidia-smi topo -m`. No bandwidth is in it: what a link carries has to be measured.

Source: nvidia-smi's manual, "topo", and the legend that the command prints below its matrix.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Sequence

from rnn_scaling.system.machine.gpus import gpu_topology

EXHAUSTIVE = 16  # GPUs up to which every subset is looked at: 12,870 of 8 among 16
NAMED = 4  # equally good subsets that are named
# Only their order counts. A lane of NVLink carries one to four times what 16 lanes of PCIe do, so more lanes win.
_WORTH = {
    "N/A": 0,
    "SOC": 1,
    "SYS": 1,
    "NODE": 2,
    "PHB": 3,
    "PXB": 4,
    "PIX": 5,
    "PSB": 6,
}
_NVLINK = 10
# From near to far. PSB: one board with two GPUs. SOC is the name that SYS has in old drivers.
LEVELS = ("NV#", "PSB", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
MEANING = {
    "NV#": "# bonded NVLinks",
    "PSB": "one board",
    "PIX": "at most one PCIe bridge",
    "PXB": "several PCIe bridges",
    "PHB": "the CPU's PCIe host bridge",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the link between NUMA nodes",
    "SOC": "the link between CPU sockets",
}
RELATION = re.compile(r"X|NV\d+|[A-Z]{2,5}|N/A")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HEADER = re.compile(
    r"\s*(GPU\d+|NIC\d+|mlx\w+)\b(?=.*CPU\s+Affinity)|\s+GPU\d+(\s+(GPU\d+|NIC\d+|mlx\w+))*\s*$"
)
_COLUMNS = re.compile(r"GPU\s+NUMA\s+ID|CPU\s+Affinity|NUMA\s+Affinity|\S+")
_ROW = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|PSB")


@dataclasses.dataclass(frozen=True)
class Header:
    """The first line of a matrix: names of the devices, then of the columns about CPUs and memory."""

    devices: list[str]
    extras: list[str]


@dataclasses.dataclass(frozen=True)
class MatrixRow:
    """One line of a matrix; `extras` are "" where the line says nothing."""

    name: str
    links: list[str]
    extras: list[str]


class TopologyError(ValueError):
    """A text has no complete matrix."""


@dataclasses.dataclass(frozen=True)
class Topology:
    devices: tuple[int, ...]  # nvidia-smi's indices of the GPUs
    links: tuple[
        tuple[str, ...], ...
    ]  # GPU x GPU in nvidia-smi's words, "X" on the diagonal
    cpu_affinity: tuple[
        str, ...
    ]  # CPUs near each GPU, as nvidia-smi writes them; "": unknown
    numa: tuple[str, ...]  # NUMA nodes, in the same way
    nics: tuple[str, ...] = ()  # names of network cards
    nic_links: tuple[tuple[str, ...], ...] = ()  # GPU x card


def parse(text: str) -> Topology:
    """Reads the output of `nvidia-smi topo -m`. Raises TopologyError unless its matrix of GPUs is whole and even."""
    header: Header | None = None
    rows: dict[str, MatrixRow] = {}
    for line in text.splitlines():
        if (first_line := read_header(line)) is not None:
            if header is not None:
                break  # a second matrix: the first counts
            header = first_line
        elif header is not None and (row := read_row(line, header)) is not None:
            rows.setdefault(row.name, row)
    if header is None:
        raise TopologyError(
            "expected a line that names GPU0 and the others, found none"
        )
    return _checked(header, rows)


def _checked(header: Header, rows: dict[str, MatrixRow]) -> Topology:
    names = [name for name in header.devices if re.fullmatch(r"GPU\d+", name)]
    nics = [name for name in header.devices if name not in names]
    at = {name: header.devices.index(name) for name in header.devices}
    for name in names:
        row = rows[name].links if name in rows else []
        if len(row) < len(header.devices):
            raise TopologyError(
                f"row {name} has {len(row)} of {len(header.devices)} cells"
            )
        if bad := [cell for cell in row if level_of(cell) not in {*LEVELS, "X", "N/A"}]:
            raise TopologyError(
                f"row {name}: expected X, NV#, PIX, PXB, PHB, NODE or SYS, got {bad[0]!r}"
            )
    for a, b in itertools.combinations(names, 2):
        there = rows[a].links[at[b]]
        back = rows[b].links[at[a]]
        if there != back or there == "X":
            raise TopologyError(f"{a}-{b} is {there}, {b}-{a} is {back}")

    def extra(column: str) -> tuple[str, ...]:
        if column not in header.extras:
            return ("",) * len(names)
        cells = (rows[name].extras[header.extras.index(column)] for name in names)
        return tuple("" if cell == "N/A" else cell for cell in cells)

    def cells(columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        return tuple(
            tuple(rows[name].links[at[column]] for column in columns) for name in names
        )

    devices = tuple(int(name[3:]) for name in names)
    affinity = extra("CPU Affinity")
    numa = extra("NUMA Affinity")
    return Topology(
        devices, cells(names), affinity, numa, nics=tuple(nics), nic_links=cells(nics)
    )


def read_header(line: str) -> Header | None:
    """The names of a matrix's columns; None: the line is no header. Underlining (ANSI codes) is left out."""
    line = _ANSI.sub("", line)
    names = (
        [" ".join(name.split()) for name in _COLUMNS.findall(line)]
        if "GPU" in line
        else []
    )
    if (
        not names
        or not _HEADER.match(line)
        or (len(names) > 1 and _ROW.fullmatch(names[1]))
    ):
        return None
    devices = [
        name for name in names if "Affinity" not in name and name != "GPU NUMA ID"
    ]
    return Header(devices, names[len(devices) :])


def read_row(line: str, header: Header) -> MatrixRow | None:
    """One device's line of the matrix; None: the line is something else. A line that is cut has fewer links."""
    line = _ANSI.sub("", line)
    words = line.split()
    size = len(header.devices)
    if not words or words[0] not in header.devices:
        return None
    match = re.match(rf"\s*\S+(?:\s+\S+){{{size}}}", line)
    rest = line[match.end() :] if match else ""
    if (
        "\t" in rest
    ):  # the CPUs' column may be empty, and one column's name takes two tabs
        cpus, *others = (cell.strip() for cell in rest.split("\t")[1:])
        extras = [cpus, *filter(None, others)]
    else:
        extras = rest.split()
    width = len(header.extras)
    return MatrixRow(words[0], words[1 : size + 1], (extras + [""] * width)[:width])


def level_of(link: str) -> str:
    """NV2 -> NV#; other links are their own level."""
    return "NV#" if re.fullmatch(r"NV\d+", link) else link


def connected(links: Sequence[Sequence[str]], level: str) -> list[list[int]]:
    """Positions of the devices that hang together by links of `level` or nearer, lowest first."""
    near = set(LEVELS[: LEVELS.index(level) + 1])
    left = list(range(len(links)))
    groups = []
    while left:
        group = []
        queue = [left[0]]
        while queue:
            device = queue.pop()
            if device in left:
                left.remove(device)
                group.append(device)
                queue += [
                    neighbour
                    for neighbour in left
                    if level_of(links[device][neighbour]) in near
                ]
        groups.append(sorted(group))
    return groups


def levels(links: Sequence[Sequence[str]]) -> list[str]:
    """The levels that links between two different devices have, near ones first."""
    present = {
        level_of(link)
        for i, row in enumerate(links)
        for j, link in enumerate(row)
        if i != j
    }
    return [level for level in LEVELS if level in present]


@dataclasses.dataclass(frozen=True)
class Best:
    """The subsets of one size that should exchange fastest."""

    subsets: tuple[
        tuple[int, ...], ...
    ]  # nvidia-smi's indices; the first NAMED, those on the fewest NUMA nodes first
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
        found[level] = tuple(
            tuple(topology.devices[i] for i in group) for group in places
        )
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
    named = tuple(
        tuple(topology.devices[i] for i in subset) for subset in equal[:NAMED]
    )
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
    blocks = [
        "GPU topology, from nvidia-smi",
        _table(topology),
        _groups_text(topology),
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


def _best_text(topology: Topology) -> str:
    size = len(topology.devices)
    counts = [n for n in range(2, size) if size <= 8 or n & (n - 1) == 0]
    if not counts:
        return ""
    lines = [
        "GPUs that should exchange fastest (expected from the links, not measured)"
    ]
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
        lines.append(
            f"With more than {EXHAUSTIVE} GPUs, only GPUs with consecutive numbers are compared."
        )
    return "\n".join(lines)
