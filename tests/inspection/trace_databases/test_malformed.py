"""Other files are refused in one line, damage is reported, and the input never changes."""

import contextlib
import os
import random
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest

from rnn_scaling.commands import inspect
from tests.inspection.trace_databases import databases
from tests.inspection.trace_databases.databases import change_database, make_database
from tests.support.mutations import parse_json


def find_only_error(capsys, file, *options):
    """Return the reason in the command's only line on stderr."""
    assert inspect.main([str(file), *options]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"error: {file}: ") and err.count("\n") == 1, (
        out,
        err,
    )
    return err.removeprefix(f"error: {file}: ").rstrip("\n")


def write_other_database(file):
    with change_database(file) as db:
        db.execute("CREATE TABLE mail (subject TEXT)")


@pytest.mark.parametrize(
    "name, write, reason",
    [
        ("empty.sqlite", Path.touch, "not an SQLite database"),
        ("a.nsys-rep", lambda file: file.write_bytes(b"\0\1QD" * 99), "nsys export"),
        ("magic", lambda file: file.write_text("SQLite format 3\0"), "not a database"),
        ("other", write_other_database, "expected an Nsight"),
        ("none", lambda file: None, "No such file"),
        ("pipe", os.mkfifo, "a named pipe"),  # which is not waited for
    ],
)
def test_files_that_are_no_trace_database(tmp_path, capsys, name, write, reason):
    write(tmp_path / name)
    assert reason in find_only_error(capsys, tmp_path / name)


def test_a_file_cut_short_and_a_schema_without_events(tmp_path, capsys):
    file = tmp_path / "db"
    databases.nsys(file)
    content = file.read_bytes()
    for share in (0.05, 0.5, 0.99):
        file.write_bytes(content[: int(len(content) * share)])
        assert find_only_error(capsys, file)
    file.unlink()
    with make_database(file, databases.NSYS):
        pass
    assert "no event" in find_only_error(capsys, file)


def test_a_file_that_is_being_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "rnn_scaling.inspection.trace_databases.database.LOCK_TIMEOUT_S", 0.0
    )
    databases.nsys(tmp_path / "db")
    with change_database(tmp_path / "db") as writer:
        writer.execute("BEGIN EXCLUSIVE")
        assert "locked" in find_only_error(capsys, tmp_path / "db")


def test_a_write_ahead_log_that_is_not_merged(tmp_path, capsys):
    databases.nsys(tmp_path / "db")
    with change_database(tmp_path / "db") as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        databases.kernel(writer, 10, 20)
        writer.commit()
        before = sorted(path.name for path in tmp_path.iterdir())
        assert "db-wal" in find_only_error(capsys, tmp_path / "db")
        assert sorted(path.name for path in tmp_path.iterdir()) == before
        (tmp_path / "far").mkdir()
        # The log is next to the file, not next to the link.
        (tmp_path / "far/link").symlink_to(tmp_path / "db")
        assert "db-wal" in find_only_error(capsys, tmp_path / "far/link")
        shutil.rmtree(tmp_path / "far")
    # Closing merged the log; the file is still in that mode.
    assert inspect.main([str(tmp_path / "db")]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["db"]


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_the_input_and_its_folder_stay_as_they_are(tmp_path, mode):
    folder = tmp_path / "input"
    folder.mkdir()
    file = folder / "a %41 name?#.sqlite"
    databases.nsys(file)
    with change_database(file) as db:
        db.execute(f"PRAGMA journal_mode = {mode}")
    before = (file.read_bytes(), os.stat(file).st_mtime_ns)
    file.chmod(stat.S_IRUSR)
    assert inspect.main([str(file), "--from=0.01"]) == 0
    assert (file.read_bytes(), os.stat(file).st_mtime_ns) == before
    assert list(folder.iterdir()) == [file]


def test_a_damaged_table_is_named_and_the_others_are_reported(tmp_path, capsys):
    with make_database(tmp_path / "db", databases.NSYS) as db:
        db.execute("DROP INDEX KERNEL_START")
        for i in range(2000):
            databases.kernel(db, i * 100, i * 100 + 50)
        databases.copy(db, 10, 20, 1000)
        [root] = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'"
        ).fetchone()
        [size] = db.execute("PRAGMA page_size").fetchone()
    content = bytearray((tmp_path / "db").read_bytes())
    content[(root - 1) * size : root * size] = b"\xff" * size
    (tmp_path / "db").write_bytes(content)
    assert inspect.main([str(tmp_path / "db")]) == 1
    out, err = capsys.readouterr()
    assert "CUPTI_ACTIVITY_KIND_KERNEL: database" in err and "HtoD" in out
    assert all(
        line.startswith(f"error: {tmp_path / 'db'}: CUPTI_ACTIVITY_KIND_KERNEL")
        for line in err.splitlines()
    )


VALUES = (
    None,
    "",
    "x",
    "1",
    -1,
    0,
    2**63 - 1,
    -(2**63),
    1.5,
    1e308,
    float("inf"),
    b"\xff",
    "9" * 400,
    "\x1b[2J",
)


def look(file, capsys, *options):
    """Return the status, stdout and stderr, whose lines must all be errors."""
    status = inspect.main([str(file), *options])
    out, err = capsys.readouterr()
    assert status in (0, 1) and bool(err) == (status == 1), err
    assert all(line.startswith("error: ") for line in err.splitlines()), err
    return out


@pytest.mark.parametrize("seed", range(6))
def test_no_value_ends_in_a_traceback_or_invalid_json(tmp_path, capsys, seed):
    """Values of any type, and rows, columns and tables that are missing."""
    rng = random.Random(seed)
    file = tmp_path / "db"
    (databases.nsys if seed % 2 else databases.nvprof)(file)
    with change_database(file) as db:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = [name for [name] in tables if not name.startswith("sqlite_")]
        for _ in range(rng.choice([1, 2, 5])):
            table = rng.choice(names)
            columns = db.execute(f'PRAGMA table_info("{table}")')
            column = rng.choice([row[1] for row in columns])
            kind = rng.randrange(12)
            if kind == 0:
                db.execute(
                    f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "newer{rng.random()}"'
                )
            elif kind == 1:
                db.execute(f'DELETE FROM "{table}"')
            else:
                change = f'UPDATE OR IGNORE "{table}" SET "{column}" = ?'
                with contextlib.suppress(sqlite3.IntegrityError):  # a row's number
                    db.execute(change, [rng.choice(VALUES)])
    look(file, capsys)
    out = look(file, capsys, "--format=json")
    assert not out or parse_json(out)


@pytest.mark.parametrize("seed", range(6))
def test_no_damage_ends_in_a_traceback(tmp_path, capsys, seed):
    """Bytes changed anywhere: every outcome is a report or lines of errors."""
    file = tmp_path / "db"
    (databases.nsys if seed % 2 else databases.nvprof)(file)
    content = bytearray(file.read_bytes())
    rng = random.Random(seed)
    for _ in range(rng.choice([1, 10, 200])):
        content[rng.randrange(100, len(content))] = rng.randrange(256)
    file.write_bytes(content)
    look(file, capsys)
    assert file.read_bytes() == bytes(content)
