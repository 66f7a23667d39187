"""The command: exit status, formats, one clear line for what cannot be read, and nothing that loads slowly."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rnn_scaling.audit import auditing
from rnn_scaling.commands import audit

GOOD = "|GPUs|images/s|speedup|\n|-|-|-|\n|1|100.0|1.00|\n|2|190.0|1.90|\n"
BAD = GOOD.replace("1.90", "1.99")


@pytest.fixture
def files(tmp_path):
    contents = {
        "good.md": GOOD.encode(),
        "bad.md": BAD.encode(),
        "prose.md": b"Nothing here but 2 words.\n\nAnd 1 | 2 more.\n",
        "empty.txt": b"",
        "blank.txt": b"\n \n",
        "binary.dat": GOOD.encode() + b"\0\1\2",
        "utf16.txt": GOOD.encode("utf-16"),
        "broken.json": b'[{"GPUs": 1, "images/s": 100',
        "deep.json": b"[" * 100_000,
        "newer.json": b'{"schema": "rnn_scaling.run/9", "status": "ok", "config": {}}',
        "latin.md": BAD.encode() + "\nZürich\n".encode("latin-1"),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "name, status, said",
    [
        ("good.md", 0, ""),
        ("bad.md", 1, ""),
        ("latin.md", 1, ""),
        ("prose.md", 2, "no table of results"),
        ("empty.txt", 2, "empty"),
        ("blank.txt", 2, "empty"),
        ("binary.dat", 2, "binary"),
        ("utf16.txt", 2, "UTF-16"),
        ("broken.json", 2, "at line 1"),
        ("deep.json", 2, "nested too deeply"),
        ("newer.json", 2, "rnn_scaling.run/9"),
        ("folder", 2, "without run records"),
        ("none.md", 2, "No such file"),
    ],
)
def test_exit_status_and_the_error_line(files, capsys, name, status, said):
    assert audit.main([str(files / name)]) == status
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == (1 if said else 0)
    assert all(str(files / name) in line and said in line for line in errors)


def test_what_is_good_is_reported_beside_what_is_not(files, capsys):
    assert audit.main([str(files / "binary.dat"), str(files / "bad.md"), "--format=json"]) == 1
    reports = json.loads(capsys.readouterr().out)["files"]
    assert [bool(report["error"]) for report in reports] == [True, False]
    assert reports[1]["findings"][0]["line"] == 4


@pytest.mark.parametrize("words", [[], ["--format=html", "x"], ["--verbose", "x"], ["--items_per_sample=nan", "x"]])
def test_wrong_use(words, capsys):
    assert audit.main(words) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_text_names_file_line_value_and_cause(files, capsys):
    audit.main([str(files / "bad.md")])
    first, last, _, name, *numbers, _ = capsys.readouterr().out.splitlines()
    assert first.startswith(
        f"{files / 'bad.md'}:4: impossible [speedup] 2 devices: speedup is 1.99, expected 1.900 [1.89"
    )
    assert "1 tables, 6 numbers" in last and last.endswith("1 findings")
    assert name.endswith("rates of all together [derived]")
    assert [line.split() for line in numbers] == [
        ["devices", "1", "2"], ["speedup", "1", "1.9"], ["efficiency", "100", "%", "95", "%"], ["step", "x", "1.9"],
    ]  # fmt: skip


def test_nothing_that_could_be_compared_is_not_nothing_found(tmp_path, capsys):
    (tmp_path / "t.md").write_text("|GPUs|images/s|\n|-|-|\n|1|100.0|\n|2|190.0|\n")
    assert audit.main([str(tmp_path / "t.md")]) == 2
    shown = capsys.readouterr()
    assert "nothing could be checked: of" in shown.err
    assert "efficiency  100 %   95 %" in shown.out  # what it implies is said all the same


def test_markdown_is_a_table(files, capsys):
    audit.main([str(files / "bad.md"), "--format=markdown"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| Where |") and lines[2].count(" | ") == lines[0].count(" | ") and "1.99" in lines[2]


def test_findings_and_notes_stay_bounded(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(auditing, "MAX_FINDINGS", 5)
    rows = "".join(f"|{n}|-{100 * n}|{n}|\n" for n in range(2, 40))
    (tmp_path / "t.md").write_text("|GPUs|images/s|speedup|\n|-|-|-|\n|1|100|1.00|\n|2|200|\n" + rows)
    assert audit.main([str(tmp_path / "t.md")]) == 1
    shown = capsys.readouterr()
    assert "more findings are not shown" in shown.out and "line 4: 2 of 3 cells" in shown.err


def test_the_command_starts_fast_and_never_loads_tensorflow(files):
    code = (
        "import sys; from rnn_scaling.commands import audit; audit.main(sys.argv[1:]); "
        "sys.exit(any(m in sys.modules for m in ('tensorflow', 'numpy', 'matplotlib')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(files / "bad.md")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "1.99" in done.stdout
