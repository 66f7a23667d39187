"""`nvidia-smi topo -m`: the links between GPUs and network cards, and their near CPUs.

Format: the manual of nvidia-smi, "topo", and the legend below the matrix.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from rnn_scaling.records.importers.reading import (
    LogFormat,
    Problems,
    Reading,
    Terms,
    log_lines,
    make_reading,
)
from rnn_scaling.system.files.markdown import Table
from rnn_scaling.system.machine import topology

FORMAT = "nvidia_smi_topo"
_DETECT = re.compile(r"^[^\n]*\bGPU0\b[^\n]*\n[^\n]*\bGPU0\s+X\b", re.MULTILINE)
_LEGEND = re.compile(r"\s*(X|NV#|[A-Z]{2,5}|NIC\d+)\s*[=:]\s*(\S.*)")


@dataclasses.dataclass
class _Matrix:
    line: int
    header: topology.Header
    rows: dict[str, topology.MatrixRow] = dataclasses.field(default_factory=dict)


class TopologyMatrix(LogFormat):
    """The matrix of a machine."""

    name = FORMAT

    def detect(self, text: str) -> bool:
        """Return whether a text has a header of devices with a row of its first GPU."""
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text) if "GPU0" in text else ""
        return _DETECT.search(plain) is not None

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return matrix, affinities and legend, and the GPUs by closeness."""
        problems = Problems()
        matrices: list[_Matrix] = []
        legend: dict[str, str] = {}
        in_legend = False
        for line in log_lines(lines, longest=20_000):
            text = line.text
            if (header := topology.read_header(text)) is not None:
                matrices.append(_Matrix(line.number, header))
                in_legend = False
            elif text.strip().endswith("Legend:"):
                in_legend = True
            elif in_legend and (match := _LEGEND.fullmatch(text)):
                legend[match[1]] = match[2].strip()
            elif matrices and (row := topology.read_row(text, matrices[-1].header)):
                _add_row(matrices[-1], row, line.number, problems)
        tables: list[Table] = []
        for matrix in matrices:
            _check(matrix, legend, problems)
            tables += [_matrix_table(matrix), _groups_table(matrix)]
        if any(table.rows for table in tables):
            symbols = tuple(legend.items())
            tables.append(Table("Legend", ("Symbol", "Meaning"), symbols))
        nothing = "no row of a topology matrix in this file"
        notes = _notes(matrices)
        return make_reading(FORMAT, problems, nothing, tables=tables, notes=notes)


def _matrix_table(matrix: _Matrix) -> Table:
    header = matrix.header
    rows = [
        (name, *row.links, *(cell or None for cell in row.extras))
        for name, row in matrix.rows.items()
    ]
    return Table("Topology", ("Device", *header.devices, *header.extras), tuple(rows))


def _add_row(
    matrix: _Matrix, row: topology.MatrixRow, line: int, problems: Problems
) -> None:
    size = len(matrix.header.devices)
    unknown = [cell for cell in row.links if not topology.RELATION.fullmatch(cell)]
    if len(row.links) < size:
        reason = f"row {row.name} has {len(row.links)} of {size} cells; left out"
        problems.add(line, reason, "short row")
    elif row.name in matrix.rows:
        reason = f"row {row.name} stands here twice; the first counts"
        problems.add(line, reason, "row twice")
    elif unknown:
        expected = "X, NV#, PIX, PXB, PHB, NODE or SYS"
        reason = f"row {row.name}: expected {expected}, got {unknown[0]!r}"
        problems.add(line, reason, "bad relation")
    else:
        matrix.rows[row.name] = row


def _check(matrix: _Matrix, legend: Mapping[str, str], problems: Problems) -> None:
    """Report missing rows and contradictions between cells."""
    devices = matrix.header.devices
    missing = [name for name in devices if name not in matrix.rows]
    if missing:
        names = ", ".join(missing)
        reason = f"the matrix lacks the row of {names}: the file is cut short"
        problems.add(matrix.line, reason)
    known = {*topology.LEVELS, *legend, "X", "N/A"}
    for i, first in enumerate(devices):
        if first not in matrix.rows:
            continue
        for j, second in enumerate(devices):
            relation = matrix.rows[first].links[j]
            pair = f"{first}-{second}"
            if topology.level_of(relation) not in known:
                reason = f"{pair}: {relation!r} is not in the legend"
                problems.add(matrix.line, reason, "unknown relation")
            if (relation == "X") != (i == j):
                reason = f"{pair}: {relation!r}, but X stands for a device with itself"
                problems.add(matrix.line, reason, "X")
            elif i < j and second in matrix.rows:
                back = matrix.rows[second].links[i]
                if back != relation:
                    reason = f"{pair} is {relation}, but {second}-{first} is {back}"
                    problems.add(matrix.line, reason, "uneven")


def _groups_table(matrix: _Matrix) -> Table:
    """Return the groups of GPUs that each kind of link, or a nearer one, connects."""
    columns = {}
    for column, name in enumerate(matrix.header.devices):
        if name.startswith("GPU") and name in matrix.rows:
            columns[name] = column
    gpus = list(columns)
    links = []
    for name in gpus:
        cells = matrix.rows[name].links
        links.append([cells[column] for column in columns.values()])
    rows = []
    for level in topology.levels(links):
        groups = []
        for group in topology.connected(links, level):
            numbers = ", ".join(gpus[index].removeprefix("GPU") for index in group)
            groups.append(f"{{{numbers}}}")
        rows.append((level, " ".join(groups)))
    title = "GPUs connected by this kind of link or a nearer one"
    return Table(title, ("Link", "Groups of GPUs"), tuple(rows))


def _notes(matrices: Sequence[_Matrix]) -> list[str]:
    notes = [
        "The matrix names the farthest part of the way between two devices; it holds no "
        "bandwidth."
    ]
    cells: set[str] = set()
    for matrix in matrices:
        for row in matrix.rows.values():
            cells.update(row.links)
    if "SOC" in cells:
        notes.append(
            "SOC is the old name of SYS: the way crosses the link between two CPU "
            "sockets."
        )
    if any(cell.startswith("NV") for cell in cells):
        notes.append(
            "NV# hides what the PCIe way between the two GPUs would be; # is the number "
            "of bonded NVLinks."
        )
    return notes
