"""No text from a file controls the terminal."""

import contextlib
import functools
import importlib
import io
import json
import operator
import re
import sqlite3

import pytest

from rnn_scaling.records import record
from rnn_scaling.system import entry
from tests.inspection.trace_databases import databases
from tests.support import compared, log_samples

# A colour that this program once printed itself, others, a title, a turned line, and
# the end of a line with a heading behind it.
COLOURS = "\x1b[0m\x1b[30;48;5;1m\x1b[31m"
EVIL = f"{COLOURS}\x1b]0;title\x07\x9b2J\u202e\n# forged"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def run(name, *words):
    """Run a command with the streams of its process; return its output."""
    streams = [entry.PlainText(io.BytesIO(), "utf-8") for _ in range(2)]
    command = importlib.import_module(f"rnn_scaling.commands.{name}")
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        status = command.main([*map(str, words)])
    outputs = []
    for stream in streams:
        stream.flush()
        outputs.append(stream.buffer.getvalue().decode())
    assert status in (0, 1), outputs[1]
    return outputs


def assert_harmless(output):
    assert not CONTROLS.search(output)
    assert "\n# forged" not in output


def string_places(node, place=()):
    """Return the keys that lead to each string in a JSON document."""
    if isinstance(node, str):
        return [place]
    members = []
    if isinstance(node, dict):
        members = list(node.items())
    elif isinstance(node, list):
        members = list(enumerate(node))
    places = []
    for key, value in members:
        places += string_places(value, (*place, key))
    return places


def put_behind(document, place, text):
    """Put a text behind a string of a document."""
    *path, last = place
    functools.reduce(operator.getitem, path, document)[last] += text


def find_free_places(text):
    """Return the places of a record's strings that may hold any text."""
    places = []
    for place in string_places(json.loads(text)):
        document = json.loads(text)
        put_behind(document, place, EVIL)
        try:
            record.from_json(json.dumps(document), "x")
            places.append(place)
        except record.RecordError as error:
            assert_harmless(f"\n{error}")
    assert len(places) > 10
    return places


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two folders of records, before and after, whose strings are evil."""
    path = tmp_path_factory.mktemp("evil")
    for side in ("before", "after"):
        compared.write(path / side, [1000.0, 1001.0, 999.0])
    places = find_free_places((path / "before/run.json").read_text())
    for file in path.glob("*/*.json"):
        document = json.loads(file.read_text())
        for place in places:
            put_behind(document, place, EVIL)
        file.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    "command",
    [
        "report FOLDER/before --full",
        "compare FOLDER/before FOLDER/after",
        "history add FOLDER/before --history=FOLDER/history",
        "audit FOLDER/before",
    ],
)
def test_records_with_evil_strings(folder, command):
    words = [word.replace("FOLDER", str(folder)) for word in command.split()]
    for output in run(*words):
        assert_harmless(f"\n{output}")


@pytest.mark.parametrize("name", ["nccl_tests", "gnmt"])
def test_logs_with_evil_lines(tmp_path, name):
    path = tmp_path / f"{COLOURS}.log"
    lines = log_samples.ALL[name].splitlines()
    path.write_text("".join(f"{line}{COLOURS}\x07\u202e\n" for line in lines))
    for output in run("import_log", path, f"--format={name}"):
        assert_harmless(f"\n{output}")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_trace_database_with_evil_strings(tmp_path, form):
    path = tmp_path / "db"
    databases.nsys(path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE META_DATA_EXPORT SET value = value || ?", (EVIL,))
        db.execute(
            "INSERT INTO META_DATA_EXPORT VALUES (?, ?)", (f"A_VERSION{EVIL}", "1|2")
        )
        db.execute("UPDATE StringIds SET value = value || ?", (EVIL,))
        db.execute("UPDATE TARGET_INFO_GPU SET name = name || ?", (EVIL,))
    evil_path = path.rename(tmp_path / "db\x1b[31m")
    out, err = run("inspect", evil_path, f"--format={form}")
    assert err == ""
    assert "3.15.1" in out
    assert_harmless(f"\n{out}")
    if form == "text":
        [line] = (line for line in out.splitlines() if "SCHEMA_VERSION" in line)
        assert "forged" in line
        assert "1\\|2" in line
