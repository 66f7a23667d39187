"""`nvidia-smi topo -m`: the links between GPUs and network cards, and their near CPUs.

Format: the manual of nvidia-smi, "topo", and the legend below the matrix.

`formats` has an entry for it, and `system.machine.topology` parses the matrix.
"""

import dataclasses
from collections.abc import Iterable

from rnn_scaling.records.importers.reading import (
    LogFormat,
    Problems,
    Reading,
    Terms,
    make_reading,
    read_log_lines,
)
from rnn_scaling.system.files.markdown import Table
from rnn_scaling.system.machine import topology

_NOTE = (
    "The matrix names the farthest part of the way between two devices, and "
    "contains no bandwidths. SOC is the old name of SYS. NV# is the number of "
    "bonded NVLinks; it hides the PCIe way between the two GPUs."
)


@dataclasses.dataclass
class _Matrix:
    line: int
    header: topology.Header
    text: str
    rows: dict[str, topology.MatrixRow] = dataclasses.field(default_factory=dict)

    def tables(self) -> list[Table]:
        """Return the matrix, and the groups of GPUs that each kind of link connects."""
        rows = []
        for name, row in self.rows.items():
            rows.append((name, *row.links, *(cell or None for cell in row.extras)))
        columns = ("Device", *self.header.devices, *self.header.extras)
        gpus = []
        for column, name in enumerate(self.header.devices):
            if name.startswith("GPU") and name in self.rows:
                gpus.append((column, name))
        links = []
        for _, name in gpus:
            links.append([self.rows[name].links[column] for column, _ in gpus])
        groups = []
        for level in topology.list_levels(links):
            texts = []
            for group in topology.group_connected(links, level):
                numbers = [gpus[index][1].removeprefix("GPU") for index in group]
                texts.append(f"{{{', '.join(numbers)}}}")
            groups.append((level, " ".join(texts)))
        title = "GPUs connected by this kind of link or a nearer one"
        return [
            Table("Topology", columns, tuple(rows)),
            Table(title, ("Link", "Groups of GPUs"), tuple(groups)),
        ]


class TopologyMatrix(LogFormat):
    """The matrix of a machine."""

    name = "nvidia_smi_topo"
    needles = ("GPU0",)
    has_rates = False
    detected = r"(?m)^[^\n]*\bGPU0\b[^\n]*\n[^\n]*\bGPU0\s+X\b"

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return each matrix with its affinities, and the GPUs by closeness."""
        problems = Problems()
        matrices: list[_Matrix] = []
        for line in read_log_lines(lines, longest=20_000):
            header = topology.read_header(line.text)
            if header is not None:
                matrices.append(_Matrix(line.number, header, f"{line.text}\n"))
                continue
            row = (
                topology.read_row(line.text, matrices[-1].header) if matrices else None
            )
            if row is not None:
                matrices[-1].text += f"{line.text}\n"
                if len(row.links) == len(matrices[-1].header.devices):
                    matrices[-1].rows.setdefault(row.name, row)
        tables: list[Table] = []
        for matrix in matrices:
            try:
                topology.parse(matrix.text)
            except topology.TopologyError as e:
                problems.add(matrix.line, str(e))
            tables += matrix.tables()
        nothing = "this file contains no row of a topology matrix"
        return make_reading(self.name, problems, nothing, tables=tables, notes=[_NOTE])
