"""Opens a trace database without ever writing to it, and tells what is wrong with a file before a query does."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.files import input_files

MAGIC = b"SQLite format 3\0"
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
CACHE_KIB = 16 * 1024  # pages of the file held in memory; sorts larger than this go to temporary files
# What a query raises on a damaged file; the second where SQLite's own message quotes a name that is not UTF-8.
FAULTS = (sqlite3.Error, UnicodeDecodeError)
WAIT_S = 1.0  # how long to wait for another program's lock


class TraceDbError(ValueError):
    """A file of which nothing can be used; the text is "FILE: reason"."""

    def __init__(self, file: Path | str, reason: str) -> None:
        super().__init__(f"{file}: {reason}")
        self.reason = reason


class TraceDatabase:
    """A database opened read-only: its tables with their columns, queries that stream, and the faults met on the way.

    Attributes:
      columns: names of the columns of each table, in order.
      problems: what could not be used, one line each; everything else was.
    """

    def __init__(self, file: Path, connection: sqlite3.Connection) -> None:
        self.file = file
        self.connection = connection
        self.problems: list[str] = []
        self.columns: Mapping[str, tuple[str, ...]] = {name: self._columns(name) for name in self._tables()}

    def _tables(self) -> list[str]:
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name"
        return [name for (name,) in self.connection.execute(sql)]

    def _columns(self, table: str) -> tuple[str, ...]:
        return tuple(row[1] for row in self.connection.execute(f"PRAGMA table_info({quoted(table)})"))

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table exists and has all of the columns."""
        return table in self.columns and set(columns) <= set(self.columns[table])

    def rows(self, what: str, sql: str, parameters: Mapping[str, object] | None = None) -> Iterator[tuple]:
        """Rows of a query one by one; a fault of the file ends them and is noted.

        Args:
          parameters: of the query, by name.
        """
        try:
            yield from self.connection.execute(sql, parameters or {})
        except FAULTS as e:
            self.note(f"{what}: {reason_of(e)}; left out, wholly or from the faulty row on")

    def note(self, problem: str) -> None:
        """Notes a problem once, in one line: names that it quotes come from the file."""
        problem = entry.printable(problem)
        if problem not in self.problems:
            self.problems.append(problem)


def reason_of(fault: Exception) -> str:
    """What SQLite says of a fault, in one line."""
    return "not UTF-8" if isinstance(fault, UnicodeDecodeError) else entry.printable(str(fault))


def quoted(name: str) -> str:
    """An SQL identifier; `end` is a keyword and a column of every table here."""
    return '"' + name.replace('"', '""') + '"'


@contextlib.contextmanager
def opened(file: Path) -> Iterator[TraceDatabase]:
    """The database in `file`, which is not changed, nor is anything put beside it.

    Raises:
      TraceDbError: if it is no whole SQLite database, or another program is writing to it.
      OSError: if it cannot be read.
    """
    mode = _mode(file)
    uri = f"{_real(file).as_uri()}?{mode}"
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=WAIT_S, isolation_level=None)
    except FAULTS as e:
        raise TraceDbError(file, reason_of(e)) from None
    try:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("PRAGMA temp_store = FILE")
        connection.execute("BEGIN")  # every query sees the same state, and no writer comes between
        database = TraceDatabase(file, connection)
    except FAULTS as e:
        connection.close()
        locked = "; another program is writing to it" if "locked" in str(e) else ""
        raise TraceDbError(file, f"{reason_of(e)}{locked}") from None
    try:
        yield database
    finally:
        connection.close()


def _real(file: Path) -> Path:
    """A log stands beside the file itself, not beside a link to it."""
    return Path(os.path.realpath(file))


def _mode(file: Path) -> str:
    """How to open the file, after a look at its header.

    A file in write-ahead mode would make SQLite put two more files beside it, so it is opened as immutable: that is
    sound only while nothing waits in a log, which is checked here.
    """
    with input_files.open_regular(file, input_files.UNLIMITED) as f:
        head = f.read(100)
        size = os.fstat(f.fileno()).st_size
    if size == 0:
        raise TraceDbError(file, "the file is empty")
    if not head.startswith(MAGIC):
        hint = "; export a .nsys-rep or .qdrep file with `nsys export --type=sqlite FILE`" if _is_report(file) else ""
        raise TraceDbError(file, f"not an SQLite database{hint}")
    _check_size(file, head, size)
    for beside, kind in unfinished(_real(file)):
        raise TraceDbError(
            file, f"has an unfinished {kind} ({beside.name}): its writer still runs or was killed; "
            f"let it end, or open a copy of both files with sqlite3 once to merge them"
        )  # fmt: skip
    return "mode=ro&immutable=1" if head[19] == 2 else "mode=ro"


def unfinished(file: Path) -> Iterator[tuple[Path, str]]:
    """Files beside a database that hold changes of it which are not in it yet, and what they are."""
    for suffix, kind, mark in (("-wal", "write-ahead log", b""), ("-journal", "rollback journal", JOURNAL_MAGIC)):
        beside = Path(f"{file}{suffix}")
        if beside.is_file() and beside.stat().st_size > 0:
            with open(beside, "rb") as f:
                if f.read(len(mark)) == mark:  # a journal whose header was cleared is of a finished change
                    yield beside, kind


def _is_report(file: Path) -> bool:
    return file.suffix in (".nsys-rep", ".qdrep", ".qdstrm")


def _check_size(file: Path, head: bytes, size: int) -> None:
    """Compares the size with the header's count of pages, valid where two counters agree (SQLite, "fileformat2")."""
    if len(head) < 100:
        raise TraceDbError(file, f"cut short: {size} bytes, and the header alone has 100")
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(head[28:32], "big")
    if head[24:28] == head[92:96] and size < page * pages:
        raise TraceDbError(file, f"cut short: {size} of {page * pages} bytes")
