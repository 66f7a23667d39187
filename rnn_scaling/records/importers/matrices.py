"""CUDA samples: bandwidthTest and p2pBandwidthLatencyTest.

Formats: NVIDIA/cuda-samples, Samples/1_Utilities/bandwidthTest (until CUDA 12.8),
printResultsReadable (its --csv form is not read), and
Samples/5_Domain_Specific/p2pBandwidthLatencyTest, main and output*Matrix.

Both formats are entries of `formats`. `analysis.slow_links` reads the `LinkMatrix`
tables.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rnn_scaling.records.importers.reading import (
    LogFormat,
    Problems,
    Reading,
    Terms,
    log_lines,
    make_reading,
    parse_non_negative,
    parse_positive,
)
from rnn_scaling.system.files.markdown import Table

_COPY_PATTERN = r"(Host to Device|Device to Host|Device to Device) Bandwidth, (\d+)"
_COPY_DEVICE = re.compile(r"\s*Device (\d+): (.+)")
_COPY_KIND = re.compile(rf"\s*{_COPY_PATTERN} Device\(s\).*")
_COPY_MEMORY = re.compile(
    r"\s*(PINNED|PAGEABLE) Memory Transfers(?:.*Bandwidth\(([MG]B/s)\))?.*"
)
_COPY_UNIT = re.compile(r".*Transfer Size \(Bytes\)\s+Bandwidth\(([MG]B/s)\).*")
_COPY_ROW = re.compile(r"\s*(\d+)\s+(\S+)\s*")
_COPY_COLUMNS = (
    "Device", "Copy", "Host memory", "Size (B)", "Bandwidth", "Unit", "Devices",
)  # fmt: skip
_GPU_LINE = re.compile(
    r"Device: (\d{1,4}), (.+?), pciBusID: (\w+), pciDeviceID: (\w+), "
    r"pciDomainID:\s*(\w+)\s*"
)
_MATRIX_TITLE = re.compile(
    r"((?:Unidirectional |Bidirectional )?P2P(?:=\w+)? .*Matrix(?: \((?:GB/s|us)\))?)\s*"
)
_MATRIX_HEAD = re.compile(r"\s*(D\\D|GPU|CPU)((?:\s+\d{1,4})+)\s*")
_MATRIX_ROW = re.compile(r"\s*\d{1,4}(?:\s+\S+)+\s*")
_ACCESS_MODE = re.compile(r"P2P=(?:Enabled|Disabled)|\(P2P \w+\)")

Link = tuple[int, int]  # from a device to another one


class _CopyRow(NamedTuple):
    """A row of the table with the columns _COPY_COLUMNS."""

    devices: str | None
    kind: str
    memory: str
    size_bytes: int
    bandwidth: float
    unit: str
    num_devices: int


@dataclasses.dataclass
class _Heading:
    """The lines above the numbers of bandwidthTest, as far as they were read.

    Attributes:
      devices: Number and name of each device.
      kind: The direction of the copies; "" before the first heading and after the rows.
      num_devices: The devices whose copies are summed.
      memory: The kind of the host's memory, such as "pinned".
      num_rows: The rows that were read below this heading.
    """

    devices: list[str] = dataclasses.field(default_factory=list)
    kind: str = ""
    num_devices: int = 0
    memory: str = ""
    unit: str = ""
    num_rows: int = 0


class BandwidthTest(LogFormat):
    """Copies from host to device, from device to host and within the device."""

    name = "bandwidth_test"

    needles = ("Bandwidth",)
    has_rates = False
    detected = rf"\[CUDA Bandwidth Test\]|\b{_COPY_PATTERN}"

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return every size of every copy."""
        problems = Problems()
        rows: list[_CopyRow] = []
        heading = _Heading()
        number = 1
        for line in log_lines(lines):
            number = line.number
            try:
                heading = _read_copy_line(line.text, heading, rows)
            except ValueError as e:
                problems.add(number, str(e), "bad number")
            if line.text.startswith("Result = FAIL"):
                problems.add(number, "the test says Result = FAIL")
        if heading.kind and not heading.num_rows:
            problems.add(number, f"the file ends before the numbers of {heading.kind}")
        notes = ["Device to Device counts each byte twice, as read and as written."]
        if any(row.unit == "MB/s" for row in rows):
            notes.append(
                "MB/s is left as printed. Releases that print it divide by 2**20 bytes, "
                "and some count 1024 ms as a second. It is therefore 2 to 5 % more than "
                "10**6 bytes per second. GB/s is 10**9 bytes per second."
            )
        if any(row.num_devices > 1 for row in rows):
            notes.append(
                "The bandwidth of several devices is their sum, measured one device "
                "after the other."
            )
        table = Table("Copy bandwidth (bandwidthTest)", _COPY_COLUMNS, tuple(rows))
        message = "this file contains no result of bandwidthTest"
        return make_reading(self.name, problems, message, tables=[table], notes=notes)


def _read_copy_line(text: str, heading: _Heading, rows: list[_CopyRow]) -> _Heading:
    """Read one line of bandwidthTest.

    Args:
      text: The line.
      heading: The heading above it; a line of a heading changes it.
      rows: The results; a line with numbers is appended.

    Returns:
      The heading above the next line.

    Raises:
      ValueError: If a number of the line is not valid.
    """
    if "[CUDA Bandwidth Test]" in text:
        return _Heading()
    if match := _COPY_DEVICE.fullmatch(text):
        heading.devices.append(f"{match[1]}: {match[2].strip()}")
    elif match := _COPY_KIND.fullmatch(text):
        heading = _Heading(heading.devices, match[1], int(match[2]))
        if heading.num_devices < 1:
            raise ValueError(f"expected a number of devices above 0, got {match[2]}")
    elif match := _COPY_MEMORY.fullmatch(text):
        heading.memory = match[1].lower()
        heading.unit = match[2] or heading.unit
    elif match := _COPY_UNIT.fullmatch(text):
        heading.unit = match[1]
    elif heading.kind and heading.unit and (match := _COPY_ROW.fullmatch(text)):
        heading.num_rows += 1
        row = _CopyRow(
            devices=", ".join(heading.devices) or None,
            kind=heading.kind,
            memory=heading.memory,
            size_bytes=int(parse_positive(match[1], "a size")),
            bandwidth=parse_positive(match[2], f"a bandwidth in {heading.unit}"),
            unit=heading.unit,
            num_devices=heading.num_devices,
        )
        rows.append(row)
    elif heading.num_rows and text.strip() and not text.startswith(" "):
        heading.kind = ""  # the numbers of a heading end with the next text
    return heading


@dataclasses.dataclass(frozen=True)
class LinkMatrix(Table):
    """Numbers from every device (rows) to every device (columns).

    `analysis.slow_links` compares its cells.
    """

    line: int = 0  # the line of the log that names the columns

    @property
    def is_connectivity(self) -> bool:
        """Whether a number is 1 if there is peer access, otherwise 0."""
        return "Connectivity" in self.title

    @property
    def is_time(self) -> bool:
        """Whether the numbers are microseconds; otherwise they are GB/s."""
        return "Latency" in self.title

    @property
    def kind(self) -> str:
        """The title without the mode of peer-to-peer access."""
        return " ".join(_ACCESS_MODE.sub("", self.title).split())

    def cells(self) -> dict[Link, float]:
        """Return the number of each pair of different devices."""
        cells = {}
        for device, *values in self.rows:
            for peer, value in zip(self.columns[1:], values):
                if peer != str(device):
                    cells[device, int(peer)] = value
        return cells  # type: ignore[return-value]


class PeerToPeer(LogFormat):
    """Bandwidth and latency between every two GPUs."""

    name = "p2p_bandwidth_latency"
    needles = ("P2P",)
    has_rates = False
    detected = (
        r"P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test|"
        r"\b(Uni|Bi)directional P2P=\w+ Bandwidth"
    )

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return the devices and every matrix."""
        reader = _MatrixReader()
        for line in log_lines(lines, longest=20_000):
            reader.read_line(line.number, line.text)
        reader.end()
        columns = ("Device", "Name", "PCI domain:bus:device")
        gpus = Table("GPUs", columns, tuple(reader.devices))
        matrices = reader.matrices
        return make_reading(
            self.name,
            reader.problems,
            "this file contains no matrix of bandwidths or latencies",
            tables=[gpus, *matrices] if any(matrix.rows for matrix in matrices) else [],
            notes=_list_notes(matrices),
        )


class _MatrixReader:
    """Reads the matrices of a log line by line: a title, a line of columns, and rows.

    Attributes:
      devices: Number, name and PCI address of each GPU.
      matrices: The matrices whose columns were read; their rows may be missing.
    """

    def __init__(self) -> None:
        self.problems = Problems()
        self.devices: list[tuple[int | str, ...]] = []
        self.matrices: list[LinkMatrix] = []
        self._title = ""  # the title above the line; "" if text has followed its rows
        self._expects_row = False  # whether the next line may be a row
        self._last_line = 1

    def read_line(self, number: int, text: str) -> None:
        """Read the next line of the log."""
        self._last_line = number
        if match := _GPU_LINE.fullmatch(text):
            address = f"{match[5]}:{match[3]}:{match[4]}"
            self.devices.append((int(match[1]), match[2], address))
        elif match := _MATRIX_TITLE.fullmatch(text):
            self._title = match[1]
            self._expects_row = False
        elif self._title and (match := _MATRIX_HEAD.fullmatch(text)):
            self._begin_matrix(number, match)
        elif self._expects_row and _MATRIX_ROW.fullmatch(text):
            self.matrices[-1] = _append_row(
                self.matrices[-1], text.split(), number, self.problems
            )
        elif self._expects_row and text.strip():
            self._expects_row = False
            self._title = ""

    def _begin_matrix(self, number: int, head: re.Match[str]) -> None:
        # Latencies are printed twice: by the clocks of the GPU and the CPU.
        is_clock_named = head[1] != "D\\D"
        title = f"{self._title}, {head[1]} time" if is_clock_named else self._title
        peers = [str(int(peer)) for peer in head[2].split()]
        self.matrices.append(LinkMatrix(title, ("From \\ to", *peers), (), number))
        self._expects_row = True

    def end(self) -> None:
        """Add a problem for each matrix that lacks rows, and for a title without one."""
        for matrix in self.matrices:
            size = len(matrix.columns) - 1
            if len(matrix.rows) < size:
                rows = f"{len(matrix.rows)} of {size} rows"
                reason = f"{matrix.title}: {rows}; the file is cut short"
                key = f"{matrix.title} {matrix.line}"
                self.problems.add(matrix.line, reason, key)
        matrices = self.matrices
        has_matrix = matrices and matrices[-1].title.startswith(self._title)
        if self._title and not self._expects_row and not has_matrix:
            reason = f"the file ends before the numbers of {self._title}"
            self.problems.add(self._last_line, reason)


def _append_row(
    matrix: LinkMatrix, words: Sequence[str], line: int, problems: Problems
) -> LinkMatrix:
    """Return a matrix with one more row, or unchanged if the row is not valid.

    Args:
      matrix: The matrix above the line.
      words: The words of the line: a device and its cells.
      line: The number of the line.
      problems: The reason is added if the row is not valid.
    """
    device, *cells = words
    size = len(matrix.columns) - 1
    row_title = f"{matrix.title}: row {device}"
    if len(cells) != size:
        reason = f"{row_title} has {len(cells)} of {size} cells; left out"
        problems.add(line, reason, "short row")
        return matrix
    values: list[int | float]
    try:
        if matrix.is_connectivity:
            values = [int(parse_non_negative(cell, "0 or 1")) for cell in cells]
        else:
            values = [parse_positive(cell, "a number") for cell in cells]
    except ValueError as e:
        problems.add(line, f"{row_title}: {e}; left out", "bad number")
        return matrix
    return dataclasses.replace(matrix, rows=(*matrix.rows, (int(device), *values)))


def _list_notes(matrices: Sequence[LinkMatrix]) -> list[str]:
    """Return explanations of the numbers for readers of the tables."""
    notes = [
        "GB/s is 10**9 bytes a second, us are microseconds; the diagonal is a copy within "
        "the GPU, counted as read and written.",
        "Bidirectional bandwidth is the sum of both directions.",
    ]
    if any(
        matrix.is_connectivity and 0 in matrix.cells().values() for matrix in matrices
    ):
        notes.append(
            "Pairs without peer access copy through host memory, also in the matrices "
            "called P2P=Enabled."
        )
    return notes
