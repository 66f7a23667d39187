"""What every schema of trace database is brought to: which table holds which events, and what its columns mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from rnn_scaling.inspection.trace_databases.database import TraceDatabase, quoted

LONGEST_NS = 2**53  # 104 days; nothing longer is an event, and a thousand such still add up in 64 bits
KERNEL, COPY, MEMSET = "kernel", "copy", "memset"


@dataclasses.dataclass(frozen=True)
class Events:
    """One table of events with start and end in ns; the fields are SQL expressions, NULL where it has no such column.

    what: KERNEL, COPY or MEMSET for work on a device; "api" or "range" for what the host did.
    name: an id of the layout's string table, the id of a function or of a kind, or text.
    """

    table: str
    what: str
    start: str = '"start"'
    end: str = '"end"'
    device: str = "NULL"
    process: str = "NULL"
    name: str = "NULL"
    bytes: str = "NULL"
    kind: str = "NULL"
    source: str = "NULL"
    target: str = "NULL"
    open_ended: bool = False  # an end of NULL is a range that nobody closed, no fault
    query: str = ""  # where events are pieced together from rows, the query that does it

    @property
    def relation(self) -> str:
        """What a query selects from."""
        return f"({self.query})" if self.query else quoted(self.table)

    @property
    def usable(self) -> str:
        """The condition that a row's times are whole: integers in order; CUPTI's "no timestamp", (0, 0), is none."""
        return (
            f"typeof({self.start}) = 'integer' AND typeof({self.end}) = 'integer' AND {self.end} >= {self.start} "
            f"AND {self.end} - {self.start} <= {LONGEST_NS} AND NOT ({self.start} = 0 AND {self.end} = 0)"
        )


@dataclasses.dataclass(frozen=True)
class DatabaseLayout:
    """One database in common terms.

    schema: "nsys" or "nvprof". tool: who wrote it, in words. versions: as the file states them.
    events: its event tables, those on devices first.
    name_of: (table, value of Events.name) -> text.
    device_of: (process, device) -> the number of the GPU, the same for every process.
    devices: model of each GPU by number.
    """

    schema: str
    tool: str
    versions: Mapping[str, str]
    events: tuple[Events, ...]
    name_of: Callable[[str, object], str]
    device_of: Callable[[object, object], object]
    copy_kinds: Mapping[int, str]
    memory_kinds: Mapping[int, str]
    devices: Mapping[object, str]
    notes: tuple[str, ...] = ()

    @property
    def device_events(self) -> tuple[Events, ...]:
        """The tables of work on devices."""
        return tuple(events for events in self.events if events.what in (KERNEL, COPY, MEMSET))

    def of(self, what: str) -> tuple[Events, ...]:
        """The tables of one sort of event."""
        return tuple(events for events in self.events if events.what == what)


def first_column(db: TraceDatabase, table: str, *names: str) -> str:
    """The first of the columns that the table has, as SQL; NULL where it has none: columns differ between versions."""
    return next((quoted(name) for name in names if db.has(table, name)), "NULL")


def usable_events(db: TraceDatabase, tables: list[Events]) -> tuple[Events, ...]:
    """Those of the tables that the file has, with times; of one without, that it lacks them is noted."""
    kept = []
    for events in (table for table in tables if table.table in db.columns):
        lacking = [name for name in (events.start, events.end) if name.strip('"') not in db.columns[events.table]]
        if events.start != "NULL" and not lacking:
            kept.append(events)
        elif events.table.startswith(("CUPTI_", "NVTX_")):
            db.note(f"{events.table}: has no column {' or '.join(name.strip(chr(34)) for name in lacking)}; left out")
    return tuple(kept)


def string_lookup(db: TraceDatabase, table: str, key: str) -> Callable[[object], str | None]:
    """id -> text of a string table, read as asked: the table is never loaded.

    Args:
      table: the string table; where the file has none, every text is None.
    """
    if not db.has(table, key, "value"):
        return lambda _: None
    sql = f"SELECT value FROM {quoted(table)} WHERE {quoted(key)} = :id LIMIT 1"

    def text(value: object) -> str | None:
        for (content,) in db.rows(table, sql, {"id": value}):
            return None if content is None else str(content)
        return None

    return text
