"""Input files: special files, too large files and unusable JSON are refused at once."""

import io
import math
import os
import socket

import pytest

from rnn_scaling.system.files import input_files
from tests.support.mutations import parse_json
from tests.support.paths import ROOT


@pytest.fixture(autouse=True)
def default_limit():
    yield
    input_files.allow(input_files.DEFAULT_MB)


def place(tmp_path, kind):
    """Create an object of a kind that readers must refuse; return its path."""
    path = tmp_path / "x.json"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a named pipe":
        os.mkfifo(path)
    elif kind == "a socket":
        socket.socket(socket.AF_UNIX).bind(os.path.relpath(path))
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(10**12)
    elif kind == "a circle":
        path.symlink_to(path)
    elif kind == "a link to nothing":
        path.symlink_to("nowhere")
    return path


@pytest.mark.parametrize(
    "kind, reason",
    [
        ("a folder", "a folder; expected a regular file"),
        ("a named pipe", "a named pipe; expected a regular file"),
        ("a socket", "a socket; expected a regular file"),
        ("a device", "a device; expected a regular file"),
        (
            "sparse",
            "1000000 MB exceeds the limit of 128 MB; --max_file_mb=1000000 raises it",
        ),
        ("a circle", "Too many levels of symbolic links"),
        ("a link to nothing", "No such file or directory"),
    ],
)
def test_what_is_no_file_of_a_size_that_is_read_is_named_at_once(
    tmp_path, monkeypatch, kind, reason
):
    monkeypatch.chdir(tmp_path)
    path = place(tmp_path, kind)
    with pytest.raises(OSError) as refused:
        input_files.read_bytes(path)
    assert refused.value.strerror == reason
    assert refused.value.filename == os.fspath(path)


@pytest.mark.parametrize(
    "name, reason", [("a\0b", input_files.NUL_BYTE), ("x" * 300, "File name too long")]
)
def test_names_that_no_file_can_have(name, reason):
    with pytest.raises(OSError) as refused:
        input_files.open_regular(name)
    assert refused.value.strerror == reason


def test_a_link_to_a_file_is_read_and_so_is_a_name_that_is_no_utf_8(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff"
    with open(path, "wb") as file:
        file.write(b"\xef\xbb\xbfone\n\xff")
    (tmp_path / "link").symlink_to(os.fsdecode(path))
    assert (
        input_files.read_text(tmp_path / "link")
        == input_files.read_text(os.fsdecode(path))
        == "one\n\ufffd"
    )


def test_a_file_that_changes_places_before_it_is_opened_is_looked_at_again(
    tmp_path, monkeypatch
):
    path, look = tmp_path / "x", os.stat
    path.write_bytes(b"x")

    def look_and_replace(*words, **options):
        status = look(*words, **options)
        path.unlink()
        os.mkfifo(path)
        return status

    monkeypatch.setattr(os, "stat", look_and_replace)
    with pytest.raises(OSError, match="a named pipe"):
        input_files.open_regular(path)


@pytest.mark.parametrize(
    "read",
    [
        io.BufferedReader.read,
        lambda file: [*file],
        lambda file: file.read(1 << 30),
        lambda file: file.readline(),
    ],
)
def test_a_file_that_grows_while_it_is_read_ends_at_the_limit(tmp_path, read):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1_000_000)
    input_files.allow(1)
    assert len(input_files.read_bytes(path)) == 1_000_000
    with input_files.open_regular(path) as file:
        with path.open("ab") as writer:
            writer.write(b"x" * 1_000_000)
        with pytest.raises(
            OSError, match="exceeds the limit of 1 MB; --max_file_mb=2 raises it"
        ):
            read(file)


def test_what_is_read_again_from_its_start_counts_once(tmp_path):
    (tmp_path / "log").write_bytes(b"x\n" * 500_000)
    input_files.allow(1)
    with input_files.open_regular(tmp_path / "log") as file:
        for _ in range(3):
            assert len(file.read()) == 1_000_000
            file.seek(0)


@pytest.mark.parametrize(
    "text, reason",
    [
        ('{"a":\n', "not JSON (Expecting value at line 2)"),
        (f"[{'1' * 5000}]", "contains a number with thousands of digits"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        (f"[{'[], ' * 200} {'[' * 200}{']' * 200}]", "nested too deeply"),
    ],
)
def test_text_that_nothing_can_compute_with_is_refused(text, reason):
    with pytest.raises(input_files.JsonError) as refused:
        input_files.parse_json(text)
    assert str(refused.value) == reason


def test_json_within_the_limits_is_what_it_says():
    flat = f"[{'[1], ' * 200} {'[' * 99}{']' * 99}]"
    assert input_files.parse_json(flat)[0] == [1]
    assert input_files.parse_json(
        '{"\\ud800": ["\\udcff", "\\ud83d\\ude42 \\u00fc", 1.5, null]}'
    ) == {"?": ["?", "\U0001f642 \u00fc", 1.5, None]}


def test_what_is_printed_as_json_is_json_whatever_the_numbers():
    content = {"a": [1.5, math.nan, (math.inf, {"b": -math.inf})], "c": "é"}
    assert parse_json(input_files.format_json(content)) == {
        "a": [1.5, None, [None, {"b": None}]],
        "c": "é",
    }


# Modules whose JSON no command prints: messages between processes, keys, and files that
# are read back.
OTHERS = {
    "records/tables/documents.py",
    "cluster/launch.py",
    "cluster/rank_info.py",
    "cluster/tokens.py",
    "cluster/wire.py",
    "frameworks/loop.py",
    "hooks/observer.py",
    "hooks/keras.py",
    "hooks/ranks.py",
    "hooks/steps.py",
    "verification/scripts/runner.py",
    "records/importers/nccl_tests.py",
    "inspection/chrome.py",
    "links/processes.py",
    "records/history.py",
    "records/record.py",
    "records/sealed_files.py",
    "reports/explorer.py",
    "system/files/input_files.py",
}


def test_every_command_prints_json_through_the_door():
    package = ROOT / "rnn_scaling"
    writers = {
        p.relative_to(package).as_posix()
        for p in package.rglob("*.py")
        if "json.dump" in p.read_text()
    }
    assert writers <= OTHERS, "use input_files.format_json"
