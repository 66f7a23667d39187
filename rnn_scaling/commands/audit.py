"""python -m rnn_scaling audit FILE...: contradictions in tables of scaling results.

This module reads the flags and prints. `analysis.audit` finds contradictions, and
`reports.audit_report` renders them.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.system import entry

USAGE = """\
Finds numbers in tables of scaling results that contradict other numbers of the same
table by more than rounding. It finds speedups that are not the ratio of their rates,
and efficiencies that are not speedup / devices. It also finds swapped headings, rates
of one device printed as totals, and outliers.

    ./run.sh audit README.md results.csv             findings with their rows
    ./run.sh audit docs                              every document in a folder
    ./run.sh audit results/default --format=json     a folder of run records

It reads tables in Markdown, HTML, CSV, TSV, JSON, JSON Lines and plain columns, and
this suite's records and reports. docs/audit.md lists the header words and the
relations.

Exit status: 0 compared and nothing found; 1 findings, even if another file could not be
read; 2 nothing to compare, an unreadable file, or wrong use."""


@dataclasses.dataclass(frozen=True)
class AuditOptions:
    """Audit."""

    files: tuple[Path, ...] = flags.declare_positional(
        "files to check, or folders of documents and run records",
        shown="FILE",
        is_list=True,
    )
    format: str = option(
        "text",
        "text: findings with the rows of their table; markdown: a table of "
        'findings; json: all findings (schema "rnn_scaling.audit/3")',
        choices=("text", "markdown", "json"),
    )
    max_numbers: int = option(
        500_000,
        "limit on the numbers that are checked per file; if a file has more, the "
        "output says so, and the exit status is 2",
        minimum=1,
    )


@entry.command
def main(words: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = flags.read(words, USAGE, AuditOptions, "audit")
    # Imported here, so that --help and wrong flags do not wait for it.
    from rnn_scaling.analysis.audit import auditing
    from rnn_scaling.reports import audit_report
    from rnn_scaling.system.files import terminal

    reports = []
    for path in options.files:
        for file in auditing.list_files(path) or [path]:
            reports.append(auditing.audit(file, options.max_numbers))
    has_comparisons = any(report.comparisons for report in reports)
    # A file without tables is an error only if no other file has any.
    errors = [
        report.error
        for report in reports
        if report.error and not (report.is_empty and has_comparisons)
    ]
    for error in errors:
        print(entry.make_plain(f"error: {error}"), file=sys.stderr)
    text = audit_report.RENDER[options.format](reports)
    if options.format == "text":
        terminal.print_fitted(f"{text}\n")
    else:
        print(text)
    if any(report.findings for report in reports):
        return entry.EXIT_FAILED
    return entry.EXIT_OK if has_comparisons and not errors else entry.EXIT_USAGE
