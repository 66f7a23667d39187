"""`nvidia-smi topo -m`: how each pair of GPUs (and network cards) is connected, and which CPUs are near.

Format: nvidia-smi's manual, "topo"; the legend that the command prints below the matrix.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping

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
    """The format; see `reading`."""

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
    matrix: _Matrix, row: topology.MatrixRow, number: int, problems: Problems
) -> None:
    name, size = row.name, len(matrix.header.devices)
    if len(row.links) < size:
        problems.add(
            number,
            f"row {name} has {len(row.links)} of {size} cells; left out",
            "short row",
        )
    elif name in matrix.rows:
        problems.add(
            number, f"row {name} stands here twice; the first counts", "row twice"
        )
    elif bad := [cell for cell in row.links if not topology.RELATION.fullmatch(cell)]:
        problems.add(
            number,
            f"row {name}: expected X, NV#, PIX, PXB, PHB, NODE or SYS, got {bad[0]!r}",
            "bad relation",
        )
    else:
        matrix.rows[name] = row


def _check(matrix: _Matrix, legend: Mapping[str, str], problems: Problems) -> None:
    missing = [name for name in matrix.header.devices if name not in matrix.rows]
    if missing:
        problems.add(
            matrix.line,
            f"the matrix lacks the row of {', '.join(missing)}: the file is cut short",
        )
    known = {*topology.LEVELS, *legend, "X", "N/A"}
    for i, first in enumerate(matrix.header.devices):
        for j, second in enumerate(matrix.header.devices):
            if first not in matrix.rows:
                continue
            relation = matrix.rows[first].links[j]
            if topology.level_of(relation) not in known:
                problems.add(
                    matrix.line,
                    f"{first}-{second}: {relation!r} is not in the legend",
                    "unknown relation",
                )
            if (relation == "X") != (i == j):
                problems.add(
                    matrix.line,
                    f"{first}-{second}: {relation!r}, but X stands for a device with itself",
                    "X",
                )
            elif (
                i < j
                and second in matrix.rows
                and matrix.rows[second].links[i] != relation
            ):
                back = matrix.rows[second].links[i]
                problems.add(
                    matrix.line,
                    f"{first}-{second} is {relation}, but {second}-{first} is {back}",
                    "uneven",
                )


def _groups_table(matrix: _Matrix) -> Table:
    gpus = [
        name
        for name in matrix.header.devices
        if name.startswith("GPU") and name in matrix.rows
    ]
    links = [
        [matrix.rows[name].links[matrix.header.devices.index(peer)] for peer in gpus]
        for name in gpus
    ]
    rows = []
    for level in topology.levels(links):
        groups = topology.connected(links, level)
        rows.append(
            (
                level,
                " ".join(
                    "{" + ", ".join(gpus[i][3:] for i in group) + "}"
                    for group in groups
                ),
            )
        )
    return Table(
        "GPUs connected by this kind of link or a nearer one",
        ("Link", "Groups of GPUs"),
        tuple(rows),
    )


def _notes(matrices: list[_Matrix]) -> list[str]:
    notes = [
        "The matrix names the farthest part of the way between two devices; it holds no bandwidth."
    ]
    cells = {
        cell
        for matrix in matrices
        for row in matrix.rows.values()
        for cell in row.links
    }
    if "SOC" in cells:
        notes.append(
            "SOC is the old name of SYS: the way crosses the link between two CPU sockets."
        )
    if any(cell.startswith("NV") for cell in cells):
        notes.append(
            "NV# hides what the PCIe way between the two GPUs would be; # is the number of bonded NVLinks."
        )
    return notes
