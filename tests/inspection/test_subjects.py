"""A path is seen for what it is, whatever its name."""

from __future__ import annotations

import gzip

from rnn_scaling.inspection.subjects import Subject, subject_of
from tests.inspection.trace_databases import databases


def test_folders_records_traces_and_databases_are_told_apart(tmp_path):
    databases.nsys(tmp_path / "a.json")
    (tmp_path / "b.sqlite").write_text("{}")
    (tmp_path / "c").write_bytes(gzip.compress(b"{}"))
    (tmp_path / "d.xplane.pb").write_bytes(b"\n\0")
    found = [subject_of(path) for path in sorted(tmp_path.iterdir())]
    expected = [Subject.DATABASE, Subject.RECORD, Subject.TRACE, Subject.TRACE]
    assert found == expected and subject_of(tmp_path) is Subject.FOLDER
