"""The command audit: exit status, formats, one-line errors, and fast imports."""

import json

import pytest

from rnn_scaling.commands import audit

GOOD = "|GPUs|images/s|speedup|\n|-|-|-|\n|1|100.0|1.00|\n|2|190.0|1.90|\n|4|360.0|3.60|\n|8|680.0|6.80|\n"
BAD = GOOD.replace("3.60", "3.06")


@pytest.fixture
def files(tmp_path):
    contents = {
        "good.md": GOOD.encode(),
        "bad.md": BAD.encode(),
        "prose.md": b"Nothing here but 2 words.\n\nAnd 1 | 2 more.\n",
        "empty.txt": b"",
        "blank.txt": b"\n \n",
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
    "name, status, reason",
    [
        ("good.md", 0, ""),
        ("bad.md", 1, ""),
        ("prose.md", 2, "no table"),
        ("utf16.txt", 2, "UTF-16"),
        ("deep.json", 2, "nested too deeply"),
        ("newer.json", 2, "rnn_scaling.run/9"),
        ("folder", 2, "run records"),
    ],
)
def test_exit_status_and_the_error_line(files, capsys, name, status, reason):
    assert audit.main([str(files / name)]) == status
    errors = [
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("error: ")
    ]
    assert len(errors) == (1 if reason else 0)
    assert all(str(files / name) in line and reason in line for line in errors)


def test_a_readable_file_is_reported_next_to_an_unreadable_one(files, capsys):
    assert (
        audit.main([str(files / "broken.json"), str(files / "bad.md"), "--format=json"])
        == 1
    )
    reports = json.loads(capsys.readouterr().out)["files"]
    assert [bool(report["error"]) for report in reports] == [True, False]
    [finding] = reports[1]["findings"]
    assert {place["line"] for place in finding["places"]} == {5}
    assert finding["statements"][0]["kind"] == "audit-one-of"


@pytest.mark.parametrize("words", [[], ["--max_numbers=0", "x"]])
def test_wrong_use(words, capsys):
    assert audit.main(words) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_text_has_file_line_value_and_the_marked_row(files, capsys):
    audit.main([str(files / "bad.md")])
    out = capsys.readouterr().out
    assert out.startswith(f"{files / 'bad.md'}:5: ")
    assert ">3.06<" in out
    assert ">360.0<" in out


def test_markdown_is_a_table(files, capsys):
    audit.main([str(files / "bad.md"), "--format=markdown"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| Where |")
    assert lines[2].count(" | ") == lines[0].count(" | ")
    assert "3.06" in lines[2]


def test_a_folder_of_documents(files, capsys):
    for name in ("broken.json", "deep.json", "newer.json", "utf16.txt"):
        (files / name).unlink()
    assert audit.main([str(files)]) == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    assert f"{files / 'bad.md'}:5: " in captured.out
    assert f"{files / 'latin.md'}:5: " in captured.out
    (files / "bad.md").unlink(), (files / "latin.md").unlink()
    assert audit.main([str(files)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2, (
        "one line for all, one for those without numbers"
    )
