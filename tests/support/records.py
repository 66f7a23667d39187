"""The one builder of run records for tests.

Parts are given in the form of a record file and decoded like a file that is read.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.workloads import WORKLOADS
from rnn_scaling.records.decoding import build
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import PARTS, RunRecord

ERROR = {"type": "X", "message": "out of memory"}


def make_record(
    status: str = "ok",
    *,
    config: Mapping[str, Any] | None = None,
    seconds: Sequence[float] = (0.1, 1 / 3),
    items: Sequence[float] | None = None,
    warmup: int = 0,
    **parts: Any,
) -> RunRecord:
    """Return a record whose throughput follows from its batches.

    A failed run has no throughput.

    Args:
      status: The run's status.
      config: Options that differ from the defaults.
      seconds: Duration of each batch, including warm-up batches.
      items: Items of each batch; 100 per batch by default.
      warmup: Number of warm-up batches.
      parts: Parts of the record in the form of a record file, and its other fields.
        `batches` is merged with `seconds`, `items` and `warmup`.
    """
    items = [100] * len(seconds) if items is None else items
    measured = {
        "warmup": warmup,
        "measured": len(seconds) - warmup,
        "seconds": [*seconds],
        "items": [*items],
    }
    batches = {**measured, **parts.pop("batches", {})}
    error = parts.pop("error", None if status == "ok" else ERROR)
    if status == "ok":
        parts.setdefault("throughput", throughput(batches))
    workload = WORKLOADS.get((config or {}).get("model", ModelConfig.model))
    if workload:
        parts.setdefault("unit", workload.unit)
    # Other options that are resolved in real runs do not appear in reports.
    resolved = {"encoder_type": "cudnn_lstm", **(config or {})}
    empty = RunRecord(
        status,
        error and build(RunError, error),
        Options({**RunConfig().flat(), **resolved}),
    )
    return change_record(empty, batches=batches, **parts)


def throughput(batches: Mapping[str, Any]) -> dict[str, float]:
    """Return the throughput of these batches, in the form of a record file."""
    seconds, items = (
        sum(batches[name][batches["warmup"] :]) for name in ("seconds", "items")
    )
    return {"items": items, "seconds": seconds, "items_per_second": items / seconds}


def change_record(run: RunRecord, **parts: Any) -> RunRecord:
    """Return the record with other parts, given in the form of a record file.

    An empty part ({}) means that the run ended before it.
    """
    if "config" in parts:
        parts["options"] = Options(parts.pop("config"))
    made = {
        name: value if name not in PARTS else _part(name, value)
        for name, value in parts.items()
    }
    return dataclasses.replace(run, **made)


def _part(name: str, value: Any) -> Any:
    if not value:
        return next(
            field.default
            for field in dataclasses.fields(RunRecord)
            if field.name == name
        )
    return build(PARTS[name], value, name) if isinstance(value, Mapping) else value


def read_fields(run: RunRecord) -> dict[str, Any]:
    """Return the record's JSON object, which the caller may change."""
    return json.loads(run.to_json())
