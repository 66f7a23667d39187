"""Tables of public projects have the right findings, and few false ones."""

from pathlib import Path

from rnn_scaling.analysis.audit import auditing
from rnn_scaling.records.tables import text_tables
from tests.support.audit_corpus import read

FOLDER = Path(__file__).parents[2] / "golden/audit"


def test_the_findings_in_public_tables():
    num_right = 0
    num_wrong = 0
    found_faults = set()
    for document in read(FOLDER):
        lines = enumerate(document.text.splitlines(), 1)
        for table in text_tables.find_tables("x", lines):
            for finding in auditing.check(table)[1]:
                blamed = {place.line for place in finding.places}
                faults = [k for k, due in enumerate(document.due) if blamed & due]
                found_faults |= {(document.name, k) for k in faults}
                num_right += bool(faults)
                is_odd = any(blamed & odd for odd in document.odd)
                num_wrong += not faults and not is_odd
    assert len(found_faults) >= 12
    assert num_wrong <= 1
    assert num_right > 9 * num_wrong
