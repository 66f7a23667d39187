"""python -m rnn_scaling audit FILE...: numbers in tables of scaling results that cannot be."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.models.config import option
from rnn_scaling.settings import flags

USAGE = """\
Finds numbers that cannot be in tables of scaling results: speedups that are not the ratio of their rates, efficiencies
that are not speedup / devices, rate x seconds that is not the work of the settings, rates of one worker printed as
totals, rows of another number of devices, sums, exchanged columns, superlinear points, mixed scalings. A number that
fits within the rounding of what is printed is never reported. After the findings stands what each series implies:
speedup, efficiency, what each step gains, the best number of devices, where it bends or collapses.

    ./run.sh audit README.md results.csv                            FILE:LINE, one finding each
    ./run.sh audit results/default --format=json                    a folder of run records

docs/audit.md lists the headers that are understood; other columns, and cells that are no numbers, are named on stderr.

Exit status: 0 compared and nothing found, 1 findings, 2 none found but a file cannot be read, holds no table or nothing
that could be compared, or wrong use."""


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError("a number above 0")
    return number


@dataclasses.dataclass(frozen=True)
class AuditOptions:
    """Audit."""

    files: tuple[Path, ...] = flags.positional(
        "Markdown, HTML, LaTeX or any text with tables in it (pipes, grids, tabs, blanks), CSV, TSV, JSON, JSON Lines, "
        "one of our reports or run records, or a folder of these",
        shown="FILE",
        several=True,
    )
    format: str = option(
        "text",
        'text: a line a finding; markdown: a table; json: "rnn_scaling.audit/1"',
        choices=("text", "markdown", "json"),
    )
    items_per_sample: float | None = option(
        None,
        "words a sample (a sentence pair, say) when they are known and the same everywhere: then rate x seconds of "
        "every row is compared with batch size x devices x batches x N (default: not compared)",
        parse=_positive,
        shown="N",
    )
    max_numbers: int = option(
        100_000,
        "numbers of a file that are checked; of the rest it is said that they were not (exit status 2)",
        minimum=1,
    )


@entry.command
def main(words: Sequence[str]) -> int:
    """Audits the files; returns the exit status."""
    options = flags.read(words, USAGE, AuditOptions, "audit")
    from rnn_scaling.audit.auditing import audit  # late, as what follows: help and mistakes do not wait for it
    from rnn_scaling.reports import audit_report

    reports = [audit(file, options.items_per_sample, options.max_numbers) for file in options.files]
    for report in reports:
        for line in audit_report.left_out(report):
            print(entry.plain(line), file=sys.stderr)
    print(audit_report.RENDER[options.format](reports))
    if any(report.found for report in reports):
        return entry.EXIT_FAILED
    return entry.EXIT_USAGE if any(report.error for report in reports) else entry.EXIT_OK
