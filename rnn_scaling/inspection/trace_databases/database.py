"""Opens a trace database without writing to it."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files

MAGIC = b"SQLite format 3\0"
WRITE_AHEAD = b"\2"  # byte 19 of the header
# A damaged file raises the second one where SQLite's message quotes a name that is not UTF-8.
FAULTS = (sqlite3.Error, UnicodeDecodeError)
WAIT_S = 1.0  # for the lock of another program


class TraceDbError(ValueError):
    """A file that cannot be summarised; the text is "FILE: reason"."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"{file}: {reason}")


class TraceDatabase:
    """A database opened read-only; `problems`: what cannot be read, one line each."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.problems: list[str] = []
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        tables = [name for (name,) in connection.execute(sql)]
        self.columns = {
            table: tuple(
                row[1]
                for row in connection.execute(f"PRAGMA table_info({quoted(table)})")
            )
            for table in tables
        }

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table exists and has all of the columns."""
        return table in self.columns and set(columns) <= set(self.columns[table])

    def rows(
        self, table: str, sql: str, parameters: Mapping[str, object] | None = None
    ) -> Iterator[tuple]:
        """Streams the rows of a query; a damaged page ends them and is noted."""
        try:
            yield from self._connection.execute(sql, parameters or {})
        except FAULTS as e:
            self.note(f"{table}: {e}; left out from there on")

    def select(self, table: str, *columns: str, rest: str = "") -> Iterator[tuple]:
        """Streams columns of a table; nothing if the file lacks one of them. `rest`: further clauses."""
        if self.has(table, *columns):
            yield from self.rows(
                table, f"SELECT {', '.join(columns)} FROM {table} {rest}"
            )

    def note(self, problem: str) -> None:
        """Notes a problem once, in one line."""
        problem = entry.printable(problem)
        if problem not in self.problems:
            self.problems.append(problem)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextlib.contextmanager
def opened(file: Path) -> Iterator[TraceDatabase]:
    """The database in `file`; neither the file nor its folder changes.

    Raises:
      TraceDbError: if it is no SQLite database, or another program writes to it.
      OSError: if it cannot be read.
    """
    with input_files.open_regular(file, input_files.UNLIMITED) as f:
        head = f.read(20)
        size = os.fstat(f.fileno()).st_size
    if not head.startswith(MAGIC):
        raise TraceDbError(
            file,
            "not an SQLite database; export reports with `nsys export --type=sqlite REPORT`",
        )
    if size % (int.from_bytes(head[16:18], "big") or 1):
        raise TraceDbError(
            file, "cut short: the last page is not complete"
        )  # SQLite misses only complete pages
    target = file.resolve()
    for log in (Path(f"{target}-wal"), Path(f"{target}-journal")):
        if log.is_file() and log.stat().st_size > 0:
            raise TraceDbError(
                file,
                f"has unfinished changes in {log.name}; open it once with sqlite3 to merge them",
            )
    # SQLite puts two files next to a database in write-ahead mode, unless it counts as immutable.
    mode = "immutable=1" if head.endswith(WRITE_AHEAD) else "mode=ro"
    connection = sqlite3.connect(
        f"{target.as_uri()}?{mode}", uri=True, timeout=WAIT_S, isolation_level=None
    )
    with contextlib.closing(connection):
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            connection.execute("BEGIN")  # every query reads the same state
            database = TraceDatabase(connection)
        except FAULTS as e:
            raise TraceDbError(file, entry.printable(str(e))) from None
        yield database
