"""The one writer of Markdown tables."""

import re

import pytest

from rnn_scaling.reports import table
from rnn_scaling.system.files.markdown import format_cell, format_table
from tests.support.records import change_record
from tests.support.scaling_runs import make_timed_run, summarise_records


def test_padded_columns_line_up_with_numbers_to_the_right():
    text = format_table(["Devices", "words/s"], [["1", "100.5"], [16, 1234567.0]])
    assert text.splitlines() == [
        "| Devices | words/s |",
        "|--------:|--------:|",
        "|       1 |   100.5 |",
        "|      16 | 1234567 |",
    ]


def test_unpadded_lines_are_as_short_as_can_be():
    assert (
        format_table(["a", "wide"], [["x", "y"]], padded=False)
        == "| a | wide |\n| --- | --- |\n| x | y |\n"
    )


@pytest.mark.parametrize("padded", [True, False])
def test_no_text_breaks_out_of_its_cell(padded):
    text = format_table(["a|b"], [["x | y\n| z |\r\n\x1b[31m\u2028"]], padded)
    assert len(text.splitlines()) == 3 and "\x1b" not in text
    assert text.replace("\\|", "").count("|") == 6


def test_texts_of_records_are_no_html_and_no_links_in_a_report():
    evil = (
        "<img src=x onerror=alert(1)> [a](javascript:b) [c]: http://d/ <http://e> a|b"
    )
    parts = {"unit": "<b>items</b>", "environment": {"cpu": evil}, "log_format": evil}
    runs = []
    for k in (1, 2):
        config = {"trainer": evil, "hidden": evil, "num_devices": 1, "x": k}
        runs.append(change_record(make_timed_run(1, 100 + k), config=config, **parts))
    made = table.format_text(
        summarise_records([*runs, change_record(runs[0], environment={"cpu": "B"})])
    )
    assert "&lt;img" in made and not re.search(r"<(?!!--)|\]\(|\]:|://", made)
    lines = [line for line in made.splitlines() if line.startswith("|")]
    cells = {line.replace("\\|", "").count("|") for line in lines}
    assert len(cells) <= 2  # all lines of a table have the same number of cells


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "n/a"),
        (3, "3"),
        (2.0, "2"),
        (1 / 3, "0.333333"),
        (1e20, "1e+20"),
        (-1.5e-9, "-1.5e-09"),
    ],
)
def test_numbers_have_six_digits_and_whole_ones_all(value, text):
    assert format_cell(value) == text
