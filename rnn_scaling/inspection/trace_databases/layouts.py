"""The tables of events in Nsight Systems' SQLite export (from 2019).

Sources: https://docs.nvidia.com/nsight-systems/2021.5/nsys-exporter/exported_data.html;
CUPTI's cupti_activity.h (CUpti_ActivityMemcpyKind), https://docs.nvidia.com/cupti/api/.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from rnn_scaling.inspection.trace_databases.database import TraceDatabase, quoted

KERNEL, COPY, MEMSET, API, RANGE = "kernel", "copy", "memset", "api", "range"
MAX_NAMES = 20_000  # texts kept in memory
LONGEST_NS = 2**53  # 104 days; a longer event is a fault
# An activity without timestamps has (0, 0).
USABLE = f"""typeof("start") = 'integer' AND typeof("end") = 'integer' AND "end" >= "start"
    AND "end" - "start" <= {LONGEST_NS} AND NOT ("start" = 0 AND "end" = 0)"""

# CUPTI's kinds of copies; Nsight Systems counts kinds of memory from 0, CUPTI from 1.
COPY_KINDS = {
    0: "unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
    10: "PtoP", 11: "UVM HtoD", 12: "UVM DtoH", 13: "UVM DtoD",
}  # fmt: skip
MEMORY_KINDS = {
    0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device static", 6: "managed static",
    7: "unknown",
}  # fmt: skip
_LAUNCH = re.compile(r"cu(da)?(Launch(?!HostFunc)|GraphLaunch)\w*")
_COMMUNICATION = re.compile(r"(?:void\s+)?(?:\w+::)*(?:nccl|rccl|msccl|nvshmem)", re.IGNORECASE)
PEER_TO_PEER = 10  # of COPY_KINDS
_VERSION = re.compile(r"(_pt[sd][sz])?(_v\d{4,5})?$")  # of an API function: cudaLaunchKernel_ptsz_v7000
_TABLES = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, ("demangledName", "shortName", "mangledName")),
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", KERNEL, ("graphId",)),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", COPY, ("copyKind",)),
    ("CUPTI_ACTIVITY_KIND_MEMSET", MEMSET, ()),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", API, ("nameId",)),
    ("CUPTI_ACTIVITY_KIND_DRIVER", API, ("nameId",)),
    ("NVTX_EVENTS", RANGE, ("text", "textId")),
)
_NO_KERNELS = "no table of kernels: nothing ran on a GPU, or it was profiled without --trace=cuda"
_GRAPHS = "CUDA graphs were traced whole: each launch of one counts as one kernel (--cuda-graph-trace=node)"


@dataclasses.dataclass(frozen=True)
class EventTable:
    """A table of events with "start" and "end" in ns; in SQL, NULL stands for a column that it lacks."""

    table: str
    kind: str
    name_of: Callable[[Any], str]
    details: str  # SQL: name, bytes, and kinds of the memories that are copied from and to
    owner: str  # SQL: process and device


@dataclasses.dataclass(frozen=True)
class Layout:
    versions: Mapping[str, str]
    tables: tuple[EventTable, ...]
    models: Mapping[object, str]
    # (process, device) -> number of the GPU, where CUDA_VISIBLE_DEVICES numbers devices anew.
    gpus: Mapping[tuple[object, object], object]

    @property
    def notes(self) -> list[str]:
        """What a reader must know about the kernels."""
        kernels = [table.table for table in self.tables if table.kind == KERNEL]
        graphs = any(table.endswith("GRAPH_TRACE") for table in kernels)
        return [note for note, applies in ((_GRAPHS, graphs), (_NO_KERNELS, not kernels)) if applies]


def layout_of(db: TraceDatabase) -> Layout | None:
    """The layout of a database; None if it is none of Nsight Systems."""
    if not db.has("StringIds", "id", "value"):
        return None
    versions: dict[str, str] = {}
    for table in ("META_DATA_EXPORT", "META_DATA_CAPTURE", "EXPORT_META_DATA"):
        rows = db.select(table, "name", "value", rest="WHERE name LIKE '%VERSION%' ORDER BY name LIMIT 20")
        versions |= {str(name): str(value) for name, value in rows}
    models: dict[object, str] = {}
    for table, number in (("TARGET_INFO_CUDA_GPU", "deviceId"), ("TARGET_INFO_GPU", "id")):  # the first until 2021.1
        models |= dict(db.select(table, number, "name", rest="ORDER BY 1 DESC"))
    devices = db.select("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
    gpus = {(process, cuda): gpu for process, cuda, gpu in devices}
    return Layout(versions, _event_tables(db), models, gpus)


def _event_tables(db: TraceDatabase) -> tuple[EventTable, ...]:
    """The tables that the file has; one without times is noted."""
    tables = []
    for table, kind, names in _TABLES:
        if table not in db.columns:
            continue
        if lacking := [column for column in ("start", "end") if not db.has(table, column)]:
            db.note(f"{table}: has no column {' or '.join(lacking)}; left out")
            continue

        def column(*candidates: str, table: str = table) -> str:
            present = [quoted(name) for name in candidates if db.has(table, name)]
            return f"coalesce({', '.join(present)}, NULL)" if present else "NULL"

        size, source, target = column("bytes"), column("srcKind"), column("dstKind")
        name = _copy_kind(db, table, column(*names)) if kind == COPY else column(*names)
        tables.append(
            EventTable(
                table,
                kind,
                functools.lru_cache(MAX_NAMES)(functools.partial(_name_of, db, table, kind)),
                f"{name}, CASE WHEN typeof({size}) = 'integer' AND {size} >= 0 THEN {size} END, {source}, {target}",
                # A global id contains the process in bits 24 to 47.
                f"(({column('globalPid')} >> 24) & 16777215), {column('deviceId')}",
            )
        )
    return tuple(tables)


def _name_of(db: TraceDatabase, table: str, kind: str, value: Any) -> str:
    """The name of an event by what its row holds: a text, the id of one, the kind of a copy, or the id of a graph."""
    if kind == COPY:
        return COPY_KINDS.get(value, f"kind {value}")
    if table.endswith("GRAPH_TRACE"):
        return f"CUDA graph {value}"
    if isinstance(value, str):
        return value
    return _VERSION.sub("", _text(db, value)) if kind == API else _text(db, value)


def _copy_kind(db: TraceDatabase, table: str, kind: str) -> str:
    """The kind of a copy; a copy from device to device (8) is one between GPUs if the two devices differ."""
    if kind == "NULL" or not db.has(table, "srcDeviceId", "dstDeviceId"):
        return kind
    return f"CASE WHEN {kind} = 8 AND srcDeviceId <> dstDeviceId THEN {PEER_TO_PEER} ELSE {kind} END"


def _text(db: TraceDatabase, number: object) -> str:
    """The text with this id; the table of texts is never loaded."""
    if number is None:
        return "(no name)"
    for (content,) in db.rows("StringIds", "SELECT value FROM StringIds WHERE id = :id LIMIT 1", {"id": number}):
        if content is not None:
            return str(content)
    return f"(string {number} is missing)"


@functools.lru_cache(20_000)
def is_communication(name: str) -> bool:
    """Whether a kernel carries data between devices: those of NCCL and RCCL, of MSCCL and of NVSHMEM."""
    return _COMMUNICATION.match(name) is not None


def is_launch(name: str) -> bool:
    """Whether an API function starts kernels: cudaLaunch*, cuLaunch*, cudaGraphLaunch, cuGraphLaunch."""
    return _LAUNCH.fullmatch(name) is not None
