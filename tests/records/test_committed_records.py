"""The records that the documents' tables are made from."""

import json

import pytest

from tests.support.paths import ROOT

RECORDS = sorted(
    path
    for path in (ROOT / "docs/results").glob("*/*.json")
    if path.name != "report.json"
)


@pytest.mark.parametrize(
    "path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_committed_record_is_one_line(path):
    text = path.read_text()
    compact = (
        json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) + "\n"
    )
    assert text == compact, (
        f"python -m json.tool --compact --no-ensure-ascii {path} (docs/record.md)"
    )
