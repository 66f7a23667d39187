"""The command report: the files that it reads, skips, writes and keeps; exit status."""

import errno
import json
import os
import subprocess
import sys
import tempfile

import pytest

from rnn_scaling.commands import report
from rnn_scaling.records import record
from rnn_scaling.records.own_files import REPORT_SCHEMA, is_own
from rnn_scaling.reports import curves, table
from rnn_scaling.reports.page import scaling
from rnn_scaling.reports.pictures import figures
from tests.support.paths import ROOT
from tests.support.records import read_fields
from tests.support.scaling_runs import (
    list_drawn_metrics,
    make_timed_run,
    run,
    series,
    summarise_records,
    write_folder,
)

FILES = {"table.md", "table.csv", "report.json", "report.html", "speedup.png"} | {
    f"{name}.svg" for name in list_drawn_metrics(summarise_records(series()))
}


@pytest.fixture
def undrawn(monkeypatch):
    """Leave out the page and the pictures, which take a third of a second.

    The tests that use this fixture are about the input.
    """
    monkeypatch.setattr(curves, "render", lambda summary: b"picture")
    monkeypatch.setattr(scaling, "render", lambda summary: b"page")
    monkeypatch.setattr(figures, "make_standalone", lambda figure: b"picture")


def test_report_reads_a_folder_and_leaves_out_what_is_no_record(tmp_path, capsys):
    write_folder(tmp_path, series())
    (tmp_path / "notes.json").write_text("{")
    assert report.main([str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "1,900" in out and "1.90" in out
    assert err.startswith(f"warning: {tmp_path}/notes.json: not JSON")
    assert report.main([str(tmp_path), "--full"]) == 0
    assert (tmp_path / "table.md").read_text().removesuffix(
        table.MARK
    ) in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} - FILES == {
        *(f"{i}.json" for i in range(6)),
        "notes.json",
    }
    assert report.main([str(tmp_path)]) == 0, "its own files do not stand in its way"
    assert "report.json" not in capsys.readouterr().err


@pytest.mark.usefixtures("undrawn")
def test_foreign_files_stay_unless_forced(tmp_path, capsys):
    source, target = write_folder(tmp_path / "runs", series()), tmp_path / "out"
    target.mkdir()
    (target / "table.md").write_text("mine")
    words = [str(source), f"--output={target}"]
    assert report.main(words) == 1
    assert "written by the report; --force" in capsys.readouterr().err
    assert [path.name for path in target.iterdir()] == ["table.md"]
    assert (target / "table.md").read_text() == "mine"
    assert report.main([*words, "--force"]) == 0
    assert {path.name for path in target.iterdir()} == FILES
    assert not (source / "table.md").exists()


@pytest.mark.usefixtures("undrawn")
def test_a_bad_record_is_named_and_the_good_one_reported(tmp_path, capsys):
    write_folder(tmp_path, [make_timed_run(1, 100)])
    fields = read_fields(make_timed_run(2, 140))
    fields["config"]["num_devices"] = 0
    (tmp_path / "bad.json").write_text(json.dumps(fields))
    assert report.main([str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert f"warning: {tmp_path}/bad.json: config.num_devices is 0; " in err
    assert "99.5 " in out


def test_a_missing_folder_and_an_empty_one_are_refused(tmp_path, capsys):
    for folder, status in ((f"{tmp_path}/missing", 2), (str(tmp_path), 1)):
        assert report.main([folder]) == status
        assert capsys.readouterr().err.startswith("error: ")


def test_a_folder_of_folders_is_not_read_as_one(tmp_path, capsys):
    for side in ("a", "b"):
        write_folder(tmp_path / side, [make_timed_run(1, 100)])
    assert report.main([str(tmp_path)]) == 1
    assert f"{tmp_path}/a, {tmp_path}/b contain some" in capsys.readouterr().err


def test_an_output_that_takes_nothing_is_not_the_folder(tmp_path):
    record.write(run(1, 500.0), tmp_path / "a.json")
    line = f"{sys.executable} -m rnn_scaling report {tmp_path} >/dev/full"
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    said = "error: output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.usefixtures("undrawn")
def test_a_folder_that_takes_no_file_is_named_with_the_way_out(
    tmp_path, capsys, monkeypatch
):
    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path / "tmpabc"))

    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    assert report.main([str(write_folder(tmp_path, [make_timed_run(1, 100)]))]) == 1
    said = f"error: {tmp_path}: cannot be written (Read-only file system); --output=DIR writes elsewhere\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    "name, text",
    [("table.md", f"about {REPORT_SCHEMA}\n"), ("table.csv", REPORT_SCHEMA + ",1\n")],
)
def test_a_text_about_reports_is_not_the_reports_own(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    assert not is_own(tmp_path / name)


def test_a_folder_whose_name_is_no_text_is_reported(tmp_path):
    folder_ = tmp_path / os.fsdecode(b"r\xff\x1b[31m")
    write_folder(folder_, [make_timed_run(1, 100)])
    assert report.main([str(folder_)]) == 0
    assert (
        "<title>Scaling of r\\xff\\x1b[31m</title>"
        in (folder_ / "report.html").read_text()
    )


def test_the_terminal_shows_one_table_and_where_the_rest_is(
    tmp_path, capsys, monkeypatch
):
    runs = [
        make_timed_run(n, 100, k, variable_update="replicated", seed=s)
        for n in (1, 2)
        for s in range(4)
        for k in range(2)
    ]
    write_folder(tmp_path, runs)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    assert report.main([str(tmp_path)]) == 0
    brief = capsys.readouterr().out
    lines = brief.splitlines()
    assert len(lines) < 30 and brief.count("─" * 60) == 1
    assert str(tmp_path / "report.html") in brief and "./run.sh sweep" not in brief
    # Only a path may be longer.
    assert all(len(line) <= 80 or str(tmp_path) in line for line in lines)
    assert report.main([str(tmp_path), "--full"]) == 0
    full = capsys.readouterr().out
    assert full.count("./run.sh sweep ") > 3 and full.count("─" * 60) > 4
