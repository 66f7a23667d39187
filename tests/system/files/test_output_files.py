"""All ways of writing a file, at a path that already exists."""

import os
import re

import pytest

from rnn_scaling.system.files import output_files
from tests.support.names_taken import KINDS, put
from tests.support.paths import ROOT


def write_through(opened):
    with opened as file:
        file.write("ours")


WAYS = {
    "whole": lambda path: output_files.write_text("ours", path),
    "by lines": lambda path: write_through(output_files.open_new(path)),
    "again": lambda path: write_through(
        os.fdopen(output_files.open_own(path, os.O_WRONLY | os.O_APPEND), "w")
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_what_another_name_leads_to_is_never_written(tmp_path, way, kind):
    path, precious = tmp_path / "out/.run.json.rank1", tmp_path / "precious"
    put(kind, path, precious)
    if kind == "hard link" and way != "again":
        WAYS[way](path)
        assert path.stat().st_size and not path.samefile(precious)
    else:
        with pytest.raises(OSError):
            WAYS[way](path)
        assert os.path.lexists(path)
    assert precious.read_text() == "mine\n" and not (tmp_path / "nowhere").exists()


def test_a_name_that_is_free_or_a_file_of_before_is_written(tmp_path):
    for content in ("free", "a longer file than what comes after"):
        for way in ("whole", "by lines"):
            WAYS[way](tmp_path / "file")
            assert (tmp_path / "file").read_text() == "ours"
        (tmp_path / "file").write_text(content)


def test_no_other_module_makes_files_by_name():
    """Allow exceptions for folders that a module has created, /proc and /dev."""
    makes = re.compile(
        r"\.write_(text|bytes)\(|\bopen\([^)\n]*[\"'][wax]b?\+?[\"']|O_CREAT"
    )
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.glob("rnn_scaling/**/*.py")
        if makes.search(path.read_text())
    }
    # Hooks run in the Python of a user's program and import no other package.
    hooks = {f"hooks/{name}.py" for name in ("ranks", "steps", "torch")}
    apart = {"links/processes.py", *hooks}
    assert found == {
        f"rnn_scaling/{name}" for name in (*apart, "system/files/output_files.py")
    }
