"""The page and its pictures: one file with every number, and weak and strong scaling apart."""

from __future__ import annotations

import html
import re

import pytest

from rnn_scaling.commands import report
from rnn_scaling.records.own_files import EDGE
from rnn_scaling.reports import answer, table
from rnn_scaling.reports.page import document
from rnn_scaling.reports.pictures import plot
from tests.support.scaling_runs import attributed, of, run, series, timed, weak_and_strong, write_folder


def test_the_plot_is_a_png_and_needs_a_rate():
    assert plot.render(of(series()))[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(ValueError, match="successful"):
        plot.render(of([run(1, 0.0, "failed")]))


def test_the_page_is_one_file_with_every_number_and_escapes_names(tmp_path):
    hostile = timed(2, 140, 0, variable_update="replicated", all_reduce_spec="<script>alert(1)</script>")
    made = of([*attributed(), hostile, run(4, 1.0, "failed", variable_update="replicated")])
    text = document.render(made).decode()
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text
    assert not re.search(r"(?:src|href)=[\"'](?!#|data:,)", text)
    assert not re.search(r"url\((?!#)", text)
    plain = html.unescape(text).replace("\u00a0", " ")
    for each in made.series:
        assert answer.sentence(each) in plain
        for row in table.grid([r.row for r in each.rows])[1]:
            assert all(cell in plain for cell in row)
    assert "X: out of memory" in plain and "rnn_scaling.report/1" in text[:EDGE]


def test_every_id_on_the_page_is_unique_and_every_reference_has_one():
    text = document.render(of(attributed())).decode()
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    used = re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text)
    used += [name for names in re.findall(r'aria-labelledby="([^"]+)"', text) for name in names.split()]
    assert used and set(used) <= set(ids)


def test_more_series_than_are_drawn_are_still_in_the_tables():
    runs = [timed(n, 90 * n + 10, k, batch_size=size) for size in range(1, 31) for n in (1, 2) for k in range(3)]
    text = document.render(of(runs)).decode()
    assert text.count('role="img"') == 3 + 24 + 24 and text.count('<h3 id="series-') == 30
    assert "the tables have 18 more" in text


def test_weak_and_strong_scaling_have_an_answer_and_pictures_of_their_own(tmp_path):
    made = of(weak_and_strong())
    said = answer.lead(made)
    assert said.startswith("Weak scaling: One of the 2 series trains one model. cudnn_lstm, replicated")
    assert "Strong scaling: cudnn_lstm, independent, strong" in said
    assert answer.overview(made).startswith("Weak scaling: 2 series reach") and "strong" not in answer.overview(made)
    text = document.render(made).decode()
    assert text.count('id="fig-speedup-t"') == text.count('id="fig-speedup-1-t"') == 1
    assert text.count("<h3>Strong scaling</h3>") == 1
    assert report.main([str(write_folder(tmp_path, weak_and_strong()))]) == 0
    assert "replicated" not in (tmp_path / "speedup_strong.svg").read_text()
    assert "strong" not in (tmp_path / "speedup.svg").read_text()
