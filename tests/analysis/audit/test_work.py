"""For hostile tables, the counted work grows no faster than the file.

Long runs of blanks, dashes, pipes, digits, brackets and marks once took minutes of CPU.
"""

import re
import sys

import pytest

from rnn_scaling.analysis.audit import candidates, headings
from rnn_scaling.analysis.audit.auditing import audit
from rnn_scaling.records import cell_numbers
from rnn_scaling.records.tables import (
    documents,
    grids,
    headers,
    measurements,
    series,
    text_tables,
)
from tests.support import regex_steps

SHORT, LONG = 250, 1000  # letters of a run
MAX_GROWTH = 6.0  # the work's growth for a file of four times the size; squares: 16
MAX_TEXT = text_tables.MAX_CAPTION + cell_numbers.MAX_CELL_CHARACTERS + 1
RUNS = (" ", "-", "|", "1", "(", "*", "<", "1,", "a  ", "()")


def make_hostile_documents(run, length):
    """Return documents with runs of a length in lines, cells, headers and names."""
    text = (run * length)[:length]
    return [
        f"a  b\n1  {text}\n2  3{text}(\n4  5 ({text}\n6  7 ({text})\n",
        f"{text}\n{text}x\n{text}(\n{text}|\n",
        f"# {text}x\n# x{text}\n\n|a{text}b|b{text}|\n|-|-|\n|1|1|\n|2|2|\n|3|4|\n",
        f"|a|b|\n|-|-|\n|1{text}1|{text}x|\n|x{text}(|{text}|\n|3|4 ({text}|\n",
        "\n".join([f"|{text[:40]}|1|{text[-40:]}x|"] * (length // 80)),
    ]


class Recorder:
    """A pattern that hands every text it is applied to, and how, to `note`."""

    def __init__(self, pattern, note):
        self._pattern = pattern
        self._note = note

    def __getattr__(self, name):
        member = getattr(self._pattern, name)
        if not callable(member):
            return member

        def noted(*words):
            self._note(self._pattern, name, words[-1])
            return member(*words)

        return noted


def with_recorders(value, note):
    """Return a value of a module with its patterns replaced; None if it has none."""
    if isinstance(value, re.Pattern):
        return Recorder(value, note)
    if isinstance(value, tuple) and any(isinstance(one, re.Pattern) for one in value):
        return tuple(with_recorders(one, note) or one for one in value)
    return None


def work_of(texts, tmp_path, monkeypatch):
    """Return the steps of the patterns that see lines, and the calls of functions.

    All other patterns must see short texts only.
    """
    num_steps = 0

    def count_steps(pattern, operation, text):
        nonlocal num_steps
        num_steps += regex_steps.count(pattern, operation, text)

    def require_short(pattern, operation, text):
        assert len(text) <= MAX_TEXT, (pattern, operation)

    path = tmp_path / "x.txt"
    with monkeypatch.context() as patched:
        readers = (text_tables, documents, grids)
        others = (headers, measurements, series, cell_numbers, candidates, headings)
        for module in (*readers, *others):
            note = count_steps if module in readers else require_short
            for name, value in list(vars(module).items()):
                if recorder := with_recorders(value, note):
                    patched.setattr(module, name, recorder)
        for text in texts:
            path.write_text(text)
            audit(path)
    return {"steps": num_steps, "calls": count_audit_calls(texts, path)}


def count_audit_calls(texts, path):
    """Return the calls of functions that an audit of some files takes."""
    num_calls = 0

    def count_calls(_frame, event, _argument):
        nonlocal num_calls
        num_calls += event in ("call", "c_call")

    for cached in (headers.read_header, headers.find_quantity, cell_numbers._parse):
        cached.cache_clear()
    for text in texts:
        path.write_text(text)
        before = sys.getprofile()
        sys.setprofile(count_calls)
        try:
            audit(path)
        finally:
            sys.setprofile(before)
    return num_calls


@pytest.mark.parametrize("run", RUNS)
def test_four_times_the_run_is_four_times_the_work(run, tmp_path, monkeypatch):
    short = work_of(make_hostile_documents(run, SHORT), tmp_path, monkeypatch)
    long = work_of(make_hostile_documents(run, LONG), tmp_path, monkeypatch)
    for kind, amount in short.items():
        assert 0 < long[kind] <= MAX_GROWTH * amount, kind


def test_four_times_the_faults_are_four_times_the_work(tmp_path):
    def table(num_rows):
        lines = ["case,old (s),new (s),speedup"]
        for row in range(num_rows):
            seconds = row % 90 + 10
            speedup = 9.0 if row % 25 == 5 else 2.0
            lines.append(f"{row},{2 * seconds},{seconds},{speedup}")
        return "\n".join(lines)

    short, long = (
        count_audit_calls([table(n)], tmp_path / "x.csv") for n in (250, 1000)
    )
    assert long < MAX_GROWTH * short


def test_the_counter_notices_quadratic_work():
    squares = {
        r"\s+\([^()]*\)$": ("sub", " "),
        r"[\s|:+=-]*[-=]{2}[\s|:+=-]*": ("fullmatch", "-"),
        r"\s*,\s*": ("split", " "),
    }
    for pattern, (operation, letter) in squares.items():
        short, long = (
            regex_steps.count(re.compile(pattern), operation, f"{letter * length}x")
            for length in (SHORT // 4, LONG // 4)
        )
        assert long > 12 * short
