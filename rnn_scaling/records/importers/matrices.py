"""CUDA samples: bandwidthTest and p2pBandwidthLatencyTest.

Formats: NVIDIA/cuda-samples, Samples/1_Utilities/bandwidthTest (until CUDA 12.8),
printResultsReadable (its --csv form is not read), and
Samples/5_Domain_Specific/p2pBandwidthLatencyTest, main and output*Matrix.

Both formats are entries of `formats`. `analysis.slow_links` reads the `LinkMatrix`
tables.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from rnn_scaling.records.importers.reading import (
    LogFormat,
    Problems,
    Reading,
    Terms,
    make_reading,
    parse_non_negative,
    parse_positive,
    read_log_lines,
)
from rnn_scaling.system.files.markdown import Table

_COPY_PATTERN = (
    r"(Host to Device|Device to Host|Device to Device) Bandwidth, (?P<devices>\d+)"
)
# The lines above the numbers of a copy, and the numbers.
_COPY_LINES = tuple(map(re.compile, (
    r"\s*Device (?P<device>\d+: .+)",
    rf"\s*{_COPY_PATTERN.replace('(', '(?P<kind>', 1)} Device\(s\).*",
    r"\s*(?P<memory>PINNED|PAGEABLE) Memory Transfers.*",
    r".*Bandwidth\((?P<unit>[MG]B/s)\).*",
    r"\s*(?P<size>\d+)\s+(?P<bandwidth>\S+)\s*",
)))  # fmt: skip
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


class BandwidthTest(LogFormat):
    """Copies from host to device, from device to host and within the device."""

    name = "bandwidth_test"

    needles = ("Bandwidth",)
    has_rates = False
    detected = rf"\[CUDA Bandwidth Test\]|\b{_COPY_PATTERN}"

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return every size of every copy."""
        problems = Problems()
        rows: list[tuple[str | int | float | None, ...]] = []
        devices: list[str] = []
        heading: dict[str, str] = {}  # the last text of each group
        for line in read_log_lines(lines):
            text = line.text
            if "[CUDA Bandwidth Test]" in text:
                devices = []
            groups: dict[str, str] = {}
            for pattern in _COPY_LINES:
                if match := pattern.fullmatch(text):
                    groups |= match.groupdict()
            if "device" in groups:
                devices.append(groups["device"].strip())
            if "kind" in groups:
                heading = {}
            heading |= groups
            try:
                if "size" in groups and "kind" in heading:
                    rows.append(_make_copy_row(", ".join(devices) or None, heading))
            except ValueError as e:
                problems.add(line.number, str(e), "bad number")
            if text.startswith("Result = FAIL"):
                problems.add(line.number, "the test says Result = FAIL")
        notes = ["Device to Device counts each byte twice, as read and as written."]
        if any("MB/s" in row for row in rows):
            notes.append(
                "MB/s is left as printed. Releases that print it divide by 2**20 "
                "bytes, and some count 1024 ms as a second. It is therefore 2 to 5 % "
                "more than 10**6 bytes per second. GB/s is 10**9 bytes per second."
            )
        if any(row[-1] != 1 for row in rows):
            notes.append(
                "The bandwidth of several devices is their sum, measured one device "
                "after the other."
            )
        table = Table("Copy bandwidth (bandwidthTest)", _COPY_COLUMNS, tuple(rows))
        message = "this file contains no result of bandwidthTest"
        return make_reading(self.name, problems, message, tables=[table], notes=notes)


def _make_copy_row(
    devices: str | None, heading: Mapping[str, str]
) -> tuple[str | int | float | None, ...]:
    """Return a row of _COPY_COLUMNS; raises ValueError if a number is not valid."""
    unit = heading.get("unit", "")
    return (
        devices,
        heading["kind"],
        heading.get("memory", "").lower(),
        int(parse_positive(heading["size"], "a size")),
        parse_positive(heading["bandwidth"], f"a bandwidth in {unit}"),
        unit,
        int(parse_positive(heading["devices"], "a number of devices")),
    )


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
        for line in read_log_lines(lines, longest=20_000):
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

    def read_line(self, number: int, text: str) -> None:
        """Read the next line of the log."""
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
        """Add a problem for each matrix that lacks rows."""
        for matrix in self.matrices:
            size = len(matrix.columns) - 1
            if len(matrix.rows) < size:
                rows = f"{len(matrix.rows)} of {size} rows"
                reason = f"{matrix.title}: {rows}; the file is cut short"
                key = f"{matrix.title} {matrix.line}"
                self.problems.add(matrix.line, reason, key)


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
        "GB/s is 10**9 bytes per second, us are microseconds; the diagonal is "
        "a copy within the GPU, counted as read and written.",
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
