"""A damaged, replaced or incomplete operators' library ends no run."""

import json
import os
import signal
import subprocess
import sys

import pytest

from rnn_scaling.models import operators_check
from rnn_scaling.models.extension import build, cache, library, operators, switch
from tests.support.faults import is_alive, wait_until
from tests.support.paths import ROOT

LINKED = os.urandom(50_000)
ON_X86 = os.uname().sysname == "Linux" and os.uname().machine == "x86_64"

pytestmark = pytest.mark.skipif(not ON_X86, reason="the operators are for x86-64")


@pytest.fixture
def file(tf, tmp_path, monkeypatch):
    """Return the path of a whole library, which would end the process if loaded."""
    folder = tmp_path / "sources"
    folder.mkdir()
    monkeypatch.setattr(operators, "FOLDER", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(operators.SWITCH, raising=False)
    monkeypatch.setattr(
        operators, "_load_operators", lambda file: pytest.fail("loaded")
    )
    for cached in (operators._read_identity, operators._warn_once, operators.test):
        cached.cache_clear()
    path = operators.find_library_file()
    path.write_bytes(library.seal(LINKED, path.name))
    return path


def flip_200_bytes(file):
    content = bytearray(file.read_bytes())
    for place in range(1000, 41_000, 200):
        content[place] ^= 0xFF
    file.write_bytes(content)


def flip_one_bit_of_seal(file):
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)


def replace_by_another_build(file):
    file.write_bytes(library.seal(LINKED, "kernels-2.20.0-00000000.so"))


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
    "the seal": flip_one_bit_of_seal,
    "another build": replace_by_another_build,
    "folder": replace_by_folder,
    "fifo": replace_by_fifo,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_is_not_loaded_and_one_line_says_so(file, capsys, damage):
    assert library.identify(file).size > len(LINKED)
    DAMAGES[damage](file)
    with pytest.raises(library.DamageError):
        library.identify(file)
    assert operators.find_instruction_set() is None
    assert operators.find_instruction_set() is None
    [line] = capsys.readouterr().err.splitlines()
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
    identity = library.identify(file)
    path = library.find_result_file(file, "avx2")
    if kind == "escape sequence":
        library.write_result(path, identity, "a\x1b]0;title\x07\x1b[31m")
    else:
        RESULTS[kind](path)
    calls = []
    monkeypatch.setattr(operators_check, "find_failure", lambda: calls.append(1) or "")
    for _ in range(2):
        assert operators.test(file, identity, "avx2") == ""
        operators.test.cache_clear()
    lines = capfd.readouterr().err.splitlines()
    assert len(calls) == len(lines) == (2 if kind == "folder" else 1)
    assert all(str(path) in line and line.isprintable() for line in lines)


def test_a_result_only_counts_for_its_library(file, monkeypatch):
    path = library.find_result_file(file, "avx2")
    library.write_result(path, library.identify(file), "")
    kept = json.loads(path.read_text())
    assert kept["size"] == file.stat().st_size and len(kept["sha256"]) == 64
    file.write_bytes(library.seal(LINKED + b"by another compiler", file.name))
    monkeypatch.setattr(operators_check, "find_failure", lambda: "losses differ")
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
    variables = {
        "CC": str(compiler),
        "TMPDIR": str(tmp_path / "temporary"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    own_sets = switch.list_supported_sets(switch.read_processor_instructions())
    num_pids = 2 * (len(own_sets) + 1)  # each instruction set, and kernels.c
    running = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(tmp_path / "sources")],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(
            lambda: pids.exists() and len(pids.read_text().split()) == num_pids,
            "all compilers run",
        )
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    return [int(word) for word in pids.read_text().split()]


def test_a_killed_build_leaves_no_compiler_and_the_next_build_removes_its_files(
    tf, killed_build, tmp_path, monkeypatch
):
    for pid in killed_build:
        wait_until(lambda pid=pid: not is_alive(pid), f"{pid} is gone")
    sources, temporary = tmp_path / "sources", tmp_path / "temporary"
    assert not list(sources.iterdir())
    assert len(list(temporary.iterdir())) == 1
    older = sources / "tmpab_12xyz.so"
    older.mkdir()
    (older / "avx2.o").write_text("")
    (sources / ".kernels-2.21.0-00000000.so.abc.tmp").write_text("")
    monkeypatch.setattr(operators, "FOLDER", sources)
    monkeypatch.setattr(build.tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "false")
    with pytest.raises(RuntimeError):
        build.build()
    assert not list(sources.iterdir()) and not list(temporary.iterdir())


def test_a_build_leaves_the_folder_of_one_that_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(build.tempfile, "tempdir", str(tmp_path))
    with build._make_build_folder() as first:
        (first / "avx2.o").write_text("")
        with build._make_build_folder() as second:
            assert first.is_dir() and second != first
    assert not list(tmp_path.iterdir())


@pytest.fixture
def compilations(monkeypatch):
    """Return the commands that a build would run; nothing is compiled."""
    commands_of_builds = []

    def run_all(commands, folder):
        (folder / "kernels.so").write_bytes(LINKED)
        commands_of_builds.append(commands)

    monkeypatch.setattr(build, "_run_all", run_all)
    return commands_of_builds


@pytest.mark.parametrize("damage", ["half", "fifo", "folder"])
def test_a_damaged_library_is_built_again(file, compilations, damage):
    DAMAGES[damage](file)
    if damage == "folder":
        with pytest.raises(OSError):
            build.build()
        return
    built, _ = build.build()
    assert library.identify(built).size > len(LINKED)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_another_checkout_copies_the_library_and_its_test(
    file, compilations, tmp_path, monkeypatch
):
    library.write_result(
        library.find_result_file(file, "avx2"), library.identify(file), ""
    )
    cache.keep(file)
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(operators, "FOLDER", other)
    copied, origin = build.build()
    assert origin == "copied from the cache" and not compilations
    assert copied.parent == other and copied.read_bytes() == file.read_bytes()
    result = library.find_result_file(copied, "avx2")
    assert library.read_result(result, library.identify(copied)) == ""


@pytest.mark.parametrize("damage", ["half", "fifo", "folder", "another build"])
def test_a_damaged_library_of_the_cache_is_not_copied(
    file, compilations, tmp_path, monkeypatch, damage
):
    cache.keep(file)
    DAMAGES[damage](cache.find_folder() / file.name)
    monkeypatch.setattr(operators, "FOLDER", tmp_path)
    _, origin = build.build()
    assert origin == "built" and compilations


def test_the_cache_keeps_the_newest_libraries(file):
    for number in range(cache.MAX_LIBRARIES + 3):
        name = f"kernels-1.0-{number}-avx2.so"
        library_file = file.with_name(name)
        library_file.write_bytes(library.seal(LINKED, name))
        os.utime(library_file, (number, number))
        cache.keep(library_file)
        os.utime(cache.find_folder() / name, (number, number))
    kept = sorted(path.name for path in cache.find_folder().iterdir())
    assert len(kept) == cache.MAX_LIBRARIES
    assert "kernels-1.0-0-avx2.so" not in kept


@pytest.mark.parametrize("place", ["file", "read-only", "relative"])
def test_without_a_cache_folder_the_build_works(
    file, compilations, tmp_path, monkeypatch, place
):
    places = {
        "file": str(tmp_path / "file"),
        "read-only": "/proc/none",
        "relative": "relative",
    }
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", places[place])
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    file.unlink()
    built, origin = build.build()
    cache.keep(built)
    assert origin == "built" and library.identify(built)
    assert not (tmp_path / "relative").exists()


def test_a_library_of_another_processor_is_loaded_if_there_is_no_own(file):
    """Load it from a wheel, or from a folder that several machines share."""
    others = file.with_name(f"{operators.make_library_prefix()}sse9.so")
    others.write_bytes(library.seal(LINKED, others.name))
    assert operators.find_library_file() == file
    file.unlink()
    assert operators.find_library_file() == others
    others.unlink()
    assert operators.find_library_file() == operators.own_library_file() == file


@pytest.mark.parametrize(
    "instructions, sets",
    [
        ("sse2", []),
        ("avx2", []),
        ("avx2 fma", ["avx2"]),
        ("avx2 fma avx512f avx512bw avx512vl avx512dq", ["avx2", "avx512"]),
        ("avx512_bf16 avx512f", []),
    ],
)
def test_supported_sets_need_all_their_instructions(tmp_path, instructions, sets):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor : 0\nflags\t\t: {instructions}\n")
    present = switch.read_processor_instructions(cpuinfo)
    assert switch.list_supported_sets(present) == sets
    assert switch.read_processor_instructions(tmp_path / "none") == []
