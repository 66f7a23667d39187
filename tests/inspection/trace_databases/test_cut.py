"""The cut keeps the schema and every row that overlaps the window, whole; it is written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from rnn_scaling.commands import trace_db
from tests.inspection.trace_databases import databases
from tests.inspection.trace_databases.databases import MS, making


@pytest.fixture(params=["nsys", "nvprof"])
def database(request, tmp_path):
    file = tmp_path / f"{request.param}.sqlite"
    getattr(databases, request.param)(file)
    return file


def cut(file, *window):
    """Cuts, and returns the file with the cut."""
    output = file.with_name("cut.sqlite")
    assert trace_db.main([str(file), *window, f"--output={output}"]) == 0
    return output


def query(file, sql):
    with contextlib.closing(sqlite3.connect(file)) as db:
        return db.execute(sql).fetchall()


def summary(file, *window):
    text, problems = databases.look(file, "--format=json", *window)
    assert problems == []
    return json.loads(text)


def schema(file):
    return query(file, "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")


def test_the_schema_stays_the_same(database):
    output = cut(database, "--from=0.004", "--to=0.019")
    assert schema(output) == schema(database)
    for pragma in ("page_size", "encoding", "user_version"):
        assert query(output, f"PRAGMA {pragma}") == query(database, f"PRAGMA {pragma}")
    assert query(output, "PRAGMA integrity_check") == [("ok",)]


def test_rows_that_straddle_the_edges_are_kept_whole(tmp_path):
    databases.nsys(tmp_path / "db")
    output = cut(tmp_path / "db", "--from=0.004", "--to=0.013")
    rows = {
        table: query(output, f"SELECT start / {MS} - 100, end / {MS} - 100 FROM {table} ORDER BY 1, 2")
        for table in (
            "CUPTI_ACTIVITY_KIND_KERNEL",
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            "OSRT_API",
        )
    }
    assert rows == {
        "CUPTI_ACTIVITY_KIND_KERNEL": [(2, 6)],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [(5, 9)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [(12, 13)],  # the next starts at 13, where the window ends
        "OSRT_API": [(0, 39)],
    }
    assert query(output, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMSET") == [(0,)]
    # The mark at 3 is outside; a range that nobody closed goes on, and names are kept wherever they were given.
    names = query(output, "SELECT coalesce(text, textId) FROM NVTX_EVENTS ORDER BY start")
    assert names == [(6,), ("never closed",), ("a domain",)]
    assert query(output, "SELECT count(*) FROM GPU_METRICS") == [(9,)]
    assert query(output, "SELECT id FROM CUDA_CALLCHAINS") == [(2,)]
    assert query(output, "SELECT count(*) FROM StringIds") == [(6,)]
    assert query(output, "SELECT count(*) FROM LONG_KERNELS") == [(1,)]


def test_markers_of_nvprof_stay_pairs(tmp_path):
    databases.nvprof(tmp_path / "db")
    output = cut(tmp_path / "db", "--from=0.002", "--to=0.010")
    markers = query(output, "SELECT id, flags FROM CUPTI_ACTIVITY_KIND_MARKER ORDER BY _id_")
    assert markers == [(1, 2), (1, 4), (2, 1)]
    assert query(output, "SELECT id FROM CUPTI_ACTIVITY_KIND_MARKER_DATA ORDER BY id") == [(1,), (2,)]


def test_a_cut_summarizes_as_its_window_did(database):
    first = summary(database)["span_ns"][0]
    window = (f"--from={first + 4 * MS}ns", f"--to={first + 19 * MS}ns")
    before, after = summary(database, *window), summary(cut(database, *window), *window)
    for part in ("devices", "kernels", "copies", "memsets", "api", "syncs", "ranges", "launches", "window_ns"):
        assert after[part] == before[part], part


def test_a_cut_shrinks(tmp_path):
    with making(tmp_path / "db", databases.NSYS) as db:
        for i in range(20_000):
            databases.kernel(db, i * 1000, i * 1000 + 500)
    output = cut(tmp_path / "db", "--from=0.001", "--to=0.002")
    assert query(output, "SELECT count(*), min(start), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL") == [
        (1000, 1_000_000, 1_999_500)
    ]
    assert output.stat().st_size < (tmp_path / "db").stat().st_size / 5


def test_the_whole_window_copies_every_row(database):
    output = cut(database)
    for (table,) in query(database, "SELECT name FROM sqlite_master WHERE type = 'table'"):
        assert query(output, f"SELECT * FROM {table} ORDER BY 1") == query(
            database, f"SELECT * FROM {table} ORDER BY 1"
        )


def test_the_whole_window_has_rows_that_no_summary_counts(tmp_path):
    databases.nsys(tmp_path / "db")
    with contextlib.closing(sqlite3.connect(tmp_path / "db")) as db:
        db.executemany("INSERT INTO GPU_METRICS VALUES (?, 0, 50)", [(50 * MS,), (500 * MS,)])
        db.execute("INSERT INTO OSRT_API VALUES (0, 0, 2)")
        db.commit()
    for window, metrics in ((), 42), (("--to=0.02",), 21), (("--from=0",), 41):
        output = cut(tmp_path / "db", *window)
        assert query(output, "SELECT count(*) FROM GPU_METRICS") == [(metrics,)]
        assert query(output, "SELECT count(*) FROM OSRT_API") == [(1 if window == ("--from=0",) else 2,)]
        output.unlink()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_cut_at_once_and_leaves_nothing(tmp_path, number):
    with making(tmp_path / "db", databases.NSYS) as db:
        databases.kernel(db, 10, 20)
        # A table whose rows take for ever: its generated column is worked out for each.
        slow = (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT max(i) FROM n"
        )
        db.execute("CREATE TABLE slow (start INTEGER, end INTEGER)")
        db.execute("INSERT INTO slow VALUES (10, 20)")
    code = (
        "import sys; from rnn_scaling import entry; from rnn_scaling.commands import trace_db; "
        "from rnn_scaling.inspection.trace_databases import cut; "
        f"cut.condition = lambda db, table: '({slow}) > 0' if table == 'slow' else '1'; entry.leave(trace_db.main)"
    )
    words = [str(tmp_path / "db"), "--from=0", f"--output={tmp_path / 'cut'}"]
    child = subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True)
    while not list(tmp_path.glob(".cut.*.tmp")):
        assert child.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)  # until it is in that table; earlier is as good
    child.send_signal(number)
    assert child.communicate(timeout=60)[1] == "interrupted\n" and child.returncode == 130
    assert [path.name for path in tmp_path.iterdir()] == ["db"]


def test_an_output_that_is_no_file_or_has_a_log_is_refused(database, capsys):
    output = database.with_name("cut")
    os.mkfifo(output)
    assert trace_db.main([str(database), f"--output={output}", "--force"]) == 1
    assert "is not a regular file" in capsys.readouterr().err
    output.unlink()
    database.with_name("cut-wal").write_bytes(b"of another database")
    assert trace_db.main([str(database), f"--output={output}", "--force"]) == 1
    assert "has an unfinished write-ahead log (cut-wal), which would change the cut" in capsys.readouterr().err


def test_nothing_is_overwritten_unasked(database, capsys):
    before = database.read_bytes()
    output = cut(database)
    kept = output.read_bytes()
    assert trace_db.main([str(database), "--from=0.02", f"--output={output}"]) == 1
    assert capsys.readouterr().err == f"error: {output}: exists; --force replaces it\n"
    assert output.read_bytes() == kept
    assert trace_db.main([str(database), "--from=0.02", f"--output={output}", "--force"]) == 0
    assert output.read_bytes() != kept
    link = database.with_name("link")
    link.symlink_to(database)
    for same in (database, link):
        assert trace_db.main([str(database), f"--output={same}", "--force"]) == 1
        assert "is the database itself" in capsys.readouterr().err
    assert database.read_bytes() == before


def test_a_full_disk_leaves_nothing_and_the_old_cut_alone(tmp_path, capsys, monkeypatch):
    databases.nsys(tmp_path / "db")
    (tmp_path / "cut").write_text("old")

    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("rnn_scaling.inspection.trace_databases.cut._copy", full)
    assert trace_db.main([str(tmp_path / "db"), f"--output={tmp_path / 'cut'}", "--force"]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'cut'}: database or disk is full\n"
    assert (tmp_path / "cut").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "db"]


def test_a_schema_that_cannot_be_read_leaves_the_old_cut_alone(tmp_path, capsys):
    databases.nsys(tmp_path / "db")
    with contextlib.closing(sqlite3.connect(tmp_path / "db")) as db:
        db.execute("PRAGMA writable_schema = 1")
        sql = "CREATE VIEW LONG_KERNELS AS SELECT 1 +"
        db.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'LONG_KERNELS'", (sql,))
        db.commit()
    (tmp_path / "cut").write_text("old")
    assert trace_db.main([str(tmp_path / "db"), f"--output={tmp_path / 'cut'}", "--force"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert (tmp_path / "cut").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "db"]


def test_a_directory_that_is_not_there(database, capsys):
    assert trace_db.main([str(database), f"--output={database.parent / 'no' / 'cut'}"]) == 1
    assert "its directory does not exist" in capsys.readouterr().err


def test_tables_of_modules_are_left_out_and_said(tmp_path, capsys):
    databases.nsys(tmp_path / "db")
    with contextlib.closing(sqlite3.connect(tmp_path / "db")) as db:
        try:
            db.execute("CREATE VIRTUAL TABLE places USING rtree(id, x0, x1)")
        except sqlite3.OperationalError:
            pytest.skip("this SQLite has no rtree")
    assert trace_db.main([str(tmp_path / "db"), f"--output={tmp_path / 'cut'}"]) == 1
    assert "places: a virtual table; left out of the cut" in capsys.readouterr().err
    assert query(tmp_path / "cut", "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL") == [(3,)]
