"""A damaged, replaced or incomplete operators' library ends no run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from rnn_scaling.models.extension import library
from tests.support.faults import alive, wait_until
from tests.support.paths import ROOT

LINKED = os.urandom(50_000)
ON_X86 = os.uname().sysname == "Linux" and os.uname().machine == "x86_64"

pytestmark = pytest.mark.skipif(not ON_X86, reason="the operators are for x86-64")


@pytest.fixture
def file(tf, tmp_path, monkeypatch):
    """Return the path of a whole library, which would end the process if loaded."""
    from rnn_scaling.models.extension import operators

    monkeypatch.setattr(operators, "FOLDER", tmp_path)
    monkeypatch.delenv(operators.SWITCH, raising=False)
    monkeypatch.setattr(operators, "_operators", lambda file: pytest.fail("loaded"))
    for cached in (operators._identity, operators._warn_once, operators.test):
        cached.cache_clear()
    path = operators.library_file()
    path.write_bytes(library.sealed(LINKED, path.name))
    return path


def flip_200_bytes(file):
    content = bytearray(file.read_bytes())
    for place in range(1000, 41_000, 200):
        content[place] ^= 0xFF
    file.write_bytes(content)


def flip_one_bit_of_the_seal(file):
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)


def replace_by_another_build(file):
    file.write_bytes(library.sealed(LINKED, "kernels-2.20.0-00000000.so"))


def replace_by_folder(file):
    file.unlink()
    file.mkdir()


def replace_by_fifo(file):
    file.unlink()
    os.mkfifo(file)


DAMAGES = {
    "empty": lambda file: os.truncate(file, 0),
    "one page": lambda file: os.truncate(file, 4096),
    "half": lambda file: os.truncate(file, 25_000),
    "without its seal": lambda file: file.write_bytes(LINKED),
    "one byte more": lambda file: file.write_bytes(file.read_bytes() + b"\0"),
    "200 bytes": flip_200_bytes,
    "the seal": flip_one_bit_of_the_seal,
    "another build": replace_by_another_build,
    "folder": replace_by_folder,
    "fifo": replace_by_fifo,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_is_not_loaded_and_one_line_says_so(file, capsys, damage):
    from rnn_scaling.models.extension import operators

    assert library.identify(file).size > len(LINKED)
    DAMAGES[damage](file)
    with pytest.raises(library.DamageError):
        library.identify(file)
    assert operators.instruction_set() is None
    assert operators.instruction_set() is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: ") and str(file) in line
    assert operators.choose("avx2")[0] is None
    assert operators.choose("off") == (None, "")


def replace_by_device(path):
    path.symlink_to("/dev/zero")


RESULTS = {
    "empty": lambda path: path.write_text(""),
    "not UTF-8": lambda path: path.write_bytes(b'{"size": 1, "sha256": "\xff\xfe"}'),
    "a part": lambda path: path.write_text('{"failure": ""}'),
    "deep": lambda path: path.write_text("[" * 30_000),
    "large": lambda path: path.write_text(" " * 1_000_000),
    "folder": lambda path: path.mkdir(),
    "fifo": os.mkfifo,
    "device": replace_by_device,
}


@pytest.mark.parametrize("kind", [*RESULTS, "escape sequence"])
def test_a_file_without_a_result_is_tested_again(file, monkeypatch, capfd, kind):
    """One line names it; the next process finds the new result, if a file can be kept."""
    from rnn_scaling.models import operators_check
    from rnn_scaling.models.extension import operators

    identity = library.identify(file)
    path = library.result_file(file, "avx2")
    if kind == "escape sequence":
        library.write_result(path, identity, "a\x1b]0;title\x07\x1b[31m")
    else:
        RESULTS[kind](path)
    calls = []
    monkeypatch.setattr(operators_check, "failure", lambda: calls.append(1) or "")
    for _ in range(2):
        assert operators.test(file, identity, "avx2") == ""
        operators.test.cache_clear()
    lines = capfd.readouterr().err.splitlines()
    assert len(calls) == len(lines) == (2 if kind == "folder" else 1)
    assert all(str(path) in line and line.isprintable() for line in lines)


def test_a_result_only_counts_for_its_library(file, monkeypatch):
    from rnn_scaling.models import operators_check
    from rnn_scaling.models.extension import operators

    path = library.result_file(file, "avx2")
    library.write_result(path, library.identify(file), "")
    kept = json.loads(path.read_text())
    assert kept["size"] == file.stat().st_size and len(kept["sha256"]) == 64
    file.write_bytes(library.sealed(LINKED + b"by another compiler", file.name))
    monkeypatch.setattr(operators_check, "failure", lambda: "losses differ")
    found = operators.test(file, library.identify(file), "avx2")
    assert found == "losses differ"
    assert json.loads(path.read_text())["failure"] == "losses differ"


# Like a compiler's driver, which starts the compiler and waits for it.
COMPILER = """#!/bin/sh
echo $$ >>{pids}
sleep 600 &
echo $! >>{pids}
: >"$TMPDIR/compiled.$$.s"
wait
"""
BUILD = """
import sys
from pathlib import Path
from rnn_scaling.models.extension import build, operators
operators.FOLDER = Path(sys.argv[1])
build.build()
"""


@pytest.fixture
def killed_build(tmp_path, monkeypatch):
    """Kill a build while it compiles; return the process ids of its compilers."""
    compiler = tmp_path / "cc"
    pids = tmp_path / "pids"
    compiler.write_text(COMPILER.format(pids=pids))
    compiler.chmod(0o755)
    for name in ("sources", "temporary"):
        (tmp_path / name).mkdir()
    variables = {"CC": str(compiler), "TMPDIR": str(tmp_path / "temporary")}
    running = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(tmp_path / "sources")],
        cwd=ROOT,
        env={**os.environ, **variables},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(
            lambda: pids.exists() and len(pids.read_text().split()) == 8,
            "four compilers run",
        )
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    return [int(word) for word in pids.read_text().split()]


def test_a_killed_build_leaves_no_compiler_and_nothing_among_the_sources(
    killed_build, tmp_path
):
    for pid in killed_build:
        wait_until(lambda pid=pid: not alive(pid), f"{pid} is gone")
    assert not list((tmp_path / "sources").iterdir())


def test_the_next_build_removes_what_killed_builds_left(
    tf, killed_build, tmp_path, monkeypatch
):
    from rnn_scaling.models.extension import build, operators

    sources, temporary = tmp_path / "sources", tmp_path / "temporary"
    assert len(list(temporary.iterdir())) == 1
    older = sources / "tmpab_12xyz.so"
    older.mkdir()
    (older / "avx2.o").write_text("")
    (sources / ".kernels-2.21.0-00000000.so.abc.tmp").write_text("")
    monkeypatch.setattr(operators, "FOLDER", sources)
    monkeypatch.setattr(build.tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("CC", "false")
    with pytest.raises(RuntimeError):
        build.build()
    assert not list(sources.iterdir()) and not list(temporary.iterdir())


def test_a_build_leaves_the_folder_of_one_that_runs(tmp_path, monkeypatch):
    from rnn_scaling.models.extension import build

    monkeypatch.setattr(build.tempfile, "tempdir", str(tmp_path))
    with build._workplace() as first:
        (first / "avx2.o").write_text("")
        with build._workplace() as second:
            assert first.is_dir() and second != first
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["half", "fifo", "folder"])
def test_a_damaged_library_is_built_again(file, tmp_path, monkeypatch, damage):
    """The compiler's part is replaced, since it takes long."""
    from rnn_scaling.models.extension import build

    def run_all(commands, folder):
        (folder / "kernels.so").write_bytes(LINKED)

    monkeypatch.setattr(build, "_run_all", run_all)
    DAMAGES[damage](file)
    if damage == "folder":
        with pytest.raises(OSError):
            build.build()
        return
    assert library.identify(build.build()).size > len(LINKED)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
