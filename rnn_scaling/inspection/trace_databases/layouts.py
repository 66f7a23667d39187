"""The tables of events in Nsight Systems' SQLite export (from 2019) and in nvprof's databases (CUDA 5 to 12).

Sources: https://docs.nvidia.com/nsight-systems/2021.5/nsys-exporter/exported_data.html; the tables that
rasolca/profiling_tools writes (scripts/nvprof_db.py); CUPTI's cupti_activity.h (CUpti_ActivityMemcpyKind,
CUpti_ActivityMemoryKind); https://docs.nvidia.com/cupti/api/.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from rnn_scaling.inspection.trace_databases.database import TraceDatabase, quoted

KERNEL, COPY, MEMSET = "kernel", "copy", "memset"
MAX_NAMES = 20_000  # texts kept in memory
LONGEST_NS = 2**53  # 104 days; a longer event is a fault
# An activity without timestamps has (0, 0).
USABLE = f"""typeof("start") = 'integer' AND typeof("end") = 'integer' AND "end" >= "start"
    AND "end" - "start" <= {LONGEST_NS} AND NOT ("start" = 0 AND "end" = 0)"""

_NSYS = (
    (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        KERNEL,
        ("demangledName", "shortName", "mangledName"),
    ),
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", KERNEL, ("graphId",)),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", COPY, ("copyKind",)),
    ("CUPTI_ACTIVITY_KIND_MEMSET", MEMSET, ()),
)
_NVPROF = (
    ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", KERNEL, ("name",)),
    ("CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, ("name",)),
    ("CUPTI_ACTIVITY_KIND_CDP_KERNEL", KERNEL, ("name",)),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", COPY, ("copyKind",)),
    ("CUPTI_ACTIVITY_KIND_MEMCPY2", COPY, ()),
    ("CUPTI_ACTIVITY_KIND_MEMSET", MEMSET, ()),
)
HOST_TABLES = (
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_DRIVER",
    "NVTX_EVENTS",
)  # part of the span alone
_NO_KERNELS = (
    "no table of kernels: nothing ran on a GPU, or it was profiled without --trace=cuda"
)
_GRAPHS = "CUDA graphs were traced whole: each launch of one counts as one kernel (--cuda-graph-trace=node)"
COPY_KINDS = {
    0: "unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
    10: "PtoP", 11: "UVM HtoD", 12: "UVM DtoH", 13: "UVM DtoD",
}  # fmt: skip
MEMORY_KINDS = {
    0: "unknown", 1: "pageable", 2: "pinned", 3: "device", 4: "array", 5: "managed", 6: "device static",
    7: "managed static",
}  # fmt: skip
_COMMUNICATION = re.compile(
    r"(?:void\s+)?(?:\w+::)*(?:nccl|rccl|msccl|nvshmem)", re.IGNORECASE
)
PEER_TO_PEER = 10  # of COPY_KINDS


@functools.lru_cache(20_000)
def is_communication(name: str) -> bool:
    """Whether a kernel carries data between devices: those of NCCL and RCCL, of MSCCL and of NVSHMEM."""
    return _COMMUNICATION.match(name) is not None


def short_name(name: str) -> str:
    """A mangled C++ name as its qualified identifier, without template and call arguments; other names as they are.

    Source: the Itanium C++ ABI's <nested-name> and <source-name>: _ZN5Eigen8internal3fooE is Eigen::internal::foo.
    """
    if not name.startswith("_Z"):
        return name
    rest, parts = name[2:].lstrip("LK"), []
    nested = rest.startswith("N")
    rest = rest[1:].lstrip("KV") if nested else rest
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
    """A table of events with "start" and "end" in ns; in SQL, NULL stands for a column that it lacks."""

    table: str
    kind: str
    name_of: Callable[[Any], str]
    details: (
        str  # SQL: name, bytes, and kinds of the memories that are copied from and to
    )
    owner: str = "NULL, NULL"  # SQL: process and device


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a database contains."""

    schema: str  # "nsys" or "nvprof"; `tool` is its name
    tool: str
    versions: Mapping[str, str]
    tables: tuple[EventTable, ...]
    memory_kinds: Mapping[int, str]
    models: Mapping[object, str]
    # (process, device) -> number of the GPU, where CUDA_VISIBLE_DEVICES numbers devices anew.
    gpus: Mapping[tuple[object, object], object] = dataclasses.field(
        default_factory=dict
    )

    @property
    def notes(self) -> list[str]:
        """What a reader must know about the kernels."""
        kernels = [table.table for table in self.tables if table.kind == KERNEL]
        graphs = any(table.endswith("GRAPH_TRACE") for table in kernels)
        return [
            note
            for note, applies in ((_GRAPHS, graphs), (_NO_KERNELS, not kernels))
            if applies
        ]


def layout_of(db: TraceDatabase) -> Layout | None:
    """The layout of a database; None if it is neither of nsys nor of nvprof."""
    if db.has("StringIds", "id", "value"):
        return _nsys(db)
    if db.has("StringTable", "_id_", "value"):
        return _nvprof(db)
    return None


def _nsys(db: TraceDatabase) -> Layout:
    text = _string_reader(db, "StringIds", "id")
    versions: dict[str, str] = {}
    for table in ("META_DATA_EXPORT", "META_DATA_CAPTURE", "EXPORT_META_DATA"):
        rows = db.select(
            table,
            "name",
            "value",
            rest="WHERE name LIKE '%VERSION%' ORDER BY name LIMIT 20",
        )
        versions |= {str(name): str(value) for name, value in rows}
    models: dict[object, str] = {}
    for table, number in (
        ("TARGET_INFO_CUDA_GPU", "deviceId"),
        ("TARGET_INFO_GPU", "id"),
    ):  # the first until 2021.1
        models |= dict(db.select(table, number, "name", rest="ORDER BY 1 DESC"))

    def name_of(table: str, value: Any) -> str:
        if table.endswith("GRAPH_TRACE"):
            return f"CUDA graph {value}"
        return value if isinstance(value, str) else text(value)

    return Layout(
        schema="nsys",
        tool="Nsight Systems (SQLite export)",
        versions=versions,
        tables=_event_tables(db, _NSYS, name_of),
        # Nsight Systems counts memory kinds from 0, CUPTI from 1.
        memory_kinds={kind - 1: name for kind, name in MEMORY_KINDS.items() if kind}
        | {7: "unknown"},
        models=models,
        gpus={
            (process, cuda): gpu
            for process, cuda, gpu in db.select(
                "TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId"
            )
        },
    )


def _nvprof(db: TraceDatabase) -> Layout:
    text = _string_reader(db, "StringTable", "_id_")
    tables = _event_tables(db, _NVPROF, lambda table, value: short_name(text(value)))
    versions = {}
    if db.has("Version", "version"):
        versions = {
            "schema": ", ".join(
                str(number)
                for (number,) in db.select("Version", "version", rest="LIMIT 5")
            )
        }
    models = {
        device: text(name)
        for device, name in db.select("CUPTI_ACTIVITY_KIND_DEVICE", "id", "name")
    }
    return Layout("nvprof", "nvprof", versions, tables, MEMORY_KINDS, models)


def _event_tables(
    db: TraceDatabase,
    specifications: tuple[tuple[str, str, tuple[str, ...]], ...],
    name_of: Callable[..., str],
) -> tuple[EventTable, ...]:
    """The tables that the file has; one without times is noted."""
    tables = []
    for table, kind, names in specifications:
        if table not in db.columns:
            continue
        if lacking := [
            column for column in ("start", "end") if not db.has(table, column)
        ]:
            db.note(f"{table}: has no column {' or '.join(lacking)}; left out")
            continue

        def column(*candidates: str, table: str = table) -> str:
            present = [quoted(name) for name in candidates if db.has(table, name)]
            return f"coalesce({', '.join(present)}, NULL)" if present else "NULL"

        size, source, target = column("bytes"), column("srcKind"), column("dstKind")
        name = _copy_kind(db, table, column(*names)) if kind == COPY else column(*names)
        naming = _copy_name if kind == COPY else functools.partial(name_of, table)
        tables.append(
            EventTable(
                table,
                kind,
                functools.lru_cache(MAX_NAMES)(naming),
                f"{name}, CASE WHEN typeof({size}) = 'integer' AND {size} >= 0 THEN {size} END, {source}, {target}",
                # A global id contains the process in bits 24 to 47.
                f"(({column('globalPid')} >> 24) & 16777215), {column('deviceId')}",
            )
        )
    return tuple(tables)


def _copy_name(kind: Any) -> str:
    return COPY_KINDS.get(kind, f"kind {kind}")


def _copy_kind(db: TraceDatabase, table: str, kind: str) -> str:
    """The kind of a copy; a copy from device to device (8) is one between GPUs if the two devices differ."""
    if table.endswith("MEMCPY2"):
        return str(PEER_TO_PEER)
    if kind == "NULL" or not db.has(table, "srcDeviceId", "dstDeviceId"):
        return kind
    return f"CASE WHEN {kind} = 8 AND srcDeviceId <> dstDeviceId THEN {PEER_TO_PEER} ELSE {kind} END"


def _string_reader(db: TraceDatabase, table: str, key: str) -> Callable[[object], str]:
    """Reads a text of a string table by its id; the table is never loaded."""

    def text(value: object) -> str:
        if value is None:
            return "(no name)"
        for (content,) in db.rows(
            table, f"SELECT value FROM {table} WHERE {key} = :id LIMIT 1", {"id": value}
        ):
            if content is not None:
                return str(content)
        return f"(string {value} is missing)"

    return text
