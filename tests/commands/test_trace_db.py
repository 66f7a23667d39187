"""The command inspect for trace databases: wrong use, times and Markdown."""

import pytest

from rnn_scaling.commands import inspect, inspect_files
from tests.inspection.trace_databases import databases

# Each row has the words and the flag that the error names.
WRONG = [
    (["a", "--top=0"], "--top"),
    (["--top=2", "--dry_run"], "--top"),
    (["a", "--from=1.5ns"], "--from"),
]


@pytest.mark.parametrize("words, flag", WRONG)
def test_wrong_use(words, flag, capsys):
    assert inspect.main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {flag}")
    assert err.count("\n") == 1


def test_times_keep_every_digit():
    first = 1_500_000_000_123_456_789
    assert inspect_files.parse_time("0.000000001", first) == first + 1
    assert inspect_files.parse_time("123456789.123456789", 0) == 123_456_789_123_456_789
    assert inspect_files.parse_time("1.", first) == first + 10**9
    assert inspect_files.parse_time(".5", first) == first + 5 * 10**8
    assert inspect_files.parse_time("1500000000123456790ns", first) == first + 1
    assert inspect_files.parse_time("-5ns", first) == -5


@pytest.mark.parametrize(
    "window, status", [([f"--to=-{'9' * 19}ns"], 2), (["--from=5"], 1)]
)
def test_windows_without_a_trace(tmp_path, capsys, window, status):
    databases.nsys(tmp_path / "db")
    assert inspect.main([str(tmp_path / "db"), *window]) == status
    assert "0.040000 s long" in capsys.readouterr().err


def split_cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_markdown_tables_have_at_most_top_rows(tmp_path, capsys):
    databases.nsys(tmp_path / "db")
    assert inspect.main([str(tmp_path / "db"), "--top=1"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert "(SQLite export); EXPORT_SCHEMA_VERSION 3.15.1" in out
    [device] = (line for line in lines if "GTX 1070" in line)
    # Kernels and kernels per second.
    assert split_cells(device)[2:4] == ["3", "75"]
    start = lines.index("## Kernels by time")
    numbers = ["0", "2", "8", "4000", "4000", "66.6667"]
    assert split_cells(lines[start + 4]) == [*numbers, "void gemm&lt;float>(float*)"]
    assert lines[start + 6] == "1 more; --top=2 shows them"


def test_a_window_longer_than_the_trace_is_the_trace(tmp_path):
    databases.nsys(tmp_path / "db")
    window = [f"--from=-{'9' * 19}ns", f"--to={'9' * 19}ns"]
    complete, _ = databases.look(tmp_path / "db")
    assert databases.look(tmp_path / "db", *window)[0] == complete
    assert "0.000000 s to 0.040000 s" in complete


def test_names_cannot_break_a_table(tmp_path, capsys):
    with databases.make_database(tmp_path / "db", databases.NSYS) as db:
        name = "a|b\n\x1b[31m" + "x" * 500
        db.execute("INSERT INTO StringIds VALUES (50, ?)", (name,))
        databases.kernel(db, 10, 20, name=50)
    assert inspect.main([str(tmp_path / "db")]) == 0
    out = capsys.readouterr().out
    assert "a\\|b xxx" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) < 250
