"""Open a trace database without writing to it.

All queries of this package go through a `TraceDatabase`, so that damaged files are
noted in one place.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files

MAGIC = b"SQLite format 3\0"
_WRITE_AHEAD = b"\2"  # byte 19 of the header
# Exceptions of a damaged file. The second occurs if SQLite's message quotes a name that
# is not UTF-8.
_DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
LOCK_TIMEOUT_S = 1.0  # wait for the lock of another program


class TraceDbError(ValueError):
    """A file that cannot be summarised; the text is "FILE: reason"."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"{file}: {reason}")


class TraceDatabase:
    """A read-only database.

    A damaged part never raises: its rows end, and a line is noted in `problems`. So
    read all rows before `problems`.

    Attributes:
      problems: One line per problem of reading.
      columns: The columns of each table.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.problems: list[str] = []
        self.columns: dict[str, list[str]] = {}
        sql = (
            "SELECT name FROM sqlite_master "
            "WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        )
        for (table,) in connection.execute(sql).fetchall():
            columns = connection.execute(f"PRAGMA table_info({quote(table)})")
            self.columns[table] = [row[1] for row in columns]

    def has(self, table: str, *columns: str) -> bool:
        """Return whether the table exists and has all of the columns."""
        return table in self.columns and set(columns) <= set(self.columns[table])

    def read_rows(
        self, table: str, sql: str, parameters: Mapping[str, object] | None = None
    ) -> Iterator[tuple]:
        """Yield the rows of a query; a damaged page ends them and is noted."""
        try:
            yield from self._connection.execute(sql, parameters or {})
        except _DATABASE_ERRORS as e:
            self.note(f"{table}: {e}; the rest of it was left out")

    def select(self, table: str, *columns: str, clauses: str = "") -> Iterator[tuple]:
        """Yield columns of a table; yield nothing if a column is missing."""
        if self.has(table, *columns):
            sql = f"SELECT {', '.join(columns)} FROM {table} {clauses}"
            yield from self.read_rows(table, sql)

    def note(self, problem: str) -> None:
        """Note a problem once, in one line."""
        problem = entry.make_printable(problem)
        if problem not in self.problems:
            self.problems.append(problem)


def quote(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@contextlib.contextmanager
def open_database(file: Path) -> Iterator[TraceDatabase]:
    """Open the database in `file`; neither the file nor its folder changes.

    Raises:
      TraceDbError: If it is not an SQLite database, or another program writes to it.
      OSError: If it cannot be read.
    """
    with input_files.open_regular(file, input_files.UNLIMITED) as f:
        head = f.read(20)
        size = os.fstat(f.fileno()).st_size
    if not head.startswith(MAGIC):
        raise TraceDbError(
            file,
            "not an SQLite database; "
            "export reports with `nsys export --type=sqlite REPORT`",
        )
    # SQLite only notices that complete pages are missing.
    if size % (int.from_bytes(head[16:18], "big") or 1):
        raise TraceDbError(
            file, "cut short: the last page is not complete; copy it again"
        )
    target = file.resolve()
    for log in (Path(f"{target}-wal"), Path(f"{target}-journal")):
        if log.is_file() and log.stat().st_size > 0:
            raise TraceDbError(
                file,
                f"has unfinished changes in {log.name}; "
                "open it once with sqlite3 to merge them",
            )
    # SQLite creates two files next to a database in write-ahead mode unless it is
    # opened as immutable.
    mode = "immutable=1" if head.endswith(_WRITE_AHEAD) else "mode=ro"
    connection = sqlite3.connect(
        f"{target.as_uri()}?{mode}",
        uri=True,
        timeout=LOCK_TIMEOUT_S,
        isolation_level=None,
    )
    with contextlib.closing(connection):
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            # All queries read the same state.
            connection.execute("BEGIN")
            database = TraceDatabase(connection)
        except _DATABASE_ERRORS as e:
            raise TraceDbError(file, entry.make_printable(str(e))) from None
        yield database
