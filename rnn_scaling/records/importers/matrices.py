"""CUDA samples: bandwidthTest and p2pBandwidthLatencyTest.

Formats: NVIDIA/cuda-samples, Samples/1_Utilities/bandwidthTest (until CUDA 12.8),
printResultsReadable (its --csv form is not read), and
Samples/5_Domain_Specific/p2pBandwidthLatencyTest, main and output*Matrix.
"""

import dataclasses
import re
import statistics
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from rnn_scaling.records.importers.reading import (
    Finding,
    FindingKind,
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

SLOWER = 0.8  # of the other direction or of other links, below which one is slow
FEW_LINKS = 0.1  # share of all links, or two, up to which those of one kind stand out
# Two matrices are two measurements of a few copies; closer rates are not a difference.
SLOWER_THAN_STAGING = 0.9
Link = tuple[int, int]  # from a device to another one

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
_ROW = re.compile(r"\s*(\d{1,4})((?:\s+\S+)+)\s*")
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

    def detect(self, text: str) -> bool:
        """Return whether a text has the title of the program or of its numbers."""
        head = rf"\[CUDA Bandwidth Test\]|\b{_COPY}"
        return "Bandwidth" in text and re.search(head, text) is not None

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
            if problems.is_over_limit(last, len(rows)):
                break
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
        nothing = "no result of bandwidthTest in this file"
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


@dataclasses.dataclass
class _Matrix:
    """Numbers from every device (rows) to every device (columns)."""

    title: str
    line: int
    devices: list[int]
    rows: list[tuple[int | float, ...]] = dataclasses.field(default_factory=list)

    @property
    def is_connectivity(self) -> bool:
        return "Connectivity" in self.title

    @property
    def is_time(self) -> bool:
        return "Latency" in self.title

    @property
    def unit(self) -> str:
        return "us" if self.is_time else "GB/s"

    @property
    def kind(self) -> str:
        """The title without the mode of peer-to-peer access."""
        return " ".join(_MODE.sub("", self.title).split())

    def cells(self) -> dict[Link, float]:
        """Return the number of each pair of different devices."""
        cells = {}
        for device, *values in self.rows:
            for peer, value in zip(self.devices, values):
                if peer != device:
                    cells[int(device), peer] = value
        return cells


class PeerToPeer(LogFormat):
    """Bandwidth and latency between every two GPUs."""

    name = "p2p_bandwidth_latency"

    def detect(self, text: str) -> bool:
        """Return whether a text has the title of the program or of a matrix."""
        head = (
            r"P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test|"
            r"\b(Uni|Bi)directional P2P=\w+ Bandwidth"
        )
        return "P2P" in text and re.search(head, text) is not None

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return the devices and every matrix."""
        problems = Problems()
        devices: list[tuple[int | str, ...]] = []
        matrices: list[_Matrix] = []
        title = ""
        last = 1
        is_open = False
        for line in log_lines(lines, longest=20_000):
            last = line.number
            if match := _DEVICE.fullmatch(line.text):
                place = f"{match[5]}:{match[3]}:{match[4]}"
                devices.append((int(match[1]), match[2], place))
            elif match := _TITLE.fullmatch(line.text):
                title = match[1]
                is_open = False
            elif title and (match := _HEAD.fullmatch(line.text)):
                # Latencies come twice: by the clock of the GPU and by that of the CPU.
                name = title if match[1] == "D\\D" else f"{title}, {match[1]} time"
                peers = [int(word) for word in match[2].split()]
                matrices.append(_Matrix(name, last, peers))
                is_open = True
            elif is_open and (match := _ROW.fullmatch(line.text)):
                _add_row(matrices[-1], match[1], match[2].split(), last, problems)
            elif is_open and line.text.strip():
                is_open = False
                title = ""
        for matrix in matrices:
            if len(matrix.rows) < len(matrix.devices):
                rows = f"{len(matrix.rows)} of {len(matrix.devices)} rows"
                reason = f"{matrix.title}: {rows}; the file is cut short"
                problems.add(matrix.line, reason, f"{matrix.title} {matrix.line}")
        has_numbers = matrices and matrices[-1].title.startswith(title)
        if title and not is_open and not has_numbers:
            problems.add(last, f"the file ends before the numbers of {title}")
        tables = [
            Table("GPUs", ("Device", "Name", "PCI domain:bus:device"), tuple(devices))
        ]
        for matrix in matrices:
            columns = ("From \\ to", *map(str, matrix.devices))
            tables.append(Table(matrix.title, columns, tuple(matrix.rows)))
        return make_reading(
            self.name,
            problems,
            "no matrix of bandwidth or latency in this file",
            tables=tables if any(matrix.rows for matrix in matrices) else [],
            notes=_notes(matrices),
            findings=[*_slower_than_staging(matrices), *_all_slow_links(matrices)],
        )


def _add_row(
    matrix: _Matrix, name: str, words: Sequence[str], line: int, problems: Problems
) -> None:
    size = len(matrix.devices)
    where = f"{matrix.title}: row {name}"
    if len(words) != size:
        reason = f"{where} has {len(words)} of {size} cells; left out"
        problems.add(line, reason, "short row")
        return
    try:
        if matrix.is_connectivity:
            numbers = [int(parse_non_negative(word, "0 or 1")) for word in words]
            matrix.rows.append((int(name), *numbers))
        else:
            values = [parse_positive(word, "a number") for word in words]
            matrix.rows.append((int(name), *values))
    except ValueError as e:
        problems.add(line, f"{where}: {e}; left out", "bad number")


def _notes(matrices: Sequence[_Matrix]) -> list[str]:
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


def _slower_than_staging(matrices: Sequence[_Matrix]) -> Iterator[Finding]:
    """Yield a finding per pair of matrices in which peer-to-peer is the slower way."""
    no_access: set[Link] = set()
    disabled: dict[str, _Matrix] = {}
    for matrix in matrices:
        if matrix.is_connectivity:
            no_access = {pair for pair, value in matrix.cells().items() if not value}
        elif "P2P=Disabled" in matrix.title:
            disabled[matrix.kind] = matrix
        elif "CPU time" in matrix.title:
            continue  # it shows how long a call takes, not the copy
        elif "P2P=Enabled" in matrix.title and matrix.kind in disabled:
            yield from _compare(disabled[matrix.kind], matrix, no_access)


def _compare(
    staged: _Matrix, direct: _Matrix, no_access: Container[Link]
) -> Iterator[Finding]:
    """Yield a finding if peer-to-peer copies are slower than staged ones.

    Args:
      staged: Numbers through the host's memory.
      direct: Numbers with peer-to-peer enabled.
      no_access: Pairs that copy through the host's memory in both.
    """
    before = staged.cells()
    speeds = {}
    for pair, value in direct.cells().items():
        if pair in before and pair not in no_access:
            speed = value / before[pair]
            speeds[pair] = 1 / speed if direct.is_time else speed
    slower = [pair for pair in speeds if speeds[pair] < SLOWER_THAN_STAGING]
    if not slower:
        return
    worst = min(slower, key=lambda pair: speeds[pair])
    values = {
        "title": direct.title,
        "count": len(slower),
        "total": len(speeds),
        "speed": statistics.median(speeds[pair] for pair in slower),
        "first": worst[0],
        "second": worst[1],
        "direct": direct.cells()[worst],
        "staged": before[worst],
        "unit": direct.unit,
    }
    yield Finding(FindingKind.P2P_SLOWER, direct.line, values)


def _all_slow_links(matrices: Sequence[_Matrix]) -> Iterator[Finding]:
    """Yield a finding for each link, or each GPU, that is slower than its like."""
    for matrix in matrices:
        if matrix.is_connectivity:
            continue
        rates = matrix.cells()
        if matrix.is_time:
            rates = {pair: 1 / value for pair, value in rates.items()}
        for kind, links, slow, usual in slow_links(rates):
            values = {
                "title": matrix.title,
                "links": links,
                "slow": 1 / slow if matrix.is_time else slow,
                "usual": 1 / usual if matrix.is_time else usual,
                "unit": matrix.unit,
            }
            yield Finding(kind, matrix.line, values)


def slow_links(
    rates: Mapping[Link, float],
) -> list[tuple[FindingKind, str, float, float]]:
    """Return kind, devices, rate and usual rate of each group of slow links.

    Machines have links of several kinds (NVLink, PCIe, another socket): one is slow if
    its other direction is faster, or if few links are slower than all others.
    """
    one_way = [
        (a, b)
        for (a, b), rate in rates.items()
        if rate < SLOWER * rates.get((b, a), rate)
    ]
    if one_way:
        return [
            (FindingKind.ONE_WAY_LINK, f"{a} to {b}", rates[a, b], rates[b, a])
            for a, b in one_way
        ]
    ordered = sorted(rates, key=lambda link: rates[link])
    slowest = ordered[:1]
    for link in ordered[1:]:
        if rates[slowest[-1]] < SLOWER * rates[link]:
            break
        slowest.append(link)
    others = ordered[len(slowest) :]
    if not others:
        return []
    slow = statistics.median(rates[link] for link in slowest)
    usual = statistics.median(rates[link] for link in others)
    if slow >= SLOWER * usual:
        return []
    shared = set.intersection(*(set(link) for link in slowest))
    num_devices = len(set().union(*rates))
    if len(shared) == 1 and len(slowest) == 2 * (num_devices - 1) and num_devices > 2:
        return [(FindingKind.SLOW_DEVICE, str(shared.pop()), slow, usual)]
    if len(slowest) > max(2, FEW_LINKS * len(rates)):
        return []
    pairs = dict.fromkeys((min(link), max(link)) for link in slowest)
    named = ", ".join(f"{a} and {b}" for a, b in pairs)
    return [(FindingKind.SLOW_LINKS, named, slow, usual)]
