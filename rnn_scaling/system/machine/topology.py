"""The links between the GPUs of this machine, their groups, and the best ones to use.

They are read from `nvidia-smi topo -m`, which has no bandwidths.

Source: the manual of nvidia-smi, "topo", and the legend below the printed matrix.

`parse` is pure, and records keep the printed matrix: a later version reads old records
again.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Sequence

from rnn_scaling.system.machine.gpus import read_gpu_topology

_EXHAUSTIVE = 16  # up to this many GPUs all subsets are compared: 12,870 of 8 among 16
MAX_SUBSETS = 4  # equally good subsets that are listed
# Only the order counts. A lane of NVLink has one to four times the bandwidth of 16 lanes
# of PCIe, so more lanes are better.
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
# From near to far. PSB is one board with two GPUs. SOC is the name of SYS in old drivers.
LEVELS = ("NV#", "PSB", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
_MEANING = {
    "NV#": "# bonded NVLinks",
    "PSB": "one board",
    "PIX": "at most one PCIe bridge",
    "PXB": "several PCIe bridges",
    "PHB": "the CPU's PCIe host bridge",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the link between NUMA nodes",
    "SOC": "the link between CPU sockets",
}
_RELATION = re.compile(r"X|NV\d+|[A-Z]{2,5}|N/A")
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
    """One line of a matrix; an entry of `extras` is "" if its cell is empty."""

    name: str
    links: list[str]
    extras: list[str]


class TopologyError(ValueError):
    """A text has no complete matrix."""


@dataclasses.dataclass(frozen=True)
class Topology:
    """The matrix of nvidia-smi.

    Attributes:
      devices: The indices of the GPUs in nvidia-smi.
      links: Links of GPU x GPU with names of nvidia-smi, "X" on the diagonal.
      cpu_affinity: CPUs near each GPU in the format of nvidia-smi, or "".
      numa: NUMA nodes near each GPU, or "".
      nics: Names of network cards.
      nic_links: Links of GPU x card.
    """

    devices: tuple[int, ...]
    links: tuple[tuple[str, ...], ...]
    cpu_affinity: tuple[str, ...]
    numa: tuple[str, ...]
    nics: tuple[str, ...] = ()
    nic_links: tuple[tuple[str, ...], ...] = ()


def parse(text: str) -> Topology:
    """Parse the output of `nvidia-smi topo -m`.

    Raises:
      TopologyError: If the matrix of GPUs is incomplete or not symmetric.
    """
    header: Header | None = None
    rows: dict[str, MatrixRow] = {}
    for line in text.splitlines():
        if (first_line := read_header(line)) is not None:
            if header is not None:
                break  # A second matrix is ignored.
            header = first_line
        elif header is not None and (row := read_row(line, header)) is not None:
            rows.setdefault(row.name, row)
    if header is None:
        raise TopologyError(
            "expected a header line with GPU0 and the other devices, found none"
        )
    return _make_topology(header, rows)


def _make_topology(header: Header, rows: dict[str, MatrixRow]) -> Topology:
    """Return the checked topology: every link must be the same in both directions."""
    names = [name for name in header.devices if re.fullmatch(r"GPU\d+", name)]
    nics = [name for name in header.devices if name not in names]
    columns = {name: number for number, name in enumerate(header.devices)}
    for name in names:
        row_links = rows[name].links if name in rows else []
        _check_row(name, row_links, header.devices)
    for a, b in itertools.combinations(names, 2):
        link = rows[a].links[columns[b]]
        reverse_link = rows[b].links[columns[a]]
        if link != reverse_link or link == "X":
            raise TopologyError(f"{a}-{b} is {link}, but {b}-{a} is {reverse_link}")

    def list_extra_cells(column: str) -> tuple[str, ...]:
        if column not in header.extras:
            return ("",) * len(names)
        cells = (rows[name].extras[header.extras.index(column)] for name in names)
        return tuple("" if cell == "N/A" else cell for cell in cells)

    def list_links(name: str, to: Sequence[str]) -> tuple[str, ...]:
        return tuple(rows[name].links[columns[device]] for device in to)

    devices = tuple(int(name[3:]) for name in names)
    affinity = list_extra_cells("CPU Affinity")
    numa = list_extra_cells("NUMA Affinity")
    return Topology(
        devices,
        tuple(list_links(name, names) for name in names),
        affinity,
        numa,
        nics=tuple(nics),
        nic_links=tuple(list_links(name, nics) for name in names),
    )


def _check_row(name: str, links: Sequence[str], devices: Sequence[str]) -> None:
    """Raise a TopologyError if a GPU's row is incomplete or has an unknown link."""
    if len(links) < len(devices):
        raise TopologyError(f"row {name} has {len(links)} of {len(devices)} cells")
    for link in links:
        if _link_level(link) not in {*LEVELS, "X", "N/A"}:
            raise TopologyError(
                f"row {name}: expected X, NV#, PIX, PXB, PHB, NODE or SYS, got {link!r}"
            )
    own_link = links[devices.index(name)]
    if own_link != "X":
        raise TopologyError(f"{name}-{name} is {own_link}; expected X")


def read_header(line: str) -> Header | None:
    """Return the names of a matrix's columns; None if the line is not a header.

    Underlining (ANSI codes) is ignored.
    """
    line = _ANSI.sub("", line)
    if "GPU" not in line or not _HEADER.match(line):
        return None
    names = [" ".join(name.split()) for name in _COLUMNS.findall(line)]
    if len(names) > 1 and _ROW.fullmatch(names[1]):
        return None
    devices = [
        name for name in names if "Affinity" not in name and name != "GPU NUMA ID"
    ]
    return Header(devices, names[len(devices) :])


def read_row(line: str, header: Header) -> MatrixRow | None:
    """Return one device's line of the matrix; None if it is another line.

    A truncated line has fewer links.
    """
    line = _ANSI.sub("", line)
    words = line.split()
    size = len(header.devices)
    if not words or words[0] not in header.devices:
        return None
    match = re.match(rf"\s*\S+(?:\s+\S+){{{size}}}", line)
    end = line[match.end() :] if match else ""
    if "\t" in end:
        # The column of CPUs may be empty, and another column takes two tabs.
        cpus, *cells = (cell.strip() for cell in end.split("\t")[1:])
        extras = [cpus, *filter(None, cells)]
    else:
        extras = end.split()
    width = len(header.extras)
    return MatrixRow(words[0], words[1 : size + 1], (extras + [""] * width)[:width])


def _link_level(link: str) -> str:
    """Return "NV#" for NV2; other links are their own level."""
    return "NV#" if re.fullmatch(r"NV\d+", link) else link


def group_connected(links: Sequence[Sequence[str]], level: str) -> list[list[int]]:
    """Group the positions of devices that are connected by links of `level` or nearer."""
    near = set(LEVELS[: LEVELS.index(level) + 1])
    ungrouped = list(range(len(links)))
    groups = []
    while ungrouped:
        group = [ungrouped.pop(0)]
        # The list grows while it is read, until no device connects a further one.
        for device in group:
            connected_to = [
                other
                for other in ungrouped
                if _link_level(links[device][other]) in near
            ]
            group += connected_to
            ungrouped = [other for other in ungrouped if other not in connected_to]
        groups.append(sorted(group))
    return groups


def list_levels(links: Sequence[Sequence[str]]) -> list[str]:
    """Return the levels of links between different devices, near ones first."""
    present: set[str] = set()
    for i, row in enumerate(links):
        present.update(_link_level(link) for link in [*row[:i], *row[i + 1 :]])
    return [level for level in LEVELS if level in present]


@dataclasses.dataclass(frozen=True)
class Best:
    """The subsets of one size that should exchange fastest.

    Attributes:
      subsets: Indices in nvidia-smi of the first MAX_SUBSETS subsets, those on the fewest
        NUMA nodes first.
      worst: The farthest link within each subset, or "" for a single GPU.
      count: The number of equally good subsets.
    """

    subsets: tuple[tuple[int, ...], ...]
    worst: str
    count: int


def read() -> Topology | None:
    """Return the topology of this machine; None without GPUs or nvidia-smi.

    Raises:
      TopologyError: If the output of nvidia-smi is incomplete.
    """
    printed = read_gpu_topology()
    return None if printed is None else parse(printed)


def group_gpus(topology: Topology) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Return groups of GPUs (indices in nvidia-smi) by level, near levels first.

    GPUs of a group are connected by links of the level or nearer ones.
    """
    groups_by_level = {}
    for level in list_levels(topology.links):
        groups_by_level[level] = tuple(
            _parse_indices(topology, group)
            for group in group_connected(topology.links, level)
        )
    return groups_by_level


def _parse_indices(topology: Topology, positions: Iterable[int]) -> tuple[int, ...]:
    """Return the indices in nvidia-smi of GPUs at positions of the matrix."""
    return tuple(topology.devices[position] for position in positions)


def find_best_subsets(topology: Topology, count: int) -> Best:
    """Return the `count` GPUs that should exchange fastest.

    Their farthest link is as near as possible; the sum of links decides ties. Of more than
    EXHAUSTIVE GPUs only those with consecutive numbers are compared. This is an
    expectation from kinds of links, without bandwidths or rings that avoid a far link.

    Raises:
      ValueError: If there are fewer GPUs.
    """
    size = len(topology.devices)
    if not 1 <= count <= size:
        raise ValueError(f"expected 1 to {size} GPUs, got {count}")
    worth = _rate_links(topology)
    candidates: Iterable[tuple[int, ...]] = itertools.combinations(range(size), count)
    if size > _EXHAUSTIVE:
        starts = range(size - count + 1)
        candidates = [tuple(range(first, first + count)) for first in starts]
    qualities = {subset: _rate_subset(worth, subset) for subset in candidates}
    best = max(qualities.values())
    equal = [subset for subset, quality in qualities.items() if quality == best]
    equal.sort(key=lambda subset: (len({topology.numa[i] for i in subset}), subset))
    subsets = tuple(_parse_indices(topology, subset) for subset in equal[:MAX_SUBSETS])
    return Best(subsets, _find_worst_link(topology, equal[0]), len(equal))


def _rate_link(link: str) -> int:
    return _NVLINK * int(link[2:]) if link.startswith("NV") else _WORTH.get(link, 0)


def _rate_links(topology: Topology) -> list[list[int]]:
    return [list(map(_rate_link, row)) for row in topology.links]


def _rate_subset(
    worth: Sequence[Sequence[int]], subset: Iterable[int]
) -> tuple[int, int]:
    """Return the worst link and the sum of links; the larger, the better the subset."""
    values = [worth[a][b] for a, b in itertools.combinations(subset, 2)]
    return min(values, default=0), sum(values)


def _find_worst_link(topology: Topology, subset: Sequence[int]) -> str:
    links = [topology.links[a][b] for a, b in itertools.combinations(subset, 2)]
    return min(links, key=_rate_link, default="")


def format_text(topology: Topology) -> str:
    """Return the text for a terminal: matrix, groups, and the best GPUs per count."""
    blocks = [
        "GPU topology, from nvidia-smi",
        _format_matrix(topology),
        _format_groups(topology),
        _format_best(topology),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _format_matrix(topology: Topology) -> str:
    names = [f"GPU{device}" for device in topology.devices]
    rows = [["", *names, *topology.nics, "CPUs", "NUMA node"]]
    for i, name in enumerate(names):
        nics = topology.nic_links[i] if topology.nic_links else ()
        near = (topology.cpu_affinity[i] or "n/a", topology.numa[i] or "n/a")
        rows.append([name, *topology.links[i], *nics, *near])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _format_groups(topology: Topology) -> str:
    if len(topology.devices) < 2:
        return ""
    lines = ["GPUs connected by this kind of link or a nearer one"]
    for level, members in group_gpus(topology).items():
        texts = [", ".join(map(str, group)) for group in members]
        groups_text = " ".join(f"{{{text}}}" for text in texts)
        lines.append(f"  {level:<5} {_MEANING[level]:<30} {groups_text}")
    return "\n".join(lines)


def _format_best(topology: Topology) -> str:
    """Return which GPUs to use for each number of devices."""
    size = len(topology.devices)
    counts = [n for n in range(2, size) if size <= 8 or n & (n - 1) == 0]
    if not counts:
        return ""
    lines = [
        "GPUs that should exchange fastest (expected from the links, not measured)"
    ]
    for count in counts:
        best = find_best_subsets(topology, count)
        first, *equal = (",".join(map(str, subset)) for subset in best.subsets)
        if best.count == math.comb(size, count):
            lines.append(f"  best {count}: any ({best.worst})")
            continue
        line = f"  best {count}: {first} ({best.worst})"
        if equal:
            line += f"; as good: {'; '.join(equal)}"
        if best.count > MAX_SUBSETS:
            line += f" and {best.count - MAX_SUBSETS} more"
        lines.append(line)
        lines.append(f"    CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={first}")
    if size > _EXHAUSTIVE:
        lines.append(
            f"With more than {_EXHAUSTIVE} GPUs, only GPUs with consecutive numbers "
            "are compared."
        )
    return "\n".join(lines)
