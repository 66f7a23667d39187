"""nvprof's databases (`nvprof -o FILE`, also .nvvp), of CUDA 5 to 12: one table for each kind of CUPTI activity record.

Sources: the tables of such files as rasolca/profiling_tools writes them (scripts/nvprof_db.py, schema version 9), and
CUPTI's records, https://docs.nvidia.com/cuda/archive/8.0/cupti/.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rnn_scaling.inspection.trace_databases import cupti
from rnn_scaling.inspection.trace_databases.database import TraceDatabase
from rnn_scaling.inspection.trace_databases.layout import (
    COPY,
    KERNEL,
    MEMSET,
    DatabaseLayout,
    Events,
    first_column,
    string_lookup,
    usable_events,
)

STRINGS = "StringTable"
MARKER = "CUPTI_ACTIVITY_KIND_MARKER"
# A range is two rows of one id, flag 2 at its start and flag 4 at its end (CUpti_ActivityFlag); flag 1 is a mark.
RANGES = (
    f"SELECT max(CASE WHEN flags & 2 THEN name END) AS name, min(CASE WHEN flags & 2 THEN timestamp END) AS start_ns, "
    f"max(CASE WHEN flags & 4 THEN timestamp END) AS end_ns FROM {MARKER} WHERE flags & 6 GROUP BY id"
)
_CALLS = {"CUPTI_ACTIVITY_KIND_RUNTIME": cupti.RUNTIME_CALLS, "CUPTI_ACTIVITY_KIND_DRIVER": cupti.DRIVER_CALLS}


def detect(db: TraceDatabase) -> bool:
    """Whether the tables are of this tool."""
    return db.has(STRINGS, "_id_", "value")


def describe(db: TraceDatabase) -> DatabaseLayout:
    """The layout of this file, from the tables and columns that it has."""
    tables = [
        _device(db, "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", KERNEL),
        _device(db, "CUPTI_ACTIVITY_KIND_KERNEL", KERNEL),
        _device(db, "CUPTI_ACTIVITY_KIND_CDP_KERNEL", KERNEL),
        _device(db, "CUPTI_ACTIVITY_KIND_MEMCPY", COPY),
        _device(db, "CUPTI_ACTIVITY_KIND_MEMCPY2", COPY),
        _device(db, "CUPTI_ACTIVITY_KIND_MEMSET", MEMSET),
        *(Events(table, "api", name=first_column(db, table, "cbid")) for table in _CALLS),
    ]  # fmt: skip
    events = list(usable_events(db, tables))
    if db.has(MARKER, "id", "flags", "timestamp", "name"):
        events.append(Events(MARKER, "range", "start_ns", "end_ns", name="name", open_ended=True, query=RANGES))
    return DatabaseLayout(
        schema="nvprof",
        tool="nvprof",
        versions=_versions(db),
        events=tuple(events),
        name_of=_name_of(db),
        device_of=lambda process, device: device,
        copy_kinds=cupti.COPY_KINDS,
        memory_kinds=cupti.MEMORY_KINDS,
        devices=_models(db),
        notes=() if any(e.what == KERNEL for e in events) else ("no table of kernels",),
    )


def _device(db: TraceDatabase, table: str, what: str) -> Events:
    return Events(
        table, what,
        device=first_column(db, table, "deviceId"),
        name=first_column(db, table, "name"),
        bytes=first_column(db, table, "bytes"),
        kind="10" if table.endswith("MEMCPY2") else first_column(db, table, "copyKind"),
        source=first_column(db, table, "srcKind"),
        target=first_column(db, table, "dstKind"),
    )  # fmt: skip


def _name_of(db: TraceDatabase) -> Callable[[str, object], str]:
    strings = string_lookup(db, STRINGS, "_id_")

    def name(table: str, value: Any) -> str:
        if table in _CALLS:
            return _CALLS[table].get(value, f"{'cuda' if table.endswith('RUNTIME') else 'cu'} function {value}")
        text = None if value is None else strings(value)
        if text is None:
            return "(no name)" if value is None else f"(string {value} is missing)"
        return cupti.short_name(text)

    return name


def _versions(db: TraceDatabase) -> dict[str, str]:
    if not db.has("Version", "version"):
        return {}
    return {"schema": ", ".join(str(v) for (v,) in db.rows("Version", "SELECT version FROM Version LIMIT 5"))}


def _models(db: TraceDatabase) -> dict[object, str]:
    table, text = "CUPTI_ACTIVITY_KIND_DEVICE", string_lookup(db, STRINGS, "_id_")
    if not db.has(table, "id", "name"):
        return {}
    return {device: text(name) or "" for device, name in db.rows(table, f"SELECT id, name FROM {table}")}
