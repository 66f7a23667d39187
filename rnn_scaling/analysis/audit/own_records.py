"""Check the derived numbers of this suite's run records, which follow from raw ones.

`auditing` asks for files that are records; all others are tables.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.audit.finding import IMPOSSIBLE, Finding, Place
from rnn_scaling.records import record
from rnn_scaling.records.record import SCHEMA, RecordError

_SCHEMA = SCHEMA.partition("/")[0] + "/"  # the start of every version


def is_own(path: Path) -> bool:
    """Return whether a file begins like a run record."""
    with path.open("rb") as file:
        return _SCHEMA.encode() in file.read(400)


def find(path: Path) -> list[Path]:
    """Return the run records of a folder, or a file that is one.

    Raises:
      OSError: If the file cannot be read.
      RecordError: If a record is wrong, or if a folder has no records.
    """
    if not path.is_dir():
        is_record = path.suffix == ".json" and is_own(path)
        if is_record:
            record.read(path, check_derived=False)
        return [path] if is_record else []
    files = []
    for file in sorted(path.rglob("*.json")):
        with contextlib.suppress(RecordError):
            record.read(file, check_derived=False)
            files.append(file)
    if not files:
        kinds = "no documents that audit reads (docs/audit.md lists their kinds)"
        raise RecordError(
            str(path), [f"the folder contains no run records and {kinds}"]
        )
    return files


def check(files: Sequence[Path]) -> list[Finding]:
    """Return a finding for each derived number that differs from the raw ones."""
    findings = []
    for path in files:
        try:
            record.read(path)
        except RecordError as e:
            for fault in e.faults:
                place = Place(0, "", fault.split()[0], "", 0.0, 0.0)
                finding = Finding(
                    "record",
                    strength=IMPOSSIBLE,
                    source=str(path),
                    places=(place,),
                    relation=fault,
                )
                findings.append(finding)
    return findings
