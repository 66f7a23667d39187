"""CUDA samples: bandwidthTest and p2pBandwidthLatencyTest.

Formats: NVIDIA/cuda-samples, Samples/1_Utilities/bandwidthTest (until CUDA 12.8),
printResultsReadable (its --csv form is not read), and
Samples/5_Domain_Specific/p2pBandwidthLatencyTest, main and output*Matrix.
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
    parse_non_negative,
    parse_positive,
)
from rnn_scaling.system.files.markdown import Table

_COPY = r"(Host to Device|Device to Host|Device to Device) Bandwidth, (\d+)"
_COPY_DEVICE = re.compile(r"\s*Device (\d+): (.+)")
_COPY_KIND = re.compile(rf"\s*{_COPY} Device\(s\).*")
_COPY_MEMORY = re.compile(
    r"\s*(PINNED|PAGEABLE) Memory Transfers(?:.*Bandwidth\(([MG]B/s)\))?.*"
)
_COPY_UNIT = re.compile(r".*Transfer Size \(Bytes\)\s+Bandwidth\(([MG]B/s)\).*")
_COPY_ROW = re.compile(r"\s*(\d+)\s+(\S+)\s*")
_COPY_COLUMNS = (
    "Device", "Copy", "Host memory", "Size (B)", "Bandwidth", "Unit", "Devices",
)  # fmt: skip
_DEVICE = re.compile(
    r"Device: (\d{1,4}), (.+?), pciBusID: (\w+), pciDeviceID: (\w+), "
    r"pciDomainID:\s*(\w+)\s*"
)
_TITLE = re.compile(
    r"((?:Unidirectional |Bidirectional )?P2P(?:=\w+)? .*Matrix(?: \((?:GB/s|us)\))?)\s*"
)
_HEAD = re.compile(r"\s*(D\\D|GPU|CPU)((?:\s+\d{1,4})+)\s*")
_ROW = re.compile(r"\s*\d{1,4}(?:\s+\S+)+\s*")
Link = tuple[int, int]  # from a device to another one
_MODE = re.compile(r"P2P=(?:Enabled|Disabled)|\(P2P \w+\)")


@dataclasses.dataclass
class _Heading:
    """The heading above the numbers of bandwidthTest."""

    devices: list[str] = dataclasses.field(default_factory=list)
    kind: str = ""
    count: int = 0
    memory: str = ""
    unit: str = ""
    num_rows: int = 0


class BandwidthTest(LogFormat):
    """Copies from host to device, from device to host and within the device."""

    name = "bandwidth_test"

    needles = ("Bandwidth",)
    has_rates = False
    detected = rf"\[CUDA Bandwidth Test\]|\b{_COPY}"

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return every size of every copy."""
        problems = Problems()
        rows: list[tuple[str | int | float | None, ...]] = []
        heading = _Heading()
        last = 1
        for line in log_lines(lines):
            last = line.number
            try:
                heading = _read_copy(line.text, heading, rows)
            except ValueError as e:
                problems.add(last, str(e), "bad number")
            if line.text.startswith("Result = FAIL"):
                problems.add(last, "the test says Result = FAIL")
        if heading.kind and not heading.num_rows:
            problems.add(last, f"the file ends before the numbers of {heading.kind}")
        notes = ["Device to Device counts each byte twice, as read and as written."]
        if any(row[5] == "MB/s" for row in rows):
            notes.append(
                "MB/s is left as printed: the releases that print it divide by 2**20 "
                "bytes, some also take 1024 ms for a second, so it is 2 to 5 % more than "
                "10**6 bytes a second; GB/s is 10**9 bytes a second."
            )
        if any(isinstance(row[6], int) and row[6] > 1 for row in rows):
            notes.append(
                "With several devices the bandwidth is their sum, measured one device "
                "after the other."
            )
        table = Table("Copy bandwidth (bandwidthTest)", _COPY_COLUMNS, tuple(rows))
        nothing = "this file contains no result of bandwidthTest"
        return make_reading(self.name, problems, nothing, tables=[table], notes=notes)


def _read_copy(
    text: str, heading: _Heading, rows: list[tuple[str | int | float | None, ...]]
) -> _Heading:
    """Return the heading behind a line, and add the line if it is a result."""
    if "[CUDA Bandwidth Test]" in text:
        return _Heading()
    if match := _COPY_DEVICE.fullmatch(text):
        heading.devices.append(f"{match[1]}: {match[2].strip()}")
    elif match := _COPY_KIND.fullmatch(text):
        heading = _Heading(heading.devices, match[1], int(match[2]))
        if heading.count < 1:
            raise ValueError(f"expected a number of devices above 0, got {match[2]}")
    elif match := _COPY_MEMORY.fullmatch(text):
        heading.memory = match[1].lower()
        heading.unit = match[2] or heading.unit
    elif match := _COPY_UNIT.fullmatch(text):
        heading.unit = match[1]
    elif heading.kind and heading.unit and (match := _COPY_ROW.fullmatch(text)):
        heading.num_rows += 1
        size = int(parse_positive(match[1], "a size"))
        rate = parse_positive(match[2], f"a bandwidth in {heading.unit}")
        copy = (", ".join(heading.devices) or None, heading.kind, heading.memory)
        rows.append((*copy, size, rate, heading.unit, heading.count))
    elif heading.num_rows and text.strip() and not text.startswith(" "):
        heading.kind = ""  # the numbers of a heading end with the next text
    return heading


@dataclasses.dataclass(frozen=True)
class LinkMatrix(Table):
    """Numbers from every device (rows) to every device (columns)."""

    line: int = 0

    @property
    def is_connectivity(self) -> bool:
        return "Connectivity" in self.title

    @property
    def is_time(self) -> bool:
        return "Latency" in self.title

    @property
    def kind(self) -> str:
        """The title without the mode of peer-to-peer access."""
        return " ".join(_MODE.sub("", self.title).split())

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
        problems = Problems()
        devices: list[tuple[int | str, ...]] = []
        matrices: list[LinkMatrix] = []
        title = ""
        last = 1
        is_open = False
        for line in log_lines(lines, longest=20_000):
            last = line.number
            if match := _DEVICE.fullmatch(line.text):
                address = f"{match[5]}:{match[3]}:{match[4]}"
                devices.append((int(match[1]), match[2], address))
            elif match := _TITLE.fullmatch(line.text):
                title = match[1]
                is_open = False
            elif title and (match := _HEAD.fullmatch(line.text)):
                # Latencies are printed twice: by the clocks of the GPU and the CPU.
                name = title if match[1] == "D\\D" else f"{title}, {match[1]} time"
                peers = map(str, map(int, match[2].split()))
                matrices.append(LinkMatrix(name, ("From \\ to", *peers), (), last))
                is_open = True
            elif is_open and (match := _ROW.fullmatch(line.text)):
                matrices[-1] = _append_row(
                    matrices[-1], line.text.split(), last, problems
                )
            elif is_open and line.text.strip():
                is_open = False
                title = ""
        for matrix in matrices:
            size = len(matrix.columns) - 1
            if len(matrix.rows) < size:
                rows = f"{len(matrix.rows)} of {size} rows"
                reason = f"{matrix.title}: {rows}; the file is cut short"
                problems.add(matrix.line, reason, f"{matrix.title} {matrix.line}")
        has_numbers = matrices and matrices[-1].title.startswith(title)
        if title and not is_open and not has_numbers:
            problems.add(last, f"the file ends before the numbers of {title}")
        columns = ("Device", "Name", "PCI domain:bus:device")
        gpus = Table("GPUs", columns, tuple(devices))
        return make_reading(
            self.name,
            problems,
            "this file contains no matrix of bandwidths or latencies",
            tables=[gpus, *matrices] if any(matrix.rows for matrix in matrices) else [],
            notes=_list_notes(matrices),
        )


def _append_row(
    matrix: LinkMatrix, words: Sequence[str], line: int, problems: Problems
) -> LinkMatrix:
    """Return a matrix with one more row, if the words of a line are one."""
    name, *cells = words
    size = len(matrix.columns) - 1
    row = f"{matrix.title}: row {name}"
    if len(cells) != size:
        reason = f"{row} has {len(cells)} of {size} cells; left out"
        problems.add(line, reason, "short row")
        return matrix
    values: list[int | float]
    try:
        if matrix.is_connectivity:
            values = [int(parse_non_negative(cell, "0 or 1")) for cell in cells]
        else:
            values = [parse_positive(cell, "a number") for cell in cells]
    except ValueError as e:
        problems.add(line, f"{row}: {e}; left out", "bad number")
        return matrix
    return dataclasses.replace(matrix, rows=(*matrix.rows, (int(name), *values)))


def _list_notes(matrices: Sequence[LinkMatrix]) -> list[str]:
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
