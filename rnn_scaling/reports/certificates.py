"""Texts about the certificates of rows: verdicts for tables, and alarms.

A row has one configuration, so it joins the certificates of all its runs. Tables,
exported files and the first lines of a report use these functions.
"""

from collections.abc import Sequence

from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records.certificate import Certificate, merge
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.wording import write_sentences

COLUMN_TITLE = "Certificate"
_NOT_CERTIFIED = "not certified"


def find_row_certificate(row: Row) -> Certificate | None:
    """Return the joined certificate of a row's runs; None if no run has one."""
    return merge([record.certificate for record in row.records if record.certificate])


def format_certificate(certificate: Certificate) -> str:
    """Return the findings in English.

    Old records contain this text instead of statements.
    """
    if certificate.statements:
        return write_sentences(Statement(**data) for data in certificate.statements)
    return certificate.sentence or ""


def format_verdict(rows: Sequence[Row]) -> str:
    """Return the worst verdict of some rows, or how many rows have no certificate."""
    certificates = [find_row_certificate(row) for row in rows]
    known_certificates = [certificate for certificate in certificates if certificate]
    worst = merge(known_certificates)
    if worst is None:
        return _NOT_CERTIFIED
    if not worst.holds:
        return f"WRONG: {worst.verdict}"
    num_missing = len(rows) - len(known_certificates)
    if num_missing:
        return f"{num_missing} of {len(rows)} {_NOT_CERTIFIED}"
    return " and ".join(
        dict.fromkeys(certificate.verdict for certificate in known_certificates)
    )


def trains_wrong(series: SeriesSummary) -> bool:
    """Return whether a row of a series has a failed certificate.

    Reports do not rank such a series.
    """
    certificates = [find_row_certificate(row) for row in series.rows]
    return any(certificate and not certificate.holds for certificate in certificates)


def make_alarms(summary: Summary) -> list[Statement]:
    """Return a statement that names the series that train incorrectly, or [].

    A report begins with it, before any speed.
    """
    failures = []
    for series in summary.series:
        for row in series.rows:
            certificate = find_row_certificate(row)
            if certificate and not certificate.holds:
                findings = format_certificate(certificate).rstrip(".")
                failures.append(f"{series.title}, on {row.devices} ({findings})")
    return [state("trains-wrong", names=failures)] if failures else []
