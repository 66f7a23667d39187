"""Texts that are no table, or whose lines are long: an answer in bounded time, and valid JSON."""

from __future__ import annotations

import pytest

from rnn_scaling.audit.auditing import audit
from rnn_scaling.reports import audit_report
from tests.support.mutations import valid_json

HEAD, ROWS = "| GPUs | img/s |\n| --- | --- |\n", "| 1 | 100 |\n| 2 | 190 |\n"


def rendered(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    reports = [audit(tmp_path / name)]
    for render in audit_report.RENDER.values():
        render(reports)
    return valid_json(audit_report.RENDER["json"](reports))["files"][0]


@pytest.mark.parametrize("cell", ["~4", "~1", "≈ 2", "~0", "1e999", "~", "0"])
def test_a_number_that_is_about_right_makes_valid_json(tmp_path, cell):
    for text in (f"{HEAD}| {cell} | 100 |\n| 8 | 380 |\n", f"{HEAD}| 1 | {cell} |\n| ~4 | {cell} |\n"):
        assert rendered(tmp_path, "x.md", text)["source"].endswith("x.md")


@pytest.mark.parametrize("name", ["x.md", "x.csv", "x.json", "x.jsonl", "x.html"])
@pytest.mark.parametrize(
    "text",
    ["\ufeff", "\ufeff\n \n", "[{}]", "[{}, {}]", '{"due":[],"odd":[]}', '[{"a":[]}]', "[[]]", "[[],[]]", "|", "||"],
)
def test_a_file_with_nothing_in_it_is_one_error(tmp_path, name, text):
    assert rendered(tmp_path, name, text)["error"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["=", "-", "|", ">", " ", "\t", "= ", "| ", "a ", "[a]", "(", "1,", "1 ", "=x", "`"])
def test_a_long_line_takes_no_time_beyond_its_length(tmp_path, piece):
    """Times out where a pattern takes the square of its line."""
    line = piece * 20_000
    for text in (
        line,
        f"{line}x",
        f"# a{line}x",
        f"{HEAD}| 1 | {line} |\n{ROWS}",
        f"a\n{line}x\n1 2\n",
        f"| GPUs {line}x | img/s |\n{ROWS}",
    ):
        rendered(tmp_path, "x.md", text)
