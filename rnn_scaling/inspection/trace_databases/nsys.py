"""Nsight Systems' SQLite export (`nsys export --type=sqlite`), from 2019 on.

Sources: https://docs.nvidia.com/nsight-systems/2021.5/nsys-exporter/exported_data.html and its AnalysisGuide, "SQLite
Schema Event Values"; docs/trace-db.md names the columns that differ between versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rnn_scaling.inspection.trace_databases import cupti
from rnn_scaling.inspection.trace_databases.database import TraceDatabase, quoted
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

STRINGS = "StringIds"
# Nsight Systems counts memory kinds from 0, CUPTI from 1; used where the file has no ENUM_CUDA_MEM_KIND.
MEMORY_KINDS = {kind - 1: name for kind, name in cupti.MEMORY_KINDS.items() if kind} | {7: "unknown"}
_LABELS = (("Host", "H"), ("Device", "D"), ("Array", "A"), ("Peer", "P"), ("Unified ", "UVM "), ("-to-", "to"))


def detect(db: TraceDatabase) -> bool:
    """Whether the tables are of this tool."""
    return db.has(STRINGS, "id", "value")


def describe(db: TraceDatabase) -> DatabaseLayout:
    """The layout of this file, from the tables and columns that it has."""
    tables = [
        _device(db, "CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, name=("demangledName", "shortName", "mangledName")),
        _device(db, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", KERNEL, name=("graphId",)),
        _device(db, "CUPTI_ACTIVITY_KIND_MEMCPY", COPY),
        _device(db, "CUPTI_ACTIVITY_KIND_MEMSET", MEMSET),
        Events("CUPTI_ACTIVITY_KIND_RUNTIME", "api", name=first_column(db, "CUPTI_ACTIVITY_KIND_RUNTIME", "nameId")),
        Events("CUPTI_ACTIVITY_KIND_DRIVER", "api", name=first_column(db, "CUPTI_ACTIVITY_KIND_DRIVER", "nameId")),
        _ranges(db),
    ]  # fmt: skip
    return DatabaseLayout(
        schema="nsys",
        tool="Nsight Systems (SQLite export)",
        versions=_versions(db),
        events=usable_events(db, tables),
        name_of=_name_of(db),
        device_of=_device_of(db),
        copy_kinds=cupti.COPY_KINDS
        | {kind: _short(label) for kind, label in _enum(db, "ENUM_CUDA_MEMCPY_OPER").items()},
        memory_kinds=MEMORY_KINDS | {kind: label.lower() for kind, label in _enum(db, "ENUM_CUDA_MEM_KIND").items()},
        devices=_models(db),
        notes=_notes(db),
    )


def _copy_kind(db: TraceDatabase, table: str) -> str:
    """The kind of a copy as SQL; one from device to device (8) is between two where the devices are told and differ."""
    kind = first_column(db, table, "copyKind")
    if kind == "NULL" or not db.has(table, "srcDeviceId", "dstDeviceId"):
        return kind
    return f"CASE WHEN {kind} = 8 AND srcDeviceId <> dstDeviceId THEN {cupti.PEER_TO_PEER} ELSE {kind} END"


def _device(db: TraceDatabase, table: str, what: str, name: tuple[str, ...] = ()) -> Events:
    process = first_column(db, table, "globalPid")
    return Events(
        table, what,
        device=first_column(db, table, "deviceId"),
        # A global id holds the process in bits 24 to 47 (documentation, "Serialized process and thread identifiers").
        process="NULL" if process == "NULL" else f"(({process} >> 24) & 16777215)",
        name=first_column(db, table, *name),
        bytes=first_column(db, table, "bytes"),
        kind=_copy_kind(db, table),
        source=first_column(db, table, "srcKind"),
        target=first_column(db, table, "dstKind"),
    )  # fmt: skip


def _ranges(db: TraceDatabase) -> Events:
    """NVTX ranges; a text of its own stands in `text`, a registered one in `textId`; other events have no end."""
    text, text_id = (first_column(db, "NVTX_EVENTS", column) for column in ("text", "textId"))
    return Events("NVTX_EVENTS", "range", name=f"coalesce({text}, {text_id})", open_ended=True)


def _name_of(db: TraceDatabase) -> Callable[[str, object], str]:
    strings = string_lookup(db, STRINGS, "id")

    def name(table: str, value: Any) -> str:
        if table.endswith("GRAPH_TRACE"):
            return f"CUDA graph {value}"
        if isinstance(value, str):
            return value
        text = None if value is None else strings(value)
        if text is None:
            return "(no name)" if value is None else f"(string {value} is missing)"
        return cupti.call_name(text) if table.endswith(("RUNTIME", "DRIVER")) else text

    return name


def _device_of(db: TraceDatabase) -> Callable[[object, object], object]:
    """CUDA_VISIBLE_DEVICES numbers devices anew in each process; TARGET_INFO_CUDA_DEVICE tells which GPU is meant."""
    gpus = {}
    if db.has("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid"):
        sql = "SELECT pid, cudaId, gpuId FROM TARGET_INFO_CUDA_DEVICE"
        gpus = {(pid, cuda): gpu for pid, cuda, gpu in db.rows("TARGET_INFO_CUDA_DEVICE", sql)}
    return lambda process, device: gpus.get((process, device), device)


def _enum(db: TraceDatabase, table: str) -> dict[int, str]:
    label = first_column(db, table, "label", "name")
    if label == "NULL" or not db.has(table, "id"):
        return {}
    return {key: str(text) for key, text in db.rows(table, f"SELECT id, {label} FROM {quoted(table)}") if text}


def _short(label: str) -> str:
    """HtoD of "Host-to-Device"."""
    for long, short in _LABELS:
        label = label.replace(long, short)
    return label


def _versions(db: TraceDatabase) -> dict[str, str]:
    versions: dict[str, str] = {}
    for table in ("META_DATA_EXPORT", "META_DATA_CAPTURE", "EXPORT_META_DATA"):
        if db.has(table, "name", "value"):
            rows = db.rows(table, f"SELECT name, value FROM {table} WHERE name LIKE '%VERSION%' ORDER BY name LIMIT 20")
            versions |= {str(name): str(value) for name, value in rows}
    return versions


def _models(db: TraceDatabase) -> dict[object, str]:
    for table, number in (("TARGET_INFO_GPU", "id"), ("TARGET_INFO_CUDA_GPU", "deviceId")):  # the second until 2021.1
        if db.has(table, number, "name"):
            return dict(db.rows(table, f"SELECT {number}, name FROM {table} ORDER BY 1 DESC"))
    return {}


def _notes(db: TraceDatabase) -> tuple[str, ...]:
    notes = []
    if "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in db.columns:
        notes.append("CUDA graphs were traced whole: each launch of one counts as one kernel (--cuda-graph-trace=node)")
    kernels = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    if not any(table in db.columns for table in kernels):
        notes.append("no table of kernels: nothing ran on a GPU, or it was profiled without --trace=cuda")
    return tuple(notes)
