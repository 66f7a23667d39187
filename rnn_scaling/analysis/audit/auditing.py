"""A file or a folder of records -> the findings of all its tables."""

import collections
import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path

from rnn_scaling.analysis.audit import own_records
from rnn_scaling.analysis.audit.checking import check
from rnn_scaling.analysis.audit.finding import Finding
from rnn_scaling.records.own_files import starts_as
from rnn_scaling.records.record import RecordError
from rnn_scaling.records.tables import documents, headers
from rnn_scaling.records.tables.table import Table

MAX_NUMBERS = 500_000  # of a file
MAX_FINDINGS = 1_000  # of a file that are kept
_MOST_JOINED = 20_000  # rows of tables that are joined
_MOST_WAITING = 60_000  # rows of tables of other headers that are kept for this
_PREDICTION = rb"prediction/"
# The documents that are looked for in folders.
_SUFFIXES = (".md", ".html", ".htm", ".csv", ".tsv", ".json", ".jsonl", ".txt")


@dataclasses.dataclass
class FileReport:
    """The findings of one file."""

    source: str
    tables: int = 0
    numbers: int = 0
    comparisons: int = 0  # relations between printed numbers that were tested
    findings: list[Finding] = dataclasses.field(default_factory=list)
    error: str = ""
    is_empty: bool = False  # nothing in it can be compared

    def add(self, comparisons: int, findings: Sequence[Finding]) -> None:
        """Add the result of one table."""
        self.comparisons += comparisons
        self.findings += findings[: MAX_FINDINGS - len(self.findings)]


def list_files(path: Path) -> list[Path]:
    """Return a file itself, or the documents of a folder.

    A folder with run records is itself one of them.
    """
    if not path.is_dir():
        return [path]
    found = []
    has_records = False
    for file in sorted(path.rglob("*")):
        if file.suffix not in _SUFFIXES or not file.is_file():
            continue
        if file.suffix == ".json" and own_records.is_own(file):
            has_records = True
        elif not starts_as(file, _PREDICTION):
            found.append(file)
    return [path, *found] if has_records else found


def audit(path: Path, max_numbers: int = MAX_NUMBERS) -> FileReport:
    """Check every table of a file, or the run records of a folder.

    Args:
      path: The file or folder.
      max_numbers: The last table that is checked reaches this count of numbers.

    Returns:
      The findings; if the rest cannot be read, those of the part before, and the error.
    """
    report = FileReport(str(path))
    try:
        runs = own_records.read(path)
        if runs:
            report.add(*own_records.check(runs))
        tables = iter(()) if runs else documents.read_tables(path)
        for table in join_tables(tables, max_numbers):
            report.tables += len(set(table.parts)) or 1
            report.numbers += table.count
            report.add(*check(table))
            if report.numbers >= max_numbers:
                last = table.rows[-1][0]
                report.error = (
                    f"{path}: checked only the first {report.numbers:,} numbers, up to"
                    f" the table at line {last}; raise --max_numbers"
                )
                break
    except OSError as e:
        report.error = f"{path}: {e.strerror or e}"
    except (documents.UnreadableError, RecordError) as e:
        report.error = str(e)
    report.is_empty = not report.error and not report.comparisons
    if report.is_empty:
        reason = "no table in it; --help says what is read"
        if report.tables:
            reason = (
                "nothing to compare: no relation between columns of its tables is"
                " known; see docs/audit.md"
            )
        report.error = f"{path}: {reason}"
    return report


def join_tables(
    tables: Iterable[Table], max_numbers: int = MAX_NUMBERS
) -> Iterator[Table]:
    """Yield the tables of a file, those of the same header as one.

    What holds in one of them holds in the others. The last table is the one with which
    `max_numbers` are reached.
    """
    waiting: dict[Hashable, list[Table]] = {}
    num_rows = collections.Counter[Hashable]()
    numbers_read = 0
    for table in tables:
        numbers_read += table.count
        if numbers_read >= max_numbers:
            yield from map(_joined, waiting.values())
            yield table
            return
        # Columns that are named after devices have the quantity of the title.
        about = headers.quantity_of(f"{table.caption} {table.title}".lower())
        key = table.header, about
        waiting.setdefault(key, []).append(table)
        num_rows[key] += len(table.rows)
        if num_rows[key] > _MOST_JOINED:
            yield _joined(waiting.pop(key))
            del num_rows[key]
        elif num_rows.total() > _MOST_WAITING:
            yield from map(_joined, waiting.values())
            waiting.clear()
            num_rows.clear()
    yield from map(_joined, waiting.values())


def _joined(tables: Sequence[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    rows = tuple(itertools.chain.from_iterable(table.rows for table in tables))
    parts = tuple(k for k, table in enumerate(tables) for _ in table.rows)
    return dataclasses.replace(tables[0], rows=rows, parts=parts)
