"""CUDA samples' p2pBandwidthLatencyTest: bandwidth and latency between every two GPUs.

Format: NVIDIA/cuda-samples, Samples/5_Domain_Specific/p2pBandwidthLatencyTest, main and output*Matrix.
"""

import dataclasses
import re
import statistics
from collections.abc import Container, Iterable, Sequence

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
from rnn_scaling.system.files.markdown import Table

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
_MODE = re.compile(r"P2P=(?:Enabled|Disabled)|\(P2P \w+\)")
# Two matrices are two measurements of a few copies; closer rates are not a difference.
SLOWER_THAN_STAGING = 0.9
_MOST_NAMED = 4  # pairs in one sentence


@dataclasses.dataclass
class _Matrix:
    title: str
    line: int
    devices: list[int]
    rows: list[tuple] = dataclasses.field(default_factory=list)

    @property
    def is_time(self) -> bool:
        return "Latency" in self.title

    @property
    def kind(self) -> str:
        """Everything in the title except whether peer-to-peer was on."""
        return " ".join(_MODE.sub("", self.title).split())

    @property
    def is_enabled(self) -> bool | None:
        """Whether peer-to-peer was on; None if the title does not say."""
        if "P2P=Enabled" in self.title:
            return True
        return False if "P2P=Disabled" in self.title else None

    def cells(self) -> dict[outliers.Link, float]:
        """Return the number of each pair of different devices."""
        numbers = {}
        for row in self.rows:
            for peer, value in zip(self.devices, row[1:]):
                if peer != row[0]:
                    numbers[row[0], peer] = value
        return numbers


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Read the devices and every matrix.

    Raises:
      LogError: If the file has no matrix.
    """
    problems = Problems()
    devices: list[tuple] = []
    matrices: list[_Matrix] = []
    title = ""
    last = 1
    is_open = False
    for last, _, text in by_rank(lines, longest=20_000):
        if match := _DEVICE.fullmatch(text):
            devices.append(
                (int(match[1]), match[2], f"{match[5]}:{match[3]}:{match[4]}")
            )
        elif match := _TITLE.fullmatch(text):
            title = match[1]
            is_open = False
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
            is_open = False
            title = ""
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
    remarks = _slower_than_staging(matrices, source)
    for matrix in matrices:
        remarks += _slow_links(matrix, source)
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


def _slower_than_staging(matrices: Sequence[_Matrix], source: str) -> list[str]:
    """Return a sentence per pair of matrices in which peer-to-peer is the slower way."""
    no_access: set[outliers.Link] = set()
    disabled: dict[str, _Matrix] = {}
    sentences = []
    for matrix in matrices:
        if "Connectivity" in matrix.title:
            no_access = {pair for pair, value in matrix.cells().items() if not value}
        elif matrix.is_enabled is False:
            disabled[matrix.kind] = matrix
        elif "CPU time" in matrix.title:
            continue  # it shows how long a call takes, not the copy
        elif matrix.is_enabled and matrix.kind in disabled:
            sentences += _compare(disabled[matrix.kind], matrix, no_access, source)
    return sentences


def _compare(
    staged: _Matrix, direct: _Matrix, no_access: Container[outliers.Link], source: str
) -> list[str]:
    """Return a sentence if peer-to-peer copies are slower than staged ones, or none.

    Args:
      staged: Numbers through the host's memory.
      direct: Numbers with peer-to-peer enabled.
      no_access: Pairs that copy through the host's memory in both.
    """
    before = staged.cells()
    numbers = {
        pair: (before[pair], value)
        for pair, value in direct.cells().items()
        if pair in before and pair not in no_access
    }
    ratios = {}
    for pair, (staged_value, direct_value) in numbers.items():
        speed = direct_value / staged_value
        ratios[pair] = 1 / speed if direct.is_time else speed
    slower = [pair for pair in ratios if ratios[pair] < SLOWER_THAN_STAGING]
    if not slower:
        return []
    usual = statistics.median(ratios[pair] for pair in slower)
    where = "every pair"
    if len(slower) < len(numbers):
        where = f"{len(slower)} of {len(numbers)} pairs"
    unit = "us" if direct.is_time else "GB/s"
    slower.sort(key=lambda pair: ratios[pair])
    examples = [
        f"{a} to {b} {numbers[a, b][1]:g} instead of {numbers[a, b][0]:g} {unit}"
        for a, b in slower[:_MOST_NAMED]
    ]
    if len(slower) > _MOST_NAMED:
        examples.append("...")
    return [
        f"{source}:{direct.line}: {direct.title}: peer-to-peer is slower than staging "
        f"through the host's memory on {where}, at {usual:.2f} times its speed "
        f"({', '.join(examples)})"
    ]


def _slow_links(matrix: _Matrix, source: str) -> list[str]:
    """Return a sentence for each link, or each GPU, that is slower than its like."""
    if "Connectivity" in matrix.title:
        return []
    rates = matrix.cells()
    if matrix.is_time:
        rates = {pair: 1 / value for pair, value in rates.items()}
    unit = "us" if matrix.is_time else "GB/s"

    def text(rate: float) -> str:
        return f"{1 / rate if matrix.is_time else rate:.4g} {unit}"

    return [
        f"{source}:{matrix.line}: {matrix.title}: {what} at {text(slow)}, "
        f"{others} at about {text(usual)}"
        for what, slow, others, usual in outliers.slow_links(rates)
    ]
