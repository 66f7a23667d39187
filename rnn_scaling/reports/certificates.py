"""What certificates say of rows: a word for a table, and an alarm where a mode trains wrong."""

from collections.abc import Sequence

from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records.certificate import Certificate, joined
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.wording import sentences

COLUMN_TITLE = "Certificate"
NOT_CERTIFIED = "not certified"


def row_certificate(row: Row) -> Certificate | None:
    """What its runs' certificates say together; None: they have none."""
    return joined([record.certificate for record in row.records if record.certificate])


def certificate_text(certificate: Certificate) -> str:
    """Return what was found, as a person reads it; an old record has only the words."""
    if certificate.statements:
        return sentences(Statement(**data) for data in certificate.statements)
    return certificate.sentence or ""


def verdict_text(rows: Sequence[Row]) -> str:
    """The worst verdict of several rows in a word or two."""
    several = [row_certificate(row) for row in rows]
    worst = joined([certificate for certificate in several if certificate])
    if worst is not None and not worst.holds:
        return f"WRONG: {worst.verdict}"
    if worst is None or None in several:
        return (
            NOT_CERTIFIED
            if worst is None or len(several) == 1
            else f"{several.count(None)} of {len(several)} {NOT_CERTIFIED}"
        )
    return " and ".join(
        dict.fromkeys(certificate.verdict for certificate in several if certificate)
    )


def trains_wrong(series: SeriesSummary) -> bool:
    """Whether any row of a series is known to train wrong: it is never called the fastest."""
    return any(
        (certificate := row_certificate(row.row)) and not certificate.holds
        for row in series.rows
    )


def alarms(summary: Summary) -> list[Statement]:
    """That a mode trains wrong, before everything else; empty where none does."""
    rows = [
        (f"{series.title}, on {row.devices}", row.row)
        for series in summary.series
        for row in series.rows
    ]
    found = [(title, row_certificate(row)) for title, row in rows]
    wrong = [
        f"{title} ({certificate_text(result).rstrip('.')})"
        for title, result in found
        if result and not result.holds
    ]
    return [Statement("trains-wrong", values={"names": wrong})] if wrong else []
