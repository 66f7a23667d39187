"""The matrix of `nvidia-smi topo -m` as text: its header, its rows, and the kinds of links.

Source: nvidia-smi's manual, "topo", and the legend that the command prints below its matrix.
"""

import dataclasses
import itertools
import re
from collections.abc import Sequence

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
_HEADER = re.compile(r"\s*(GPU\d+|NIC\d+|mlx\w+)\b(?=.*CPU\s+Affinity)|\s+GPU\d+(\s+(GPU\d+|NIC\d+|mlx\w+))*\s*$")
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
    links: tuple[tuple[str, ...], ...]  # GPU x GPU in nvidia-smi's words, "X" on the diagonal
    cpu_affinity: tuple[str, ...]  # CPUs near each GPU, as nvidia-smi writes them; "": unknown
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
        raise TopologyError("expected a line that names GPU0 and the others, found none")
    return _checked(header, rows)


def _checked(header: Header, rows: dict[str, MatrixRow]) -> Topology:
    names = [name for name in header.devices if re.fullmatch(r"GPU\d+", name)]
    nics = [name for name in header.devices if name not in names]
    at = {name: header.devices.index(name) for name in header.devices}
    for name in names:
        row = rows[name].links if name in rows else []
        if len(row) < len(header.devices):
            raise TopologyError(f"row {name} has {len(row)} of {len(header.devices)} cells")
        if bad := [cell for cell in row if level_of(cell) not in {*LEVELS, "X", "N/A"}]:
            raise TopologyError(f"row {name}: expected X, NV#, PIX, PXB, PHB, NODE or SYS, got {bad[0]!r}")
    for a, b in itertools.combinations(names, 2):
        there, back = rows[a].links[at[b]], rows[b].links[at[a]]
        if there != back or there == "X":
            raise TopologyError(f"{a}-{b} is {there}, {b}-{a} is {back}")

    def extra(column: str) -> tuple[str, ...]:
        if column not in header.extras:
            return ("",) * len(names)
        cells = (rows[name].extras[header.extras.index(column)] for name in names)
        return tuple("" if cell == "N/A" else cell for cell in cells)

    def cells(columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(rows[name].links[at[column]] for column in columns) for name in names)

    devices, affinity, numa = tuple(int(name[3:]) for name in names), extra("CPU Affinity"), extra("NUMA Affinity")
    return Topology(devices, cells(names), affinity, numa, nics=tuple(nics), nic_links=cells(nics))


def read_header(line: str) -> Header | None:
    """The names of a matrix's columns; None: the line is no header. Underlining (ANSI codes) is left out."""
    line = _ANSI.sub("", line)
    names = [" ".join(name.split()) for name in _COLUMNS.findall(line)] if "GPU" in line else []
    if not names or not _HEADER.match(line) or (len(names) > 1 and _ROW.fullmatch(names[1])):
        return None
    devices = [name for name in names if "Affinity" not in name and name != "GPU NUMA ID"]
    return Header(devices, names[len(devices) :])


def read_row(line: str, header: Header) -> MatrixRow | None:
    """One device's line of the matrix; None: the line is something else. A line that is cut has fewer links."""
    line = _ANSI.sub("", line)
    words, size = line.split(), len(header.devices)
    if not words or words[0] not in header.devices:
        return None
    match = re.match(rf"\s*\S+(?:\s+\S+){{{size}}}", line)
    rest = line[match.end() :] if match else ""
    if "\t" in rest:  # the CPUs' column may be empty, and one column's name takes two tabs
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
    left, groups = list(range(len(links))), []
    while left:
        group, queue = [], [left[0]]
        while queue:
            device = queue.pop()
            if device in left:
                left.remove(device)
                group.append(device)
                queue += [neighbour for neighbour in left if level_of(links[device][neighbour]) in near]
        groups.append(sorted(group))
    return groups


def levels(links: Sequence[Sequence[str]]) -> list[str]:
    """The levels that links between two different devices have, near ones first."""
    present = {level_of(link) for i, row in enumerate(links) for j, link in enumerate(row) if i != j}
    return [level for level in LEVELS if level in present]
