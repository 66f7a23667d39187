"""A trace database in numbers: passes of SQL over each table and a sweep in order of time; nothing is loaded whole."""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rnn_scaling.inspection.trace_databases import cupti
from rnn_scaling.inspection.trace_databases.database import TraceDatabase, quoted
from rnn_scaling.inspection.trace_databases.layout import COPY, KERNEL, DatabaseLayout, Events
from rnn_scaling.inspection.trace_databases.sweep import DeviceSweep

EVER, FOREVER = -(2**63), 2**63 - 1
MOST_NAMES = 20_000  # of one table; the rest are added up, so that memory is bounded whatever the names


@dataclasses.dataclass(frozen=True)
class TraceWindow:
    """The time that is looked at, in ns of the database's own clock; `end` is None where it is open."""

    start: int
    end: int | None = None

    def within(self, span: tuple[int, int]) -> TraceWindow:
        """The part in which anything is known."""
        ends_inside = self.end is not None and self.end < span[1]
        return TraceWindow(max(self.start, span[0]), self.end if ends_inside else None)

    @property
    def limits(self) -> dict[str, int]:
        """Parameters of the queries below."""
        return {"lo": self.start, "hi": FOREVER if self.end is None else self.end}


@dataclasses.dataclass(frozen=True)
class NameTotal:
    """Calls of one name on one device (None: the host), clipped to the window."""

    name: str
    calls: int
    ns: int
    longest_ns: int
    device: object = None


@dataclasses.dataclass(frozen=True)
class CopyTotal:
    """Copies of one kind on one device; `bytes` and `whole_ns` are of whole copies, at the edges too."""

    device: object
    kind: str
    source: str
    target: str
    calls: int
    bytes: int | None
    ns: int
    whole_ns: int

    @property
    def gb_per_s(self) -> float | None:
        """Bytes by time of the whole copies, in GB/s; None where either is missing."""
        return self.bytes / self.whole_ns if self.bytes is not None and self.whole_ns > 0 else None


@dataclasses.dataclass(frozen=True)
class TraceSummary:
    """Everything that is reported: `span` is the whole trace, `window` what was looked at, in ns."""

    layout: DatabaseLayout
    tables: Mapping[str, int | None]
    span: tuple[int, int]
    window: tuple[int, int]
    kernels: tuple[NameTotal, ...]
    copies: tuple[CopyTotal, ...]
    api: tuple[NameTotal, ...]
    ranges: tuple[NameTotal, ...]
    sweeps: Mapping[object, DeviceSweep]
    launches: int


def _table_rows(db: TraceDatabase) -> dict[str, int | None]:
    """Rows of each table; None where the file is too damaged to count them."""
    return {
        table: next((count for (count,) in db.rows(table, f"SELECT count(*) FROM {quoted(table)}")), None)
        for table in db.columns
    }


def trace_span(db: TraceDatabase, layout: DatabaseLayout) -> tuple[int, int] | None:
    """First start and last end of all events with whole times, in ns; None where there are none. Notes the others."""
    lows, highs = [], []
    for events in layout.events:
        sql = (
            f"SELECT min(CASE WHEN {events.usable} THEN {events.start} END), max(CASE WHEN {events.usable} THEN "
            f"{events.end} END), sum({events.usable}), sum({events.end} IS NULL), count(*) FROM {events.relation}"
        )
        for low, high, usable, unclosed, rows in db.rows(events.table, sql):
            unclosed = (unclosed or 0) if events.open_ended else 0
            faulty = rows - (usable or 0) - unclosed
            if faulty:
                why = "whose times are missing, no integers, out of order or longer than 104 days"
                db.note(f"{events.table}: {faulty} of {rows} rows left out, {why}")
            if low is not None:
                lows.append(low)
                highs.append(high)
    return (min(lows), max(highs)) if lows else None


def summarize(
    db: TraceDatabase, layout: DatabaseLayout, span: tuple[int, int], window: TraceWindow, largest_gaps: int
) -> TraceSummary:
    """Reads the database once a table and once in order of time; what a fault makes unreadable is noted in `db`."""

    def by_name(what: str) -> tuple[NameTotal, ...]:
        return merged(total for events in layout.of(what) for total in _by_name(db, layout, events, window))

    api = by_name("api")
    return TraceSummary(
        layout=layout,
        tables=_table_rows(db),
        span=span,
        window=(window.start, span[1] if window.end is None else window.end),
        kernels=by_name(KERNEL),
        copies=tuple(total for events in layout.of("copy") for total in _copies(db, layout, events, window)),
        api=api,
        ranges=by_name("range"),
        sweeps=_with_idle(sweep(db, layout, window, largest_gaps), db, layout),
        launches=sum(total.calls for total in api if cupti.is_launch(total.name)),
    )


def merged(totals: Iterator[NameTotal]) -> tuple[NameTotal, ...]:
    """Totals of one device and name made one, the longest first."""
    by_name: dict[tuple[object, str], NameTotal] = {}
    for one in totals:
        key = (one.device, one.name)
        by_name[key] = _added(by_name[key], one) if key in by_name else one
    return tuple(sorted(by_name.values(), key=lambda total: (-total.ns, total.name, str(total.device))))


def _clipped(events: Events) -> tuple[str, str, str]:
    """Start and end of an event inside the window, and the condition that some of it (or its instant) is there."""
    start, end = f"max({events.start}, :lo)", f"min({events.end}, :hi)"
    inside = f"{events.start} < :hi AND ({events.start} >= :lo OR {events.end} > :lo)"
    return start, end, f"{events.usable} AND {inside}"


def _by_name(db: TraceDatabase, layout: DatabaseLayout, events: Events, window: TraceWindow) -> Iterator[NameTotal]:
    """Totals of each name on each device; of what the host does, process and device are NULL."""
    start, end, where = _clipped(events)
    sql = (
        f"SELECT {events.process}, {events.device}, {events.name}, count(*), sum({end} - {start}), "
        f"max({end} - {start}) FROM {events.relation} WHERE {where} GROUP BY 1, 2, 3 ORDER BY 5 DESC, 3"
    )
    return _totals(layout, events, db.rows(events.table, sql, window.limits))


def _totals(layout: DatabaseLayout, events: Events, rows: Iterator[tuple]) -> Iterator[NameTotal]:
    """Of (process, device, name, calls, ns, longest), the longest first: MOST_NAMES, and a device's others as one."""
    others: dict[object, NameTotal] = {}
    names: Counter[object] = Counter()
    for number, (process, device, name, calls, ns, longest) in enumerate(rows):
        gpu = None if device is None else layout.device_of(process, device)
        if number < MOST_NAMES:
            yield NameTotal(layout.name_of(events.table, name), calls, ns, longest, gpu)
        else:
            names[gpu] += 1
            rest = NameTotal("", calls, ns, longest, gpu)
            others[gpu] = _added(others[gpu], rest) if gpu in others else rest
    for gpu, rest in others.items():
        yield dataclasses.replace(rest, name=f"({names[gpu]:,} other names)")


def _added(one: NameTotal, other: NameTotal) -> NameTotal:
    calls, ns, longest = one.calls + other.calls, one.ns + other.ns, max(one.longest_ns, other.longest_ns)
    return dataclasses.replace(one, calls=calls, ns=ns, longest_ns=longest)


def _copies(db: TraceDatabase, layout: DatabaseLayout, events: Events, window: TraceWindow) -> Iterator[CopyTotal]:
    """By kind and by the memory at both ends; bytes are of whole copies, since no copy says when which byte moved."""
    start, end, where = _clipped(events)
    sizes = f"CASE WHEN typeof({events.bytes}) = 'integer' AND {events.bytes} >= 0 THEN {events.bytes} END"
    sql = (
        f"SELECT {events.process}, {events.device}, {events.kind}, {events.source}, {events.target}, count(*), "
        f"sum({sizes}), sum({end} - {start}), sum({events.end} - {events.start}) FROM {events.relation} WHERE {where} "
        f"GROUP BY 1, 2, 3, 4, 5 ORDER BY 8 DESC"
    )
    by_words: dict[tuple[object, str, str, str], CopyTotal] = {}
    for process, device, kind, source, target, calls, size, ns, whole in db.rows(events.table, sql, window.limits):
        words = (
            layout.device_of(process, device),
            layout.copy_kinds.get(kind, f"kind {kind}"),
            _memory(layout, source),
            _memory(layout, target),
        )
        old = by_words.get(words)
        if old:
            known = [one for one in (old.bytes, size) if one is not None]
            calls, ns, whole = calls + old.calls, ns + old.ns, whole + old.whole_ns
            size = sum(known) if known else None
        by_words[words] = CopyTotal(*words, calls, size, ns, whole)
    yield from by_words.values()


def _memory(layout: DatabaseLayout, kind: Any) -> str:
    return "" if kind is None else layout.memory_kinds.get(kind, f"kind {kind}")


def sweep(
    db: TraceDatabase, layout: DatabaseLayout, window: TraceWindow, largest_gaps: int
) -> dict[object, DeviceSweep]:
    """One sweep for each device over everything that ran on it, in order of time.

    The database sorts, in temporary files where a table is large; here is never more than one row of a table.
    """
    devices: dict[object, DeviceSweep] = {}
    whose: dict[tuple, object] = {}
    communicates = _Communication(layout)
    streams = [_ordered(db, events, window) for events in layout.device_events]
    for start, end, what, process, device, table, name in heapq.merge(*streams, key=_when):
        gpu = whose.get((process, device))
        if gpu is None:
            gpu = whose.setdefault((process, device), layout.device_of(process, device))
        if gpu not in devices:
            devices[gpu] = DeviceSweep(largest_gaps)
        carries = communicates(what, table, name)
        devices[gpu].add(what, start, end, (table, name), carries)
    return devices


class _Communication:
    """Says of the events of a database which carry data between devices; each name is looked up once."""

    def __init__(self, layout: DatabaseLayout) -> None:
        self._layout = layout
        self._known: dict[tuple[str, object], bool] = {}

    def __call__(self, what: str, table: str, name: object) -> bool:
        """Whether an event does."""
        if what == COPY:
            return name == cupti.PEER_TO_PEER
        if what != KERNEL:
            return False
        known = self._known.get((table, name))
        if known is None:
            if len(self._known) >= MOST_NAMES:
                self._known.clear()
            known = self._known[table, name] = cupti.is_communication(self._layout.name_of(table, name))
        return known


def _with_idle(
    sweeps: dict[object, DeviceSweep], db: TraceDatabase, layout: DatabaseLayout
) -> dict[object, DeviceSweep]:
    """The sweeps of all devices of the trace: one that did nothing in the window was idle."""
    for events in layout.device_events:
        sql = f"SELECT DISTINCT {events.process}, {events.device} FROM {events.relation} WHERE {events.usable}"
        for process, device in db.rows(events.table, sql):
            sweeps.setdefault(layout.device_of(process, device), DeviceSweep())
    return {device: sweeps[device] for device in sorted(sweeps, key=_number)}


def _number(device: object) -> tuple[int, int, str]:
    return (0, device, "") if isinstance(device, int) else (1, 0, str(device))


def _when(row: tuple) -> tuple[int, int]:
    return row[0], row[1]


def _ordered(db: TraceDatabase, events: Events, window: TraceWindow) -> Iterator[tuple]:
    start, end, where = _clipped(events)
    name = events.kind if events.what == "copy" else events.name
    sql = (
        f"SELECT {start}, {end}, '{events.what}', {events.process}, {events.device}, "
        f"'{events.table}', {name} FROM {events.relation} WHERE {where} ORDER BY 1, 2"
    )
    return db.rows(f"{events.table} in order of time", sql, window.limits)
