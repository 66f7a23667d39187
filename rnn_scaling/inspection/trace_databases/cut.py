"""Writes the part of a trace database that overlaps a window, with all of its tables, indices and views."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from rnn_scaling.files.output_files import replacing
from rnn_scaling.inspection.trace_databases.database import (
    CACHE_KIB,
    FAULTS,
    TraceDatabase,
    TraceDbError,
    quoted,
    reason_of,
    unfinished,
)
from rnn_scaling.inspection.trace_databases.summary import EVER, Window

# What describes the machine, the capture or objects that events refer to, not a time: copied whole.
WHOLE = ("TARGET_INFO_", "META_DATA_", "ENUM_", "DIAGNOSTIC_", "CUDA_GRAPH_", "ANALYSIS_", "EXPORT_")
# (table, column, table of events, its column): rows that belong to an event go with it.
BELONGS = (
    ("CUDA_CALLCHAINS", "id", "CUPTI_ACTIVITY_KIND_RUNTIME", "callchainId"),
    ("OSRT_CALLCHAINS", "id", "OSRT_API", "callchainId"),
    ("SAMPLING_CALLCHAINS", "id", "COMPOSITE_EVENTS", "id"),
    ("CUPTI_ACTIVITY_KIND_MARKER_DATA", "id", "CUPTI_ACTIVITY_KIND_MARKER", "id"),
)
MARKER = "CUPTI_ACTIVITY_KIND_MARKER"
# NVTX_EVENTS.eventType of categories, thread names and domains: they name what ranges refer to, at any time.
MARK = 34  # an instant, whose end is NULL as that of an open range is
NAMING = "(33, 37, 39, 75, 76)"
STEPS = 100_000  # of SQLite's virtual machine between two looks for a signal: milliseconds


@dataclasses.dataclass(frozen=True)
class Cut:
    """What was written: rows of each table, and the sizes of both files in bytes."""

    rows: dict[str, int]
    bytes: int
    bytes_before: int


def write(db: TraceDatabase, window: Window, output: Path, force: bool = False) -> Cut:
    """Writes the cut whole or not at all. A row that straddles an edge of the window is kept as it is.

    Raises:
      TraceDbError: if `output` is the database itself, or exists and `force` is not set, or the schema cannot be made.
      OSError: if it cannot be written.
      KeyboardInterrupt: if a signal ended it.
    """
    check(db.file, output, force)
    with _signals() as came:
        try:
            return _write(db, window, output, force, came)
        except FAULTS as e:
            raise KeyboardInterrupt if came else TraceDbError(output, reason_of(e)) from None


def _write(db: TraceDatabase, window: Window, output: Path, force: bool, came: Sequence[int]) -> Cut:
    with replacing(output) as part:
        with contextlib.closing(sqlite3.connect(part.absolute().as_uri(), uri=True, isolation_level=None)) as out:
            out.set_progress_handler(lambda: bool(came), STEPS)
            rows = _fill(db, out, window)
        size = part.stat().st_size
        check(db.file, output, force)  # again: writing takes a while
        if came:
            raise KeyboardInterrupt
    return Cut(rows, size, db.file.stat().st_size)


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects what asks the process to end, for the statement that runs to see: nothing half may stay behind."""
    came: list[int] = []
    asked = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
             if signal.getsignal(number) is not signal.SIG_IGN]  # fmt: skip
    before = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in asked}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check(file: Path, output: Path, force: bool) -> None:
    """Refuses an output that would destroy something.

    Raises:
      TraceDbError: with the reason.
    """
    if output.exists() and output.samefile(file):
        raise TraceDbError(output, "is the database itself; the cut needs another name")
    if output.is_symlink():
        raise TraceDbError(output, "is a link, and nothing is written through links; remove it")
    if output.is_dir():
        raise TraceDbError(output, "is a directory; --output takes the name of a file")
    if output.exists() and not output.is_file():
        raise TraceDbError(output, "is not a regular file; --output takes the name of a file")
    for beside, kind in unfinished(Path(os.path.realpath(output))):
        raise TraceDbError(output, f"has an unfinished {kind} ({beside.name}), which would change the cut; remove it")
    if output.exists() and not force:
        raise TraceDbError(output, "exists; --force replaces it")
    if not output.absolute().parent.is_dir():
        raise TraceDbError(output, "its directory does not exist")


def _fill(db: TraceDatabase, out: sqlite3.Connection, window: Window) -> dict[str, int]:
    (encoding,) = db.connection.execute("PRAGMA encoding").fetchone()
    out.execute(f"PRAGMA encoding = {quoted(encoding)}")
    for name in ("page_size", "user_version", "application_id"):
        (value,) = db.connection.execute(f"PRAGMA {name}").fetchone()
        out.execute(f"PRAGMA {name} = {int(value)}")
    for pragma in (f"cache_size = -{CACHE_KIB}", "temp_store = FILE", "journal_mode = MEMORY", "synchronous = OFF"):
        out.execute(f"PRAGMA {pragma}")
    out.execute("ATTACH DATABASE ? AS source", (db.uri,))
    _make(db, out, "table")
    made = {name for (name,) in out.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")}
    children = {child for child, *_ in BELONGS}
    rows = {
        table: _copy(db, out, table, window) for table in sorted(made & set(db.columns), key=lambda t: t in children)
    }
    if "sqlite_sequence" in made:
        out.execute("DELETE FROM main.sqlite_sequence")
        out.execute("INSERT INTO main.sqlite_sequence SELECT * FROM source.sqlite_sequence")
    for kind in ("index", "view", "trigger"):  # after the rows: faster, and no trigger fires
        _make(db, out, kind)
    out.execute("DETACH DATABASE source")
    return rows


def _make(db: TraceDatabase, out: sqlite3.Connection, kind: str) -> None:
    """Makes the tables, indices, views or triggers; virtual tables need their module, are left out and noted."""
    sql = "SELECT name, sql FROM sqlite_master WHERE type = ? AND sql IS NOT NULL AND substr(name, 1, 7) <> 'sqlite_'"
    for name, statement in db.connection.execute(sql, (kind,)).fetchall():
        if statement.upper().startswith("CREATE VIRTUAL"):
            db.note(f"{name}: a virtual table; left out of the cut")
            continue
        out.execute(statement)


def _copy(db: TraceDatabase, out: sqlite3.Connection, table: str, window: Window) -> int:
    """Copies the rows that overlap the window; returns how many. A damaged table stays empty, which is noted."""
    columns = ", ".join(quoted(name) for name in db.columns[table])
    where = "1" if (window.start, window.end) == (EVER, None) else condition(db, table)
    limits = window.limits if ":lo" in where or ":hi" in where else {}
    sql = f"INSERT INTO main.{quoted(table)} ({columns}) SELECT {columns} FROM source.{quoted(table)} WHERE {where}"
    try:
        return out.execute(sql, limits).rowcount
    except (sqlite3.DatabaseError, UnicodeDecodeError) as e:
        if not isinstance(e, (sqlite3.IntegrityError, UnicodeDecodeError)) and "malformed" not in str(e):
            raise
        db.note(f"{table}: {reason_of(e)}; left out of the cut")
        return 0


def condition(db: TraceDatabase, table: str) -> str:
    """Which rows of a table belong to the window :lo to :hi, as SQL; "1" for all of them."""
    if table.startswith(WHOLE):
        return "1"
    for child, column, parent, parent_column in BELONGS:
        if table == child and db.has(child, column) and db.has(parent, parent_column):
            return f"{quoted(column)} IN (SELECT {quoted(parent_column)} FROM main.{quoted(parent)})"
    if table == MARKER and db.has(MARKER, "id", "flags", "timestamp"):
        ranges = (
            f"SELECT id, min(CASE WHEN flags & 2 THEN timestamp END) AS t0, "
            f"max(CASE WHEN flags & 4 THEN timestamp END) AS t1 FROM source.{MARKER} WHERE flags & 6 GROUP BY id"
        )
        inside = f"id IN (SELECT id FROM ({ranges}) WHERE {_overlaps('t0', 't1')})"
        return f"CASE WHEN flags & 6 THEN {inside} ELSE {_at('timestamp')} END"
    if db.has(table, "start", "end"):
        interval = _overlaps(quoted("start"), quoted("end"))
        if table == "NVTX_EVENTS" and db.has(table, "eventType"):
            moment = _at(quoted("start"))
            return f"CASE WHEN eventType IN {NAMING} THEN 1 WHEN eventType = {MARK} THEN {moment} ELSE {interval} END"
        return interval
    for column in ("start", "timestamp"):
        if db.has(table, column):
            return _at(quoted(column))
    return "1"


def _overlaps(start: str, end: str) -> str:
    """An event that began before the window's end and ended after its start, or never ended."""
    later = f"({start} >= :lo OR {end} IS NULL OR typeof({end}) = 'integer' AND {end} > :lo)"
    return f"(typeof({start}) = 'integer' AND {start} < :hi AND {later})"


def _at(time: str) -> str:
    return f"(typeof({time}) = 'integer' AND {time} >= :lo AND {time} < :hi)"
