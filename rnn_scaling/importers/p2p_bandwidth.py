"""CUDA samples' p2pBandwidthLatencyTest: bandwidth and latency between every two GPUs.

Format: NVIDIA/cuda-samples, Samples/5_Domain_Specific/p2pBandwidthLatencyTest, main and output*Matrix.
"""

import dataclasses
import re
from collections.abc import Iterable

from rnn_scaling.files.markdown import Table
from rnn_scaling.importers import outliers
from rnn_scaling.importers.common import (
    ImportedLog,
    Problems,
    by_rank,
    detector,
    finish,
    not_negative,
    positive,
)

FORMAT = "p2p_bandwidth_latency"
detect = detector(
    r"P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test|\b(Uni|Bi)directional P2P=\w+ Bandwidth",
    "P2P",
)
_DEVICE = re.compile(
    r"Device: (\d{1,4}), (.+?), pciBusID: (\w+), pciDeviceID: (\w+), pciDomainID:\s*(\w+)\s*"
)
_TITLE = re.compile(
    r"((?:Unidirectional |Bidirectional )?P2P(?:=\w+)? .*Matrix(?: \((?:GB/s|us)\))?)\s*"
)
_HEAD = re.compile(r"\s*(D\\D|GPU|CPU)((?:\s+\d{1,4})+)\s*")
_ROW = re.compile(r"\s*(\d{1,4})((?:\s+\S+)+)\s*")


@dataclasses.dataclass
class _Matrix:
    title: str
    line: int
    devices: list[int]
    rows: list[tuple] = dataclasses.field(default_factory=list)


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Reads the devices and every matrix. Raises LogError if no matrix is there."""
    problems = Problems()
    devices: list[tuple] = []
    matrices: list[_Matrix] = []
    title, last, is_open = "", 1, False
    for last, _, text in by_rank(lines, longest=20_000):
        if match := _DEVICE.fullmatch(text):
            devices.append(
                (int(match[1]), match[2], f"{match[5]}:{match[3]}:{match[4]}")
            )
        elif match := _TITLE.fullmatch(text):
            title, is_open = match[1], False
        elif title and (match := _HEAD.fullmatch(text)):
            # The latency matrices come twice: by the GPU's clock and by the CPU's.
            name = title if match[1] == "D\\D" else f"{title}, {match[1]} time"
            matrices.append(
                _Matrix(name, last, [int(word) for word in match[2].split()])
            )
            is_open = True
        elif is_open and (match := _ROW.fullmatch(text)):
            _add_row(matrices[-1], match[1], match[2].split(), last, problems)
        elif is_open and text.strip():
            is_open, title = False, ""
    _add_cut_matrices(matrices, problems)
    if (
        title
        and not is_open
        and (not matrices or not matrices[-1].title.startswith(title))
    ):
        problems.add(last, f"the file ends before the numbers of {title}")
    tables = [
        Table("GPUs", ("Device", "Name", "PCI domain:bus:device"), tuple(devices))
    ]
    for matrix in matrices:
        tables.append(
            Table(
                matrix.title,
                ("From \\ to", *map(str, matrix.devices)),
                tuple(matrix.rows),
            )
        )
    if not any(matrix.rows for matrix in matrices):
        tables = []
    remarks = [
        sentence for matrix in matrices for sentence in _slow_links(matrix, source)
    ]
    nothing = "no matrix of bandwidth or latency in this file"
    return finish(
        FORMAT, source, (), tables, _notes(matrices), problems, nothing, remarks
    )


def _add_cut_matrices(matrices: Iterable[_Matrix], problems: Problems) -> None:
    for matrix in matrices:
        if len(matrix.rows) < len(matrix.devices):
            reason = f"{matrix.title}: {len(matrix.rows)} of {len(matrix.devices)} rows; the file is cut short"
            problems.add(matrix.line, reason, f"{matrix.title} {matrix.line}")


def _add_row(
    matrix: _Matrix, name: str, words: list[str], line: int, problems: Problems
) -> None:
    size = len(matrix.devices)
    if len(words) != size:
        problems.add(
            line,
            f"{matrix.title}: row {name} has {len(words)} of {size} cells; left out",
            "short row",
        )
        return
    is_connectivity = "Connectivity" in matrix.title
    try:
        read = not_negative if is_connectivity else positive
        values = [
            read(word, "0 or 1" if is_connectivity else "a number") for word in words
        ]
    except ValueError as e:
        problems.add(line, f"{matrix.title}: row {name}: {e}; left out", "bad number")
        return
    matrix.rows.append(
        (int(name), *(int(value) if is_connectivity else value for value in values))
    )


def _notes(matrices: list[_Matrix]) -> list[str]:
    notes = [
        "GB/s is 10**9 bytes a second, us are microseconds; the diagonal is a copy within the GPU, counted as read "
        "and written.",
        "Bidirectional bandwidth is the sum of both directions.",
    ]
    connected = [
        row
        for matrix in matrices
        if "Connectivity" in matrix.title
        for row in matrix.rows
    ]
    if any(0 in row[1:] for row in connected):
        notes.append(
            "Pairs without peer access copy through host memory, also in the matrices called P2P=Enabled."
        )
    return notes


def _slow_links(matrix: _Matrix, source: str) -> list[str]:
    """A sentence for each link, or each GPU with all its links, that is much slower than its brothers."""
    if "Connectivity" in matrix.title:
        return []
    is_time = "Latency" in matrix.title
    rates = {}
    for row in matrix.rows:
        for peer, value in zip(matrix.devices, row[1:]):
            if peer != row[0]:
                rates[row[0], peer] = 1 / value if is_time else value
    unit = "us" if is_time else "GB/s"

    def text(rate: float) -> str:
        return f"{1 / rate if is_time else rate:.4g} {unit}"

    return [
        f"{source}:{matrix.line}: {matrix.title}: {what} at {text(slow)}, {others} at about {text(usual)}"
        for what, slow, others, usual in outliers.slow_links(rates)
    ]
