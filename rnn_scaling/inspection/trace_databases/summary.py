"""Summarize a trace database in numbers.

Events are read one after another, so memory does not grow with the file. `inspect`
calls `trace_span` and then `summarize` for a part of it. Programs of users read the
result as JSON, schema `SCHEMA`: keys may be added, but never rename one.
"""

import heapq
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rnn_scaling.inspection.trace_databases import layouts
from rnn_scaling.inspection.trace_databases.database import TraceDatabase, quote
from rnn_scaling.inspection.trace_databases.layouts import (
    COPY,
    KERNEL,
    USABLE,
    EventTable,
    Layout,
)
from rnn_scaling.inspection.trace_databases.sweep import DeviceSweep

SCHEMA = "rnn_scaling.trace_db/3"
Row = dict[str, Any]
Totals = dict[tuple[object, ...], Row]
_KERNEL_FIELDS = ("name", "calls", "ns", "longest_ns", "device")
_COPY_FIELDS = (
    "device",
    "kind",
    "source",
    "target",
    "calls",
    "bytes",
    "ns",
    "whole_ns",
)


class _Event(NamedTuple):
    """An event, clipped to the window; `whole_ns` is its complete length."""

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
    """Return the first start and the last end of all usable events.

    Events of the host are included. Unusable rows of the device's tables are noted.

    Returns:
      Both in ns, or None without any event.
    """
    starts = []
    ends = []
    device_tables = [table.table for table in layout.tables]
    host_tables = [
        table for table in layouts.HOST_TABLES if db.has(table, "start", "end")
    ]
    for table in (*device_tables, *host_tables):
        sql = (
            f'SELECT min(CASE WHEN {USABLE} THEN "start" END), '
            f'max(CASE WHEN {USABLE} THEN "end" END), '
            f"sum({USABLE}), count(*) FROM {quote(table)}"
        )
        for start, end, usable, rows in db.read_rows(table, sql):
            if start is not None:
                starts.append(start)
                ends.append(end)
            faulty = rows - (usable or 0)
            if faulty and table in device_tables:
                reason = f"{faulty} of {rows} rows were left out: their start or end is not valid"
                db.note(f"{table}: {reason}")
    return (min(starts), max(ends)) if starts else None


def summarize(
    db: TraceDatabase,
    layout: Layout,
    source: str,
    span: tuple[int, int],
    window: tuple[int, int],
    largest_gaps: int,
) -> Row:
    """Return all numbers as JSON with times in ns.

    Each table is read once. Problems of reading are noted in `db`.

    Args:
      db: The database.
      layout: Its layout.
      source: Name of the file.
      span: The complete trace, in ns.
      window: The part that is read, in ns.
      largest_gaps: Number of gaps that are listed per device.
    """
    totals: dict[str, Totals] = {KERNEL: {}, COPY: {}, layouts.MEMSET: {}}
    sweeps = {gpu: DeviceSweep(largest_gaps) for gpu in _list_gpus(db, layout)}
    # An instant at the very end of the trace belongs to the window.
    end = window[1] if window[1] < span[1] else min(span[1] + 1, 2**63 - 1)
    limits = {"lo": window[0], "hi": end}
    streams = [
        _read_clipped_events(db, layout, table, limits) for table in layout.tables
    ]
    for event in heapq.merge(*streams, key=lambda event: (event.start, event.end)):
        text = event.table.read_name(event.name)
        _add_to_total(totals[event.table.kind], layout, event, text)
        # A damaged page may have hidden the device.
        if event.device not in sweeps:
            sweeps[event.device] = DeviceSweep(largest_gaps)
        _add_to_sweep(sweeps[event.device], event, text)
    devices = []
    for device, sweep in sweeps.items():
        numbers = sweep.compute_sums(window[1] - window[0])
        model = layout.models.get(device)
        devices.append({"device": device, "model": model, **numbers})
    copies = [
        {**row, "gb_per_s": _compute_gb_per_s(row)}
        for row in _sort_rows(totals[COPY], _COPY_FIELDS)
    ]
    return {
        "schema": SCHEMA,
        "source": source,
        "format": layout.schema,
        "tool": layout.tool,
        "versions": dict(layout.versions),
        "span_ns": list(span),
        "window_ns": list(window),
        "devices": devices,
        "kernels": _sort_rows(totals[KERNEL], _KERNEL_FIELDS),
        "copies": copies,
        "tables": {table: _count_rows(db, table) for table in db.columns},
        "notes": layout.notes,
        "problems": list(db.problems),
    }


def _count_rows(db: TraceDatabase, table: str) -> int | None:
    """Return the rows of a table, or None if it is too damaged to count them."""
    for (count,) in db.read_rows(table, f"SELECT count(*) FROM {quote(table)}"):
        return int(count)
    return None


def _list_gpus(db: TraceDatabase, layout: Layout) -> list[object]:
    """Return all devices of the trace by number; some may be idle in the window."""
    gpus = set()
    for table in layout.tables:
        name = quote(table.table)
        sql = f"SELECT DISTINCT {table.owner} FROM {name} WHERE {USABLE}"
        for process, device in db.read_rows(table.table, sql):
            gpus.add(layout.gpus.get((process, device), device))
    return sorted(
        gpus, key=lambda gpu: (0, gpu, "") if isinstance(gpu, int) else (1, 0, str(gpu))
    )


def _read_clipped_events(
    db: TraceDatabase, layout: Layout, table: EventTable, limits: Mapping[str, int]
) -> Iterator[_Event]:
    """Yield the events of a table in the window, clipped to it, in order of time."""
    sql = (
        'SELECT max("start", :lo), min("end", :hi), "end" - "start", '
        f"{table.owner}, {table.details} FROM {quote(table.table)} "
        f'WHERE {USABLE} AND "start" < :hi AND ("start" >= :lo OR "end" > :lo) '
        "ORDER BY 1, 2"
    )
    for row in db.read_rows(table.table, sql, limits):
        start, end, whole_ns, process, device, name, size, source, target = row
        gpu = layout.gpus.get((process, device), device)
        yield _Event(
            start,
            end=end,
            whole_ns=whole_ns,
            device=gpu,
            name=name,
            bytes=size,
            source=source,
            target=target,
            table=table,
        )


def _add_to_sweep(sweep: DeviceSweep, event: _Event, text: str) -> None:
    """Add an event to its device, with the label that gaps show."""
    kind = event.table.kind
    label = "memset"
    communicates = False
    if kind == KERNEL:
        label = text
        communicates = layouts.is_communication(text)
    elif kind == COPY:
        label = f"copy {text}"
        communicates = event.name == layouts.PEER_TO_PEER
    sweep.add(kind, event.start, event.end, label, communicates)


def _add_to_total(totals: Totals, layout: Layout, event: _Event, text: str) -> None:
    """Add an event to the total of its name.

    `bytes` and `whole_ns` include the parts of a copy outside of the window.
    """
    key = (event.device, text, event.source, event.target)
    if key not in totals:
        totals[key] = {
            "device": event.device,
            "name": text,
            "kind": text,
            "source": _find_memory_kind(layout, event.source),
            "target": _find_memory_kind(layout, event.target),
            "calls": 0,
            "ns": 0,
            "longest_ns": 0,
            "bytes": None,
            "whole_ns": 0,
        }
    total = totals[key]
    duration = event.end - event.start
    total["calls"] += 1
    total["ns"] += duration
    total["longest_ns"] = max(total["longest_ns"], duration)
    total["whole_ns"] += event.whole_ns
    if event.bytes is not None:
        total["bytes"] = event.bytes + (total["bytes"] or 0)


def _find_memory_kind(layout: Layout, kind: Any) -> str:
    return "" if kind is None else layout.memory_kinds.get(kind, f"kind {kind}")


def _compute_gb_per_s(copy: Row) -> float | None:
    """Return the rate of complete copies, or None without a size or a time."""
    if copy["bytes"] is None or copy["whole_ns"] <= 0:
        return None
    rate: float = copy["bytes"] / copy["whole_ns"]
    return rate


def _sort_rows(totals: Totals, fields: tuple[str, ...]) -> list[Row]:
    """Return these fields of all totals, the longest first."""
    ordered = sorted(
        totals.values(), key=lambda row: (-row["ns"], row["name"], str(row["device"]))
    )
    rows = []
    for row in ordered:
        rows.append({name: row[name] for name in fields})
    return rows
