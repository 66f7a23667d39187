"""Find the faults in the tables of a file, or in a folder of records.

The command and imports call `audit`; `checking` finds the faults of one table.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.audit import own_records
from rnn_scaling.analysis.audit.checking import check
from rnn_scaling.analysis.audit.finding import Finding
from rnn_scaling.records.own_files import starts_as
from rnn_scaling.records.record import RecordError
from rnn_scaling.records.tables import documents

_MAX_NUMBERS = 500_000  # numbers that are read from one file
_MAX_FINDINGS = 1_000  # findings that are reported for one file
_PREDICTION_SCHEMA = rb"prediction/"  # in the schema of files that `predict` wrote
# Suffixes of the files in a folder that are checked.
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
    is_empty: bool = False  # whether the file has nothing to compare

    def add_table_result(self, comparisons: int, findings: Sequence[Finding]) -> None:
        """Add the result of one table."""
        self.comparisons += comparisons
        self.findings += findings[: _MAX_FINDINGS - len(self.findings)]


def list_files(path: Path) -> list[Path]:
    """Return the documents of a folder, or a single file as it is.

    If a folder has run records, the first item is the folder, which is then checked
    as a whole.
    """
    if not path.is_dir():
        return [path]
    files = []
    has_records = False
    for file in sorted(path.rglob("*")):
        if file.suffix not in _SUFFIXES or not file.is_file():
            continue
        if file.suffix == ".json" and own_records.is_own(file):
            has_records = True
        elif not starts_as(file, _PREDICTION_SCHEMA):
            files.append(file)
    return [path, *files] if has_records else files


def audit(path: Path, max_numbers: int = _MAX_NUMBERS) -> FileReport:
    """Check every table of a file, or the run records of a folder.

    Args:
      path: The file or folder.
      max_numbers: The check ends after the table that reaches this count of numbers.

    Returns:
      The findings; if a part of the file cannot be read, the findings of the part
      before it, and the error.
    """
    report = FileReport(str(path))
    try:
        _check_file(report, path, max_numbers)
    except OSError as e:
        report.error = f"{path}: {e.strerror or e}"
    except (documents.UnreadableError, RecordError) as e:
        report.error = str(e)
    report.is_empty = not report.error and not report.comparisons
    if report.is_empty:
        reason = (
            "no table was found in it; --help lists the kinds of tables that are read"
        )
        if report.tables:
            reason = (
                "no relation between the columns of its tables is known, so "
                "nothing was compared; docs/audit.md lists the relations"
            )
        report.error = f"{path}: {reason}"
    return report


def _check_file(report: FileReport, path: Path, max_numbers: int) -> None:
    """Add the findings of a file or folder to its report."""
    records = own_records.find(path)
    if records:
        report.add_table_result(len(records), own_records.check(records))
        return
    for table in documents.read_tables(path):
        report.tables += 1
        report.numbers += table.count
        report.add_table_result(*check(table))
        if report.numbers >= max_numbers:
            last_line = table.rows[-1][0]
            report.error = (
                f"{path}: checked only the first {report.numbers:,} numbers, up to"
                f" the table at line {last_line}; raise --max_numbers"
            )
            return
