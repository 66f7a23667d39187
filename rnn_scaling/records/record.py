"""The run record: raw seconds and words of one run with everything needed to understand them, as JSON.

Schema "rnn_scaling.run/1" is described in docs/record.md. A new field is added, an old one never changes its meaning.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

from rnn_scaling.records.files import write_text

SCHEMA = "rnn_scaling.run/1"
STATUSES = ("ok", "failed", "interrupted")


class RecordError(ValueError):
    """A file is not a run record."""


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """One run. Parts that a failed run did not reach are empty."""

    status: str
    error: dict[str, str] | None
    config: dict[str, Any]
    resolved: dict[str, Any] = dataclasses.field(default_factory=dict)
    parameters: dict[str, int] = dataclasses.field(default_factory=dict)
    batches: dict[str, Any] = dataclasses.field(default_factory=dict)
    throughput: dict[str, float] = dataclasses.field(default_factory=dict)
    steady_state: dict[str, Any] = dataclasses.field(default_factory=dict)
    phases: dict[str, float] = dataclasses.field(default_factory=dict)
    environment: dict[str, Any] = dataclasses.field(default_factory=dict)
    graph: dict[str, Any] = dataclasses.field(default_factory=dict)  # empty unless the run was traced, as `trace`
    trace: dict[str, Any] = dataclasses.field(default_factory=dict)
    schema: str = SCHEMA

    def to_json(self) -> str:
        """The record as JSON text; floats keep every digit, NaN and infinities become null."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        ordered = {"schema": fields.pop("schema"), **fields}
        return json.dumps(_finite(ordered), indent=1, allow_nan=False) + "\n"


def from_json(text: str, source: str = "record") -> RunRecord:
    """Parses a record.

    Raises:
      RecordError: with `source` and the reason, if the text is not a record of this schema.
    """
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as e:
        raise RecordError(f"{source}: not JSON ({e.msg} at line {e.lineno}); expected a run record") from e
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        got = fields.get("schema") if isinstance(fields, dict) else type(fields).__name__
        raise RecordError(f"{source}: expected schema {SCHEMA!r}, got {got!r}")
    known = {field.name for field in dataclasses.fields(RunRecord)}
    missing = {"status", "error", "config"} - fields.keys()
    if missing:
        raise RecordError(f"{source}: {', '.join(sorted(missing))} missing")
    if fields["status"] not in STATUSES:
        raise RecordError(f"{source}: expected status {', '.join(STATUSES)}, got {fields['status']!r}")
    return RunRecord(**{name: value for name, value in fields.items() if name in known})


def read(path: str | os.PathLike[str]) -> RunRecord:
    """Reads a record file.

    Raises:
      OSError: if the file cannot be read.
      RecordError: if it is not a record.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise RecordError(f"{path}: not UTF-8 text; expected a run record") from e
    return from_json(text, str(path))


def write(record: RunRecord, path: str | os.PathLike[str]) -> None:
    """Writes a record whole or not at all: a reader never sees half of one, also after a crash or on a full disk.

    Raises:
      OSError: if the folder cannot be written; what was at `path` is then still there.
    """
    write_text(record.to_json(), path)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
