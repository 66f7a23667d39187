"""The tables of events in Nsight Systems' SQLite export and in nvprof's databases.

Exports of Nsight Systems since 2019 and databases of CUDA 5 to 12 are read. Sources:
https://docs.nvidia.com/nsight-systems/2021.5/nsys-exporter/exported_data.html; the
tables that rasolca/profiling_tools writes (scripts/nvprof_db.py); CUPTI's
cupti_activity.h (CUpti_ActivityMemcpyKind, CUpti_ActivityMemoryKind);
https://docs.nvidia.com/cupti/api/.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from rnn_scaling.inspection.trace_databases.database import TraceDatabase, quoted

KERNEL = "kernel"
COPY = "copy"
MEMSET = "memset"
MAX_NAMES = 20_000  # texts kept in memory
LONGEST_NS = 2**53  # 104 days; a longer event is a fault
# An activity without timestamps has (0, 0).
USABLE = f"""typeof("start") = 'integer' AND typeof("end") = 'integer' AND "end" >= "start"
    AND "end" - "start" <= {LONGEST_NS} AND NOT ("start" = 0 AND "end" = 0)"""

_ACTIVITY = "CUPTI_ACTIVITY_KIND_"
# Each row: table without its prefix, kind of its events, columns with their names.
_NSYS = (
    ("KERNEL", KERNEL, ("demangledName", "shortName", "mangledName")),
    ("GRAPH_TRACE", KERNEL, ("graphId",)),
    ("MEMCPY", COPY, ("copyKind",)),
    ("MEMSET", MEMSET, ()),
)
_NVPROF = (
    ("CONCURRENT_KERNEL", KERNEL, ("name",)),
    ("KERNEL", KERNEL, ("name",)),
    ("CDP_KERNEL", KERNEL, ("name",)),
    ("MEMCPY", COPY, ("copyKind",)),
    ("MEMCPY2", COPY, ()),
    ("MEMSET", MEMSET, ()),
)
# Tables of the host, which count only for the span of the trace.
HOST_TABLES = (f"{_ACTIVITY}RUNTIME", f"{_ACTIVITY}DRIVER", "NVTX_EVENTS")
_NO_KERNELS = (
    "no table of kernels: nothing ran on a GPU, or it was profiled without --trace=cuda"
)
_GRAPHS = "CUDA graphs were traced whole: each launch of one counts as one kernel (--cuda-graph-trace=node)"
COPY_KINDS = dict(
    enumerate(
        [
            "unknown",
            "HtoD",
            "DtoH",
            "HtoA",
            "AtoH",
            "AtoA",
            "AtoD",
            "DtoA",
            "DtoD",
            "HtoH",
            "PtoP",
            "UVM HtoD",
            "UVM DtoH",
            "UVM DtoD",
        ]
    )
)
MEMORY_KINDS = dict(
    enumerate(
        [
            "unknown",
            "pageable",
            "pinned",
            "device",
            "array",
            "managed",
            "device static",
            "managed static",
        ]
    )
)
# Nsight Systems counts the kinds of memory from 0, CUPTI from 1.
_NSYS_MEMORY_KINDS = {kind - 1: name for kind, name in MEMORY_KINDS.items() if kind}
_COMMUNICATION = re.compile(
    r"(?:void\s+)?(?:\w+::)*(?:nccl|rccl|msccl|nvshmem)", re.IGNORECASE
)
PEER_TO_PEER = 10  # of COPY_KINDS


@functools.lru_cache(MAX_NAMES)
def is_communication(name: str) -> bool:
    """Return whether a kernel of this name carries data between devices.

    These are the kernels of NCCL, RCCL, MSCCL and NVSHMEM.
    """
    return _COMMUNICATION.match(name) is not None


def short_name(name: str) -> str:
    """Return a mangled C++ name as its qualified identifier, other names unchanged.

    Template and call arguments are left out. Source: the Itanium C++ ABI's
    <nested-name> and <source-name>: _ZN5Eigen8internal3fooE is Eigen::internal::foo.
    """
    if not name.startswith("_Z"):
        return name
    rest = name[2:].lstrip("LK")
    nested = rest.startswith("N")
    if nested:
        rest = rest[1:].lstrip("KV")
    parts = []
    while digits := re.match(r"[1-9]\d*", rest):
        end = digits.end() + int(digits.group())
        part = rest[digits.end() : end]
        parts.append("(anonymous)" if part.startswith("_GLOBAL__N") else part)
        rest = rest[end:]
        if not nested:
            break
    return "::".join(parts) or name


@dataclasses.dataclass(frozen=True)
class EventTable:
    """A table of events with "start" and "end" in ns.

    Attributes:
      table: Its name.
      kind: KERNEL, COPY or MEMSET.
      name_of: Returns the text of a value of the column `name`.
      details: SQL for the name, the bytes, and the kinds of the memories that a copy
        reads and writes; NULL replaces a column that the table lacks.
      owner: SQL for the process and the device.
    """

    table: str
    kind: str
    name_of: Callable[[Any], str]
    details: str
    owner: str


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a database contains.

    Attributes:
      schema: "nsys" or "nvprof".
      tool: The name of the program that wrote it.
      versions: Names and versions of its parts.
      tables: The tables of events.
      memory_kinds: Names of the kinds of memory.
      models: The model of each GPU.
      gpus: (process, device) -> number of the GPU, if CUDA_VISIBLE_DEVICES numbers
        devices anew.
    """

    schema: str
    tool: str
    versions: Mapping[str, str]
    tables: tuple[EventTable, ...]
    memory_kinds: Mapping[int, str]
    models: Mapping[object, str]
    gpus: Mapping[tuple[object, object], object] = dataclasses.field(
        default_factory=dict
    )

    @property
    def notes(self) -> list[str]:
        """What a reader must know about the kernels."""
        kernels = [table.table for table in self.tables if table.kind == KERNEL]
        if not kernels:
            return [_NO_KERNELS]
        return [_GRAPHS] if f"{_ACTIVITY}GRAPH_TRACE" in kernels else []


def layout_of(db: TraceDatabase) -> Layout | None:
    """Return the layout of a database, or None if neither program wrote it."""
    if db.has("StringIds", "id", "value"):
        return _nsys(db)
    if db.has("StringTable", "_id_", "value"):
        return _nvprof(db)
    return None


def _nsys(db: TraceDatabase) -> Layout:
    text = _string_reader(db, "StringIds", "id")
    versions: dict[str, str] = {}
    named = "WHERE name LIKE '%VERSION%' ORDER BY name LIMIT 20"
    for table in ("META_DATA_EXPORT", "META_DATA_CAPTURE", "EXPORT_META_DATA"):
        for name, value in db.select(table, "name", "value", rest=named):
            versions[str(name)] = str(value)
    # The first table is of exports until 2021.1.
    models = dict(db.select("TARGET_INFO_CUDA_GPU", "deviceId", "name", rest=_FIRST))
    models |= dict(db.select("TARGET_INFO_GPU", "id", "name", rest=_FIRST))

    def name_of(table: str, value: Any) -> str:
        if table == "GRAPH_TRACE":
            return f"CUDA graph {value}"
        return value if isinstance(value, str) else text(value)

    devices = db.select("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
    return Layout(
        schema="nsys",
        tool="Nsight Systems (SQLite export)",
        versions=versions,
        tables=_event_tables(db, _NSYS, name_of),
        memory_kinds={**_NSYS_MEMORY_KINDS, 7: "unknown"},
        models=models,
        gpus={(process, cuda): gpu for process, cuda, gpu in devices},
    )


_FIRST = "ORDER BY 1 DESC"  # if a number occurs twice, its first row is used


def _nvprof(db: TraceDatabase) -> Layout:
    text = _string_reader(db, "StringTable", "_id_")
    numbers = [str(row[0]) for row in db.select("Version", "version", rest="LIMIT 5")]
    devices = db.select(f"{_ACTIVITY}DEVICE", "id", "name")
    return Layout(
        schema="nvprof",
        tool="nvprof",
        versions={"schema": ", ".join(numbers)} if db.has("Version", "version") else {},
        tables=_event_tables(db, _NVPROF, lambda _, value: short_name(text(value))),
        memory_kinds=MEMORY_KINDS,
        models={device: text(name) for device, name in devices},
    )


def _event_tables(
    db: TraceDatabase,
    rows: tuple[tuple[str, str, tuple[str, ...]], ...],
    name_of: Callable[[str, Any], str],
) -> tuple[EventTable, ...]:
    """Return the tables that the file has, and note those without times."""
    tables = []
    for short, kind, names in rows:
        table = _ACTIVITY + short
        if table not in db.columns:
            continue
        if missing := {"start", "end"} - set(db.columns[table]):
            lacking = " or ".join(sorted(missing, reverse=True))
            db.note(f"{table}: has no column {lacking}; left out")
            continue
        name = _column(db, table, *names)
        if kind == COPY:
            name = _copy_kind(db, table, name)
            reader: Callable[[Any], str] = _copy_name
        else:
            reader = functools.partial(name_of, short)
        size = _column(db, table, "bytes")
        source = _column(db, table, "srcKind")
        target = _column(db, table, "dstKind")
        process = _column(db, table, "globalPid")
        device = _column(db, table, "deviceId")
        usable_size = (
            f"CASE WHEN typeof({size}) = 'integer' AND {size} >= 0 THEN {size} END"  # noqa: E501
        )
        tables.append(
            EventTable(
                table,
                kind,
                functools.lru_cache(MAX_NAMES)(reader),
                details=f"{name}, {usable_size}, {source}, {target}",
                # A global id contains the process in bits 24 to 47.
                owner=f"(({process} >> 24) & 16777215), {device}",
            )
        )
    return tuple(tables)


def _column(db: TraceDatabase, table: str, *candidates: str) -> str:
    """Return SQL for the first of these columns that has a value."""
    present = [quoted(name) for name in candidates if db.has(table, name)]
    return f"coalesce({', '.join([*present, 'NULL'])}, NULL)"


def _copy_name(kind: Any) -> str:
    return COPY_KINDS.get(kind, f"kind {kind}")


def _copy_kind(db: TraceDatabase, table: str, kind: str) -> str:
    """Return SQL for the kind of a copy.

    A copy from device to device (8) is one between GPUs if the two devices differ.
    """
    if table.endswith("MEMCPY2"):
        return str(PEER_TO_PEER)
    if not db.has(table, "copyKind", "srcDeviceId", "dstDeviceId"):
        return kind
    return f"CASE WHEN {kind} = 8 AND srcDeviceId <> dstDeviceId THEN {PEER_TO_PEER} ELSE {kind} END"  # noqa: E501


def _string_reader(db: TraceDatabase, table: str, key: str) -> Callable[[object], str]:
    """Return a function that reads a text by its id; the table is never loaded."""
    sql = f"SELECT value FROM {table} WHERE {key} = :id LIMIT 1"

    def text(value: object) -> str:
        if value is None:
            return "(no name)"
        for (content,) in db.rows(table, sql, {"id": value}):
            if content is not None:
                return str(content)
        return f"(string {value} is missing)"

    return text
