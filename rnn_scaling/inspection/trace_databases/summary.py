"""A trace database in numbers; events are read one after another, so memory does not grow with the file."""

import heapq
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rnn_scaling.inspection.trace_databases import layouts
from rnn_scaling.inspection.trace_databases.database import TraceDatabase, quoted
from rnn_scaling.inspection.trace_databases.layouts import (
    COPY,
    KERNEL,
    MEMSET,
    USABLE,
    EventTable,
    Layout,
)
from rnn_scaling.inspection.trace_databases.sweep import DeviceSweep

SCHEMA = "rnn_scaling.trace_db/3"
Row = dict[str, Any]
_NAMED = ("name", "calls", "ns", "longest_ns")
_COPIED = ("device", "kind", "source", "target", "calls", "bytes", "ns", "whole_ns")


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
    """First start and last end of all usable events, the host's too, in ns; None without any. Notes unusable rows."""
    starts, ends = [], []
    device_tables = [table.table for table in layout.tables]
    for table in (
        *device_tables,
        *(table for table in layouts.HOST_TABLES if db.has(table, "start", "end")),
    ):
        sql = (
            f'SELECT min(CASE WHEN {USABLE} THEN "start" END), max(CASE WHEN {USABLE} THEN "end" END), '
            f"sum({USABLE}), count(*) FROM {quoted(table)}"
        )
        for start, end, usable, rows in db.rows(table, sql):
            if (faulty := rows - (usable or 0)) and table in device_tables:
                db.note(
                    f"{table}: {faulty} of {rows} rows left out: no valid start and end"
                )
            if start is not None:
                starts.append(start)
                ends.append(end)
    return (min(starts), max(ends)) if starts else None


def summarize(
    db: TraceDatabase,
    layout: Layout,
    source: str,
    span: tuple[int, int],
    window: tuple[int, int],
    largest_gaps: int,
) -> Row:
    """Every number, as JSON with times in ns. Each table is read once; what cannot be read is noted in `db`.

    Args:
      source: name of the file.
      span, window: the complete trace, and the part that is read, in ns.
      largest_gaps: how many gaps of each device are listed.
    """
    totals: dict[str, dict[tuple[object, ...], Row]] = {
        kind: {} for kind in (KERNEL, COPY, MEMSET)
    }
    sweeps = {gpu: DeviceSweep(largest_gaps) for gpu in _gpus(db, layout)}
    # An instant at the very end of the trace belongs to the window.
    limits = {
        "lo": window[0],
        "hi": window[1] if window[1] < span[1] else min(span[1] + 1, 2**63 - 1),
    }
    streams = [_clipped(db, layout, table, limits) for table in layout.tables]
    for event in heapq.merge(*streams, key=lambda event: event[:2]):  # in order of time
        kind, text = event.table.kind, event.table.name_of(event.name)
        _add(totals[kind], layout, event, text)
        is_peer_copy = kind == COPY and event.name == layouts.PEER_TO_PEER
        communicates = (
            layouts.is_communication(text) if kind == KERNEL else is_peer_copy
        )
        label = text if kind == KERNEL else f"copy {text}" if kind == COPY else "memset"
        if event.device not in sweeps:  # a damaged page hid it
            sweeps[event.device] = DeviceSweep(largest_gaps)
        sweeps[event.device].add(kind, event.start, event.end, label, communicates)
    counted = {
        table: db.rows(table, f"SELECT count(*) FROM {quoted(table)}")
        for table in db.columns
    }
    return {
        "schema": SCHEMA, "source": source, "format": layout.schema, "tool": layout.tool,
        "versions": dict(layout.versions), "span_ns": list(span), "window_ns": list(window),
        "devices": [
            {"device": device, "model": layout.models.get(device)} | sweep.numbers(window[1] - window[0])
            for device, sweep in sweeps.items()
        ],
        "kernels": _rows(totals[KERNEL], *_NAMED, "device"),
        "copies": [row | {"gb_per_s": _gb_per_s(row)} for row in _rows(totals[COPY], *_COPIED)],
        # None: rows of a table that is too damaged to count them.
        "tables": {table: next((count for (count,) in rows), None) for table, rows in counted.items()},
        "notes": layout.notes, "problems": list(db.problems),
    }  # fmt: skip


def _gpus(db: TraceDatabase, layout: Layout) -> list[object]:
    """All devices of the trace in order of their number: one that does nothing in the window is idle."""
    gpus = {
        layout.gpus.get(found, found[1])
        for table in layout.tables
        for found in db.rows(
            table.table,
            f"SELECT DISTINCT {table.owner} FROM {quoted(table.table)} WHERE {USABLE}",
        )
    }
    return sorted(
        gpus, key=lambda gpu: (0, gpu, "") if isinstance(gpu, int) else (1, 0, str(gpu))
    )


def _clipped(
    db: TraceDatabase, layout: Layout, table: EventTable, limits: Mapping[str, int]
) -> Iterator[_Event]:
    """The events of a table in the window, clipped to it, in order of time."""
    sql = (
        f'SELECT max("start", :lo), min("end", :hi), "end" - "start", {table.owner}, {table.details} '
        f'FROM {quoted(table.table)} WHERE {USABLE} AND "start" < :hi AND ("start" >= :lo OR "end" > :lo) ORDER BY 1, 2'
    )
    for start, end, whole_ns, process, device, name, size, source, target in db.rows(
        table.table, sql, limits
    ):
        gpu = layout.gpus.get((process, device), device)
        yield _Event(start, end, whole_ns, gpu, name, size, source, target, table)


def _add(
    totals: dict[tuple[object, ...], Row], layout: Layout, event: _Event, text: str
) -> None:
    """Adds an event to the others of its name; `bytes` and `whole_ns` count complete copies, also at the edges."""
    key = (event.device, text, event.source, event.target)
    total = totals.get(key)
    if total is None:
        source, target = (
            "" if m is None else layout.memory_kinds.get(m, f"kind {m}")
            for m in key[2:]
        )
        total = totals[key] = {
            "device": event.device,
            "name": text,
            "kind": text,
            "source": source,
            "target": target,
        }
        total |= {"calls": 0, "ns": 0, "longest_ns": 0, "bytes": None, "whole_ns": 0}
    spent = event.end - event.start
    total["calls"] += 1
    total["ns"] += spent
    total["longest_ns"] = max(total["longest_ns"], spent)
    total["whole_ns"] += event.whole_ns
    if event.bytes is not None:
        total["bytes"] = event.bytes + (total["bytes"] or 0)


def _gb_per_s(copy: Row) -> float | None:
    """Rate of the complete copies; None where size or time is missing."""
    return (
        copy["bytes"] / copy["whole_ns"]
        if copy["bytes"] is not None and copy["whole_ns"] > 0
        else None
    )


def _rows(totals: Mapping[tuple[object, ...], Row], *fields: str) -> list[Row]:
    """These fields of all totals, the longest first."""
    ordered = sorted(
        totals.values(), key=lambda row: (-row["ns"], row["name"], str(row["device"]))
    )
    return [{name: row[name] for name in fields} for row in ordered]
