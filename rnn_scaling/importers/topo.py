"""`nvidia-smi topo -m`: how each pair of GPUs (and network cards) is connected, and which CPUs are near.

Format: nvidia-smi's manual, "topo"; the legend that the command prints below the matrix.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

from rnn_scaling.importers.common import ImportedLog, Problems, Table, Value, finish, numbered, untag

FORMAT = "nvidia_smi_topo"
# From near to far; SOC is the name that SYS has in old drivers, PSB is found on boards with two GPUs.
LEVELS = ("NV#", "PSB", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
_HEADER = re.compile(r"\s*(GPU\d+|NIC\d+|mlx\w+)\b(?=.*CPU Affinity)|\s+GPU\d+(\s+(GPU|NIC)\d+)*\s*$")
_COLUMNS = re.compile(r"GPU NUMA ID|CPU Affinity|NUMA Affinity|\S+")
_DETECT = re.compile(r"^[^\n]*\bGPU0\b[^\n]*\n[^\n]*\bGPU0\s+X\b", re.MULTILINE)
_RELATION = re.compile(r"X|NV\d+|[A-Z]{2,5}|N/A")
_LEGEND = re.compile(r"\s*(X|NV#|[A-Z]{2,5}|NIC\d+)\s*[=:]\s*(\S.*)")


@dataclasses.dataclass
class _Matrix:
    line: int
    devices: list[str]
    affinities: list[str]
    rows: dict[str, list[str]] = dataclasses.field(default_factory=dict)


def detect(head: str) -> bool:
    """A header of device names with a row of its first GPU below."""
    return "GPU0" in head and bool(_DETECT.search(re.sub(r"\x1b\[[0-9;]*m", "", head)))


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Reads matrix, affinities and legend, and groups the GPUs by closeness.

    Raises:
      LogError: if no row of a matrix is there.
    """
    problems = Problems()
    matrices: list[_Matrix] = []
    legend: dict[str, str] = {}
    in_legend = False
    for number, tagged in numbered(lines):
        _, text = untag(tagged[:20_000])
        names = _COLUMNS.findall(text) if "GPU" in text else []
        if names and _HEADER.match(text) and not _is_row(names):
            devices = [name for name in names if "Affinity" not in name and name != "GPU NUMA ID"]
            matrices.append(_Matrix(number, devices, names[len(devices) :]))
            in_legend = False
        elif text.strip().endswith("Legend:"):
            in_legend = True
        elif in_legend and (match := _LEGEND.fullmatch(text)):
            legend[match[1]] = match[2].strip()
        elif matrices and (words := text.split()) and words[0] in matrices[-1].devices:
            _add_row(matrices[-1], words, number, problems)
    tables: list[Table] = []
    for matrix in matrices:
        _check(matrix, legend, problems)
        tables += [_matrix_table(matrix), _groups_table(matrix)]
    if any(table.rows for table in tables):
        tables.append(Table("Legend", ("Symbol", "Meaning"), tuple(legend.items())))
    return finish(FORMAT, source, tables, _notes(matrices), problems, "no row of a topology matrix in this file")


def _is_row(words: list[str]) -> bool:
    return len(words) > 1 and bool(re.fullmatch(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|PSB", words[1]))


def _add_row(matrix: _Matrix, words: list[str], number: int, problems: Problems) -> None:
    name, cells = words[0], words[1:]
    size = len(matrix.devices)
    if len(cells) < size:
        problems.add(number, f"row {name} has {len(cells)} of {size} cells; left out", "short row")
    elif name in matrix.rows:
        problems.add(number, f"row {name} stands here twice; the first counts", "row twice")
    elif bad := [cell for cell in cells[:size] if not _RELATION.fullmatch(cell)]:
        problems.add(number, f"row {name}: expected X, NV#, PIX, PXB, PHB, NODE or SYS, got {bad[0]!r}", "bad relation")
    else:
        matrix.rows[name] = cells


def _check(matrix: _Matrix, legend: Mapping[str, str], problems: Problems) -> None:
    missing = [name for name in matrix.devices if name not in matrix.rows]
    if missing:
        problems.add(matrix.line, f"the matrix lacks the row of {', '.join(missing)}: the file is cut short")
    known = {*LEVELS, *legend, "X", "N/A"}
    for i, first in enumerate(matrix.devices):
        for j, second in enumerate(matrix.devices):
            if first not in matrix.rows:
                continue
            relation = matrix.rows[first][j]
            if _level(relation) not in known:
                problems.add(matrix.line, f"{first}-{second}: {relation!r} is not in the legend", "unknown relation")
            if (relation == "X") != (i == j):
                problems.add(matrix.line, f"{first}-{second}: {relation!r}, but X stands for a device with itself", "X")
            elif i < j and second in matrix.rows and matrix.rows[second][i] != relation:
                other = matrix.rows[second][i]
                problems.add(matrix.line, f"{first}-{second} is {relation}, but {second}-{first} is {other}", "uneven")


def _level(relation: str) -> str:
    return "NV#" if relation.startswith("NV") else relation


def _matrix_table(matrix: _Matrix) -> Table:
    width = len(matrix.devices) + len(matrix.affinities)
    rows: list[tuple[Value, ...]] = []
    for name, cells in matrix.rows.items():
        rows.append((name, *(cells + [None] * width)[:width]))
    return Table("Topology", ("Device", *matrix.devices, *matrix.affinities), tuple(rows))


def groups(relations: Mapping[str, Mapping[str, str]], level: str) -> list[list[str]]:
    """Devices that are connected by links of `level` or nearer, as lists in the order given.

    Args:
      relations: device -> device -> relation.
      level: one of LEVELS.
    """
    near = set(LEVELS[: LEVELS.index(level) + 1])
    left, found = list(relations), []
    while left:
        group, queue = [], [left[0]]
        while queue:
            name = queue.pop()
            if name in left:
                left.remove(name)
                group.append(name)
                queue += [other for other in left if _level(relations[name].get(other, "")) in near]
        found.append(sorted(group, key=list(relations).index))
    return found


def _groups_table(matrix: _Matrix) -> Table:
    gpus = [name for name in matrix.devices if name.startswith("GPU") and name in matrix.rows]
    relations = {name: dict(zip(matrix.devices, matrix.rows[name])) for name in gpus}
    present = {_level(relations[a][b]) for a in gpus for b in gpus if a != b}
    rows = []
    for level in LEVELS:
        if level in present:
            shown = " ".join("{" + ", ".join(name[3:] for name in group) + "}" for group in groups(relations, level))
            rows.append((level, shown))
    return Table("GPUs connected by this kind of link or a nearer one", ("Link", "Groups of GPUs"), tuple(rows))


def _notes(matrices: list[_Matrix]) -> list[str]:
    notes = ["The matrix names the farthest part of the way between two devices; it holds no bandwidth."]
    cells = {cell for matrix in matrices for row in matrix.rows.values() for cell in row}
    if "SOC" in cells:
        notes.append("SOC is the old name of SYS: the way crosses the link between two CPU sockets.")
    if any(cell.startswith("NV") for cell in cells):
        notes.append("NV# hides what the PCIe way between the two GPUs would be; # is the number of bonded NVLinks.")
    return notes
