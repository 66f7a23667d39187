"""CUDA samples' bandwidthTest: copies host to device, device to host and within the device.

Format: NVIDIA/cuda-samples, Samples/1_Utilities/bandwidthTest (until CUDA 12.8),
printResultsReadable; its --csv form is not read.
"""

import dataclasses
import re
from collections.abc import Iterable

from rnn_scaling.importers.common import (
    ImportedLog,
    Problems,
    by_rank,
    detector,
    finish,
    positive,
)
from rnn_scaling.system.files.markdown import Table

FORMAT = "bandwidth_test"
detect = detector(
    r"\[CUDA Bandwidth Test\]|\b(Host to Device|Device to Host|Device to Device) Bandwidth, \d",
    "Bandwidth",
)
_DEVICE = re.compile(r"\s*Device (\d+): (.+)")
_KIND = re.compile(
    r"\s*(Host to Device|Device to Host|Device to Device) Bandwidth, (\d+) Device\(s\).*"
)
_MEMORY = re.compile(
    r"\s*(PINNED|PAGEABLE) Memory Transfers(?:.*Bandwidth\(([MG]B/s)\))?.*"
)  # write-combined
_UNIT = re.compile(r".*Transfer Size \(Bytes\)\s+Bandwidth\(([MG]B/s)\).*")
_ROW = re.compile(r"\s*(\d+)\s+(\S+)\s*")
COLUMNS = ("Device", "Copy", "Host memory", "Size (B)", "Bandwidth", "Unit", "Devices")


@dataclasses.dataclass
class _State:
    """Where the reader is: the run's devices, and the heading above the numbers."""

    devices: list[str] = dataclasses.field(default_factory=list)
    kind: str = ""
    count: int = 0
    memory: str = ""
    unit: str = ""
    rows_since: int = 0


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Reads every size of every copy. Raises LogError if no number is there."""
    problems = Problems()
    rows: list[tuple] = []
    state = _State()
    last = 1
    for last, _, text in by_rank(lines, longest=2000):
        try:
            _read(text, state, rows)
        except ValueError as e:
            problems.add(last, str(e), "bad number")
        if text.startswith("Result = FAIL"):
            problems.add(last, "the test says Result = FAIL")
        if problems.too_many(last, len(rows)):
            break
    if state.kind and not state.rows_since:
        problems.add(last, f"the file ends before the numbers of {state.kind}")
    table = Table("Copy bandwidth (bandwidthTest)", COLUMNS, tuple(rows))
    return finish(
        FORMAT,
        source,
        (),
        [table],
        _notes(rows),
        problems,
        "no result of bandwidthTest in this file",
    )


def _read(text: str, state: _State, rows: list[tuple]) -> None:
    """One line into `state`, or into `rows` where it is a result."""
    if "[CUDA Bandwidth Test]" in text:
        state.devices, state.kind = [], ""
    elif match := _DEVICE.fullmatch(text):
        state.devices.append(f"{match[1]}: {match[2].strip()}")
    elif match := _KIND.fullmatch(text):
        state.kind, state.count, state.memory, state.unit, state.rows_since = (
            match[1],
            int(match[2]),
            "",
            "",
            0,
        )
        if state.count < 1:
            raise ValueError(f"expected a number of devices above 0, got {match[2]}")
    elif match := _MEMORY.fullmatch(text):
        state.memory, state.unit = match[1].lower(), match[2] or state.unit
    elif match := _UNIT.fullmatch(text):
        state.unit = match[1]
    elif state.kind and state.unit and (match := _ROW.fullmatch(text)):
        state.rows_since += 1
        size, rate = (
            int(positive(match[1], "a size")),
            positive(match[2], f"a bandwidth in {state.unit}"),
        )
        rows.append(
            (
                ", ".join(state.devices) or None,
                state.kind,
                state.memory,
                size,
                rate,
                state.unit,
                state.count,
            )
        )
    elif state.rows_since and text.strip() and not text.startswith(" "):
        state.kind = ""  # a heading's numbers end with the next text


def _notes(rows: list[tuple]) -> list[str]:
    notes = ["Device to Device counts each byte twice, as read and as written."]
    if any(row[5] == "MB/s" for row in rows):
        notes.append(
            "MB/s is left as printed: the releases that print it divide by 2**20 bytes, some also take 1024 ms "
            "for a second, so it is 2 to 5 % more than 10**6 bytes a second; GB/s is 10**9 bytes a second."
        )
    if any(row[6] > 1 for row in rows):
        notes.append(
            "With several devices the bandwidth is their sum, measured one device after the other."
        )
    return notes
