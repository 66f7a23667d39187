"""A trace database in numbers; events are read one after another, so memory does not grow with the file."""

import dataclasses
import heapq
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rnn_scaling.inspection.trace_databases import cupti
from rnn_scaling.inspection.trace_databases.database import TraceDatabase, quoted
from rnn_scaling.inspection.trace_databases.layouts import API, COPY, KERNEL, MEMSET, RANGE, USABLE, EventTable, Layout
from rnn_scaling.inspection.trace_databases.sweep import DeviceSweep

_DEVICE_WORK = (KERNEL, COPY, MEMSET)


@dataclasses.dataclass
class NameTotal:
    """Calls of one name on one device (None: the host), clipped to the window."""

    name: str
    device: object = None
    calls: int = 0
    ns: int = 0
    longest_ns: int = 0


@dataclasses.dataclass
class CopyTotal:
    """Copies of one kind on one device; `bytes` and `whole_ns` count complete copies, at the edges too."""

    device: object
    kind: str
    source: str
    target: str
    calls: int = 0
    bytes: int | None = None
    ns: int = 0
    whole_ns: int = 0

    @property
    def gb_per_s(self) -> float | None:
        """Rate of the complete copies in GB/s; None where size or time is missing."""
        return self.bytes / self.whole_ns if self.bytes is not None and self.whole_ns > 0 else None


@dataclasses.dataclass(frozen=True)
class TraceSummary:
    """Everything that is reported; `span` is the complete trace, `window` the part that was read, in ns."""

    layout: Layout
    tables: Mapping[str, int | None]
    span: tuple[int, int]
    window: tuple[int, int]
    kernels: list[NameTotal]
    copies: list[CopyTotal]
    api: list[NameTotal]
    ranges: list[NameTotal]
    sweeps: Mapping[object, DeviceSweep]

    @property
    def launches(self) -> int:
        """Host calls that start kernels."""
        return sum(total.calls for total in self.api if cupti.is_launch(total.name))


class _Event(NamedTuple):
    start: int
    end: int
    whole_ns: int
    device: object
    name: Any
    bytes: int | None
    source: Any
    target: Any
    table: EventTable


def trace_span(db: TraceDatabase, layout: Layout) -> tuple[int, int] | None:
    """First start and last end of all usable events, in ns; None without any. Notes the unusable rows."""
    starts, ends = [], []
    for table in layout.tables:
        sql = (
            f'SELECT min(CASE WHEN {USABLE} THEN "start" END), max(CASE WHEN {USABLE} THEN "end" END), '
            f'sum({USABLE}), sum("end" IS NULL), count(*) FROM {table.relation}'
        )
        for start, end, usable, unclosed, rows in db.rows(table.table, sql):
            faulty = rows - (usable or 0) - ((unclosed or 0) if table.kind == RANGE else 0)  # marks and open ranges
            if faulty:
                db.note(f"{table.table}: {faulty} of {rows} rows left out: no valid start and end")
            if start is not None:
                starts.append(start)
                ends.append(end)
    return (min(starts), max(ends)) if starts else None


def summarize(
    db: TraceDatabase, layout: Layout, span: tuple[int, int], window: tuple[int, int], largest_gaps: int
) -> TraceSummary:
    """Reads each table once; what a fault makes unreadable is noted in `db`."""
    names: dict[str, dict[tuple[object, str], NameTotal]] = {KERNEL: {}, API: {}, RANGE: {}}
    copies: dict[tuple[object, str, str, str], CopyTotal] = {}
    sweeps = {gpu: DeviceSweep(largest_gaps) for gpu in _gpus(db, layout)}
    # An instant at the very end of the trace belongs to the window.
    limits = {"lo": window[0], "hi": window[1] if window[1] < span[1] else min(span[1] + 1, 2**63 - 1)}
    for event in _events(db, layout, limits):
        kind, text = event.table.kind, event.table.name_of(event.name)
        if kind == COPY:
            _add_copy(copies, layout, event, text)
        elif kind in names:
            _add_name(names[kind], event, text)
        if kind in _DEVICE_WORK:
            is_peer_copy = kind == COPY and event.name == cupti.PEER_TO_PEER
            communicates = cupti.is_communication(text) if kind == KERNEL else is_peer_copy
            label = text if kind == KERNEL else f"copy {text}" if kind == COPY else "memset"
            if event.device not in sweeps:  # a damaged page hid it
                sweeps[event.device] = DeviceSweep(largest_gaps)
            sweeps[event.device].add(kind, event.start, event.end, label, communicates)
    return TraceSummary(
        layout=layout,
        tables={table: _count(db, table) for table in db.columns},
        span=span,
        window=window,
        kernels=_longest_first(names[KERNEL]),
        copies=sorted(copies.values(), key=lambda total: -total.ns),
        api=_longest_first(names[API]),
        ranges=_longest_first(names[RANGE]),
        sweeps=sweeps,
    )


def _gpus(db: TraceDatabase, layout: Layout) -> list[object]:
    """All devices of the trace in order of their number: one that does nothing in the window is idle."""
    gpus = {
        layout.gpus.get(found, found[1])
        for table in layout.tables
        if table.kind in _DEVICE_WORK
        for found in db.rows(
            table.table, f"SELECT DISTINCT {table.process}, {table.device} FROM {table.relation} WHERE {USABLE}"
        )
    }
    return sorted(gpus, key=lambda gpu: (0, gpu, "") if isinstance(gpu, int) else (1, 0, str(gpu)))


def _events(db: TraceDatabase, layout: Layout, limits: Mapping[str, int]) -> Iterator[_Event]:
    """The events in the window, clipped to it; work on devices comes first, in order of time."""
    device_work = [table for table in layout.tables if table.kind in _DEVICE_WORK]
    streams = [_clipped(db, layout, table, limits, "ORDER BY 1, 2") for table in device_work]
    yield from heapq.merge(*streams, key=lambda event: event[:2])
    for table in layout.tables:
        if table.kind not in _DEVICE_WORK:
            yield from _clipped(db, layout, table, limits)


def _clipped(
    db: TraceDatabase, layout: Layout, table: EventTable, limits: Mapping[str, int], order: str = ""
) -> Iterator[_Event]:
    sql = (
        f'SELECT max("start", :lo), min("end", :hi), "end" - "start", {table.process}, {table.device}, {table.name}, '
        f"CASE WHEN typeof({table.bytes}) = 'integer' AND {table.bytes} >= 0 THEN {table.bytes} END, "
        f"{table.source}, {table.target} FROM {table.relation} "
        f'WHERE {USABLE} AND "start" < :hi AND ("start" >= :lo OR "end" > :lo) {order}'
    )
    for start, end, whole_ns, process, device, name, size, source, target in db.rows(table.table, sql, limits):
        gpu = layout.gpus.get((process, device), device)
        yield _Event(start, end, whole_ns, gpu, name, size, source, target, table)


def _add_name(totals: dict[tuple[object, str], NameTotal], event: _Event, text: str) -> None:
    total = totals.get((event.device, text))
    if total is None:
        total = totals[event.device, text] = NameTotal(text, event.device)
    total.calls += 1
    total.ns += event.end - event.start
    total.longest_ns = max(total.longest_ns, event.end - event.start)


def _add_copy(totals: dict[tuple[object, str, str, str], CopyTotal], layout: Layout, event: _Event, kind: str) -> None:
    memories = ["" if k is None else layout.memory_kinds.get(k, f"kind {k}") for k in (event.source, event.target)]
    key = (event.device, kind, memories[0], memories[1])
    total = totals.setdefault(key, CopyTotal(*key))
    total.calls += 1
    total.ns += event.end - event.start
    total.whole_ns += event.whole_ns
    if event.bytes is not None:
        total.bytes = event.bytes + (total.bytes or 0)


def _longest_first(totals: Mapping[tuple[object, str], NameTotal]) -> list[NameTotal]:
    return sorted(totals.values(), key=lambda total: (-total.ns, total.name, str(total.device)))


def _count(db: TraceDatabase, table: str) -> int | None:
    """Rows of a table; None where the file is too damaged to count them."""
    return next((count for (count,) in db.rows(table, f"SELECT count(*) FROM {quoted(table)}")), None)
