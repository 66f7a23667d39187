"""`nvidia-smi topo -m`: the links between GPUs and network cards, and their near CPUs.

Format: the manual of nvidia-smi, "topo", and the legend below the matrix.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence

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

_FORMAT = "nvidia_smi_topo"
_LEGEND = re.compile(r"\s*(X|NV#|[A-Z]{2,5}|NIC\d+)\s*[=:]\s*(\S.*)")


@dataclasses.dataclass
class _Matrix:
    line: int
    header: topology.Header
    text: str
    rows: dict[str, topology.MatrixRow] = dataclasses.field(default_factory=dict)


class TopologyMatrix(LogFormat):
    """The matrix of a machine."""

    name = _FORMAT
    needles = ("GPU0",)
    has_rates = False
    detected = r"(?m)^[^\n]*\bGPU0\b[^\n]*\n[^\n]*\bGPU0\s+X\b"

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return matrix, affinities and legend, and the GPUs by closeness."""
        problems = Problems()
        matrices: list[_Matrix] = []
        legend: dict[str, str] = {}
        in_legend = False
        for line in log_lines(lines, longest=20_000):
            text = line.text
            if (header := topology.read_header(text)) is not None:
                matrices.append(_Matrix(line.number, header, f"{text}\n"))
                in_legend = False
            elif text.strip().endswith("Legend:"):
                in_legend = True
            elif in_legend and (match := _LEGEND.fullmatch(text)):
                legend[match[1]] = match[2].strip()
            elif matrices and (row := topology.read_row(text, matrices[-1].header)):
                matrices[-1].text += f"{text}\n"
                if len(row.links) == len(matrices[-1].header.devices):
                    matrices[-1].rows.setdefault(row.name, row)
        tables: list[Table] = []
        for matrix in matrices:
            missing_gpus = [
                name for name in matrix.header.devices if name not in matrix.rows
            ]
            try:
                if missing_gpus:
                    raise topology.TopologyError(
                        f"the matrix lacks the row of {', '.join(missing_gpus)}: the "
                        "file is cut short"
                    )
                topology.parse(matrix.text)
            except topology.TopologyError as e:
                problems.add(matrix.line, str(e))
            tables += [_make_matrix_table(matrix), _make_groups_table(matrix)]
        if any(table.rows for table in tables):
            symbols = tuple(legend.items())
            tables.append(Table("Legend", ("Symbol", "Meaning"), symbols))
        nothing = "this file contains no row of a topology matrix"
        notes = _list_notes(matrices)
        return make_reading(_FORMAT, problems, nothing, tables=tables, notes=notes)


def _make_matrix_table(matrix: _Matrix) -> Table:
    header = matrix.header
    rows = []
    for name, row in matrix.rows.items():
        extras = [cell or None for cell in row.extras]
        rows.append((name, *row.links, *extras))
    return Table("Topology", ("Device", *header.devices, *header.extras), tuple(rows))


def _make_groups_table(matrix: _Matrix) -> Table:
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


def _list_notes(matrices: Sequence[_Matrix]) -> list[str]:
    notes = [
        "The matrix names the farthest part of the way between two devices; it holds "
        "no bandwidth."
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
            "NV# hides what the PCIe way between the two GPUs would be; # is the "
            "number of bonded NVLinks."
        )
    return notes
