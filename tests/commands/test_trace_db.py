"""The command itself: wrong use, times and Markdown."""

from __future__ import annotations

import pytest

from rnn_scaling.commands import inspect, inspect_files
from tests.inspection.trace_databases import databases

WRONG = [
    (["a", "--format=csv"], "--format=csv must be one of text, json"),
    (["a", "--top=0"], "--top=0 must be at least 1"),
    (["a", "--num_devices=2"], "--num_devices is for runs"),
    (["--top=2", "--dry_run"], "--top is for a SOURCE"),
    (["a", "--from=-1"], "must be a time in seconds"),
    (["a", "--to=nan"], "must be a time in seconds"),
    (["a", "--to=1e3"], "must be a time in seconds"),
    (["a", "--from=1.5ns"], "must be a time in seconds"),
]


@pytest.mark.parametrize(("words", "reason"), WRONG)
def test_wrong_use(words, reason, capsys):
    assert inspect.main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and reason in err and err.count("\n") == 1


def test_times_keep_every_digit():
    first = 1_500_000_000_123_456_789
    assert inspect_files.time_ns("0.000000001", first) == first + 1
    assert inspect_files.time_ns("123456789.123456789", 0) == 123_456_789_123_456_789
    assert inspect_files.time_ns("1.", first) == first + 10**9
    assert inspect_files.time_ns(".5", first) == first + 5 * 10**8
    assert inspect_files.time_ns("1500000000123456790ns", first) == first + 1
    assert inspect_files.time_ns("-5ns", first) == -5


@pytest.mark.parametrize(
    ("window", "status"),
    [
        (["--from=0.02", "--to=0.01"], 2),
        (["--to=0"], 2),
        ([f"--to=-{'9' * 19}ns"], 2),
        (["--from=5"], 1),
        (["--from=0ns", "--to=5ns"], 1),
        ([f"--from={'9' * 19}ns"], 1),
    ],
)
def test_windows_without_a_trace(tmp_path, capsys, window, status):
    databases.nsys(tmp_path / "db")
    assert inspect.main([str(tmp_path / "db"), *window]) == status
    assert "0.040000 s long" in capsys.readouterr().err


def test_markdown_and_its_cut_of_long_tables(tmp_path, capsys):
    databases.nsys(tmp_path / "db")
    assert inspect.main([str(tmp_path / "db"), "--top=1"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert "(SQLite export); EXPORT_SCHEMA_VERSION 3.15.1" in out
    (device,) = (line for line in lines if "GTX 1070" in line)
    assert [cell.strip() for cell in device.split("|")][3:5] == [
        "3",
        "75",
    ]  # kernels, kernels a second
    start = lines.index("## Kernels by time")
    assert [cell.strip() for cell in lines[start + 4].strip("|").split("|")] == [
        "0", "2", "8", "4000", "4000", "66.6667", "void gemm&lt;float>(float*)",
    ]  # fmt: skip
    assert lines[start + 6] == "1 more; --top=2 shows them"


def test_a_window_that_is_longer_than_the_trace_is_the_trace(tmp_path):
    databases.nsys(tmp_path / "db")
    whole, longer = (
        databases.look(tmp_path / "db", *words)[0]
        for words in ([], [f"--from=-{'9' * 19}ns", f"--to={'9' * 19}ns"])
    )
    assert whole == longer and "Looked at: 0.000000 s to 0.040000 s" in whole


def test_names_cannot_break_a_table(tmp_path, capsys):
    with databases.making(tmp_path / "db", databases.NSYS) as db:
        db.execute(
            "INSERT INTO StringIds VALUES (50, ?)", ("a|b\n\x1b[31m" + "x" * 500,)
        )
        databases.kernel(db, 10, 20, name=50)
    assert inspect.main([str(tmp_path / "db")]) == 0
    out = capsys.readouterr().out
    assert (
        "a\\|b xxx" in out
        and "\x1b" not in out
        and max(map(len, out.splitlines())) < 250
    )
