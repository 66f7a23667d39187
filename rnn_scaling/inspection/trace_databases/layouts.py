"""The tables of events in Nsight Systems' SQLite export and in nvprof's databases.

Exports of Nsight Systems since 2019 and databases of CUDA 5 to 12 are read. Sources:
https://docs.nvidia.com/nsight-systems/2021.5/nsys-exporter/exported_data.html; the
tables that rasolca/profiling_tools writes (scripts/nvprof_db.py); CUPTI's
cupti_activity.h (CUpti_ActivityMemcpyKind, CUpti_ActivityMemoryKind);
https://docs.nvidia.com/cupti/api/.

`summary` knows only a `Layout`: whatever differs between formats of databases is here.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from rnn_scaling.inspection.trace_databases.database import TraceDatabase, quote

KERNEL = "kernel"
COPY = "copy"
MEMSET = "memset"
_MAX_NAMES = 20_000  # number of texts that are kept in memory
_MAX_NS = 2**53  # 104 days; a longer event is wrong
# A condition for valid times. An activity without times has (0, 0).
USABLE = f"""typeof("start") = 'integer' AND typeof("end") = 'integer' AND "end" >= "start"
    AND "end" - "start" <= {_MAX_NS} AND NOT ("start" = 0 AND "end" = 0)"""

_ACTIVITY = "CUPTI_ACTIVITY_KIND_"
# Each row has the table without its prefix, the kind of its events, and the columns
# that may contain their names.
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
# Tables of the host. They only extend the span of the trace.
HOST_TABLES = (f"{_ACTIVITY}RUNTIME", f"{_ACTIVITY}DRIVER", "NVTX_EVENTS")
_NO_KERNELS = (
    "the file has no table of kernels: nothing ran on a GPU, or it was profiled "
    "without --trace=cuda"
)
_GRAPHS = (
    "CUDA graphs were traced as a whole, so each launch of a graph counts as "
    "one kernel; --cuda-graph-trace=node traces their kernels"
)
_COPY_KINDS = dict(
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
_MEMORY_KINDS = dict(
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
# Nsight Systems numbers the kinds of memory from 0, CUPTI from 1.
_NSYS_MEMORY_KINDS = {kind - 1: name for kind, name in _MEMORY_KINDS.items() if kind}
_COMMUNICATION = re.compile(
    r"(?:void\s+)?(?:\w+::)*(?:nccl|rccl|msccl|nvshmem)", re.IGNORECASE
)
PEER_TO_PEER = 10  # of _COPY_KINDS
# Order of the rows of a dictionary: if a number occurs twice, its first row comes last
# and is kept.
_FIRST_ROW_LAST = "ORDER BY 1 DESC"


@functools.lru_cache(_MAX_NAMES)
def is_communication(name: str) -> bool:
    """Return whether a kernel of this name moves data between devices.

    These are the kernels of NCCL, RCCL, MSCCL and NVSHMEM.
    """
    return _COMMUNICATION.match(name) is not None


def shorten_name(name: str) -> str:
    """Return a mangled C++ name as its qualified identifier, other names unchanged.

    Template and call arguments are left out. Source: the Itanium C++ ABI's
    <nested-name> and <source-name>: _ZN5Eigen8internal3fooE is Eigen::internal::foo.
    """
    if not name.startswith("_Z"):
        return name
    encoded = name[2:].lstrip("LK")
    is_nested = encoded.startswith("N")
    if is_nested:
        encoded = encoded[1:].lstrip("KV")
    identifiers = []
    while digits := re.match(r"[1-9]\d*", encoded):
        end = digits.end() + int(digits.group())
        identifier = encoded[digits.end() : end]
        if identifier.startswith("_GLOBAL__N"):
            identifier = "(anonymous)"
        identifiers.append(identifier)
        encoded = encoded[end:]
        if not is_nested:
            break
    return "::".join(identifiers) or name


@dataclasses.dataclass(frozen=True)
class EventTable:
    """A table of events with "start" and "end" in ns.

    Attributes:
      table: Its name.
      kind: KERNEL, COPY or MEMSET.
      read_name: Returns the text of a value of the name column.
      details: SQL for four columns: the name, the bytes, and the kinds of the memories
        that a copy reads and writes; NULL replaces a column that the table lacks.
      owner: SQL for two columns: the process and the device.

    `summary._read_clipped_events` selects `owner` and then `details`, and unpacks them
    in this order.
    """

    table: str
    kind: str
    read_name: Callable[[Any], str]
    details: str
    owner: str


@dataclasses.dataclass(frozen=True)
class Layout:
    """The contents of a database.

    Attributes:
      schema: "nsys" or "nvprof".
      tool: The name of the program that wrote it.
      versions: Names and versions in the database.
      tables: The tables of events.
      memory_kinds: Names of the kinds of memory.
      models: The model of each GPU.
      gpus: (process, device) -> number of the GPU, if CUDA_VISIBLE_DEVICES numbers
        devices differently.
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
        """Remarks about the kernels for the reader."""
        kernels = [table.table for table in self.tables if table.kind == KERNEL]
        if not kernels:
            return [_NO_KERNELS]
        return [_GRAPHS] if f"{_ACTIVITY}GRAPH_TRACE" in kernels else []


def detect_layout(db: TraceDatabase) -> Layout | None:
    """Return the layout of a database, or None if neither program wrote it."""
    if db.has("StringIds", "id", "value"):
        return _read_nsys_layout(db)
    if db.has("StringTable", "_id_", "value"):
        return _read_nvprof_layout(db)
    return None


def _read_nsys_layout(db: TraceDatabase) -> Layout:
    """Return the layout of an export of Nsight Systems."""
    read_string = _make_string_reader(db, "StringIds", "id")
    versions: dict[str, str] = {}
    clauses = "WHERE name LIKE '%VERSION%' ORDER BY name LIMIT 20"
    for table in ("META_DATA_EXPORT", "META_DATA_CAPTURE", "EXPORT_META_DATA"):
        for name, value in db.select(table, "name", "value", clauses=clauses):
            versions[str(name)] = str(value)
    # Exports until 2021.1 have the first table.
    models = dict(
        db.select("TARGET_INFO_CUDA_GPU", "deviceId", "name", clauses=_FIRST_ROW_LAST)
    )
    models |= dict(db.select("TARGET_INFO_GPU", "id", "name", clauses=_FIRST_ROW_LAST))

    def read_name(table: str, value: Any) -> str:
        if table == "GRAPH_TRACE":
            return f"CUDA graph {value}"
        return value if isinstance(value, str) else read_string(value)

    devices = db.select("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
    return Layout(
        schema="nsys",
        tool="Nsight Systems (SQLite export)",
        versions=versions,
        tables=_find_event_tables(db, _NSYS, read_name),
        memory_kinds={**_NSYS_MEMORY_KINDS, 7: "unknown"},
        models=models,
        gpus={(process, cuda): gpu for process, cuda, gpu in devices},
    )


def _read_nvprof_layout(db: TraceDatabase) -> Layout:
    """Return the layout of a database of nvprof."""
    read_string = _make_string_reader(db, "StringTable", "_id_")
    versions = [
        str(row[0]) for row in db.select("Version", "version", clauses="LIMIT 5")
    ]
    devices = db.select(f"{_ACTIVITY}DEVICE", "id", "name")

    def read_name(_: str, value: Any) -> str:
        return shorten_name(read_string(value))

    return Layout(
        schema="nvprof",
        tool="nvprof",
        versions={"schema": ", ".join(versions)}
        if db.has("Version", "version")
        else {},
        tables=_find_event_tables(db, _NVPROF, read_name),
        memory_kinds=_MEMORY_KINDS,
        models={device: read_string(name) for device, name in devices},
    )


def _find_event_tables(
    db: TraceDatabase,
    known_tables: tuple[tuple[str, str, tuple[str, ...]], ...],
    read_name: Callable[[str, Any], str],
) -> tuple[EventTable, ...]:
    """Return the tables of the file, and note tables without times.

    Args:
      db: The database.
      known_tables: _NSYS or _NVPROF.
      read_name: Returns the name of an event, given its table in `known_tables` and the
        value of its name column.
    """
    tables = []
    for short_table, kind, name_columns in known_tables:
        table = _ACTIVITY + short_table
        if table not in db.columns:
            continue
        if missing_columns := {"start", "end"} - set(db.columns[table]):
            columns = " or ".join(sorted(missing_columns, reverse=True))
            db.note(f"{table}: has no column {columns}; left out")
            continue
        name = _make_column_sql(db, table, *name_columns)
        if kind == COPY:
            name = _copy_kind(db, table, name)
            reader: Callable[[Any], str] = _copy_name
        else:
            reader = functools.partial(read_name, short_table)
        size = _make_column_sql(db, table, "bytes")
        source = _make_column_sql(db, table, "srcKind")
        target = _make_column_sql(db, table, "dstKind")
        process = _make_column_sql(db, table, "globalPid")
        device = _make_column_sql(db, table, "deviceId")
        usable_size = (
            f"CASE WHEN typeof({size}) = 'integer' AND {size} >= 0 THEN {size} END"
        )
        tables.append(
            EventTable(
                table,
                kind,
                functools.lru_cache(_MAX_NAMES)(reader),
                details=f"{name}, {usable_size}, {source}, {target}",
                # A global id contains the process in bits 24 to 47.
                owner=f"(({process} >> 24) & 16777215), {device}",
            )
        )
    return tuple(tables)


def _make_column_sql(db: TraceDatabase, table: str, *candidates: str) -> str:
    """Return SQL for the first of these columns that has a value; NULL without any."""
    present = [quote(name) for name in candidates if db.has(table, name)]
    return f"coalesce({', '.join([*present, 'NULL'])}, NULL)"


def _copy_name(kind: Any) -> str:
    return _COPY_KINDS.get(kind, f"kind {kind}")


def _copy_kind(db: TraceDatabase, table: str, kind: str) -> str:
    """Return SQL for the kind of a copy.

    A copy from device to device (8) is one between GPUs if the two devices differ.
    """
    if table.endswith("MEMCPY2"):
        return str(PEER_TO_PEER)
    if not db.has(table, "copyKind", "srcDeviceId", "dstDeviceId"):
        return kind
    return f"CASE WHEN {kind} = 8 AND srcDeviceId <> dstDeviceId THEN {PEER_TO_PEER} ELSE {kind} END"  # noqa: E501


def _make_string_reader(
    db: TraceDatabase, table: str, key: str
) -> Callable[[object], str]:
    """Return a function that reads a text by its id; the table is never loaded."""
    sql = f"SELECT value FROM {table} WHERE {key} = :id LIMIT 1"

    def read_string(value: object) -> str:
        if value is None:
            return "(no name)"
        for (content,) in db.read_rows(table, sql, {"id": value}):
            if content is not None:
                return str(content)
        return f"(string {value} is missing)"

    return read_string
