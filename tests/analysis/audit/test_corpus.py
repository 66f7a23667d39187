"""Regression on tables of public projects: right findings, and no more false ones than are known."""

from __future__ import annotations

from pathlib import Path

from rnn_scaling.analysis.audit import auditing
from rnn_scaling.records.tables import text_tables
from tests.support.audit_corpus import read

FOLDER = Path(__file__).parents[2] / "golden" / "audit"


def test_the_findings_in_public_tables():
    right = wrong = 0
    found = set()
    for document in read(FOLDER):
        for table in text_tables.find_tables(
            "x", enumerate(document.text.splitlines(), 1)
        ):
            for finding in auditing.check(table)[1]:
                lines = {place.line for place in finding.places}
                hit = [k for k, due in enumerate(document.due) if lines & due]
                found |= {(document.name, k) for k in hit}
                right += bool(hit)
                wrong += not hit and not any(lines & odd for odd in document.odd)
    assert len(found) >= 12 and wrong <= 1 and right > 9 * wrong
