"""The page and its pictures: one file with every number, and weak and strong scaling apart."""

from __future__ import annotations

import html
import re

import pytest

from rnn_scaling.commands import report
from rnn_scaling.records.own_files import EDGE
from rnn_scaling.reports import conclusions, series_table, table
from rnn_scaling.reports.page import document
from rnn_scaling.reports.pictures import curves
from rnn_scaling.reports.series_statements import sentence
from tests.support.scaling_runs import (
    attributed,
    beside_load,
    of,
    run,
    series,
    timed,
    weak_and_strong,
    write_folder,
)


def test_the_plot_is_a_png_and_needs_a_rate():
    assert curves.render(of(series()))[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(ValueError, match="successful"):
        curves.render(of([run(1, 0.0, "failed")]))


def test_the_page_says_where_load_hides_a_part():
    rates = {("independent", 1): 100, ("independent", 2): 190, ("replicated", 1): 100, ("replicated", 2): 120}
    plain = _plain(document.render(of(beside_load(0.08, rates))).decode())
    assert "within the noise or the" in plain
    assert "the rest: within the noise" in plain


def test_the_page_is_one_file_with_every_number_and_escapes_names(tmp_path):
    hostile = timed(2, 140, 0, variable_update="replicated", all_reduce_spec="<script>alert(1)</script>")
    failed = {"variable_update": "replicated", "all_reduce_spec": "<b>"}
    made = of(
        [*attributed(), hostile, run(4, 1.0, "failed", variable_update="replicated"), run(2, 1.0, "failed", **failed)]
    )
    text = document.render(made).decode()
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text and "<b>" not in text
    assert not re.search(r"(?:src|href)=[\"'](?!#|data:,)", text)
    assert not re.search(r"url\((?!#)", text)
    plain = _plain(text)
    for each in made.series:
        assert sentence(each) in plain
        for row in table.rates_of(each).grids[0].lines:
            assert all(cell in plain for cell in row)
    assert "X: out of memory" in plain and "rnn_scaling.report/1" in text[:EDGE]


def _plain(text):
    """What a reader reads."""
    return html.unescape(re.sub(r"</?span[^>]*>", "", text)).replace("\u00a0", " ")


def test_the_overview_has_a_line_for_each_series_with_its_speedup_first():
    made = of([*weak_and_strong(), run(2, 1.0, "failed", variable_update="parameter_server")])
    tables = [(section.title, section.grids[0]) for section in series_table.sections(made)]
    assert tables[0][1].head[:3] == ["Series", "Speedup on 2 devices", "Efficiency on 2 devices (%)"]
    lines = {title: cells for _, grid in tables for title, *cells in grid.lines}
    assert list(lines) and set(lines) == {each.title for each in made.series}
    numbers = [cell.split(" ± ")[0] for cell in lines["cudnn_lstm, replicated"]]
    assert numbers == ["1.40", "70.0", "140.0", "100.0", "3"]
    assert lines["cudnn_lstm, parameter_server"][-1] == "none succeeded"
    assert [title for title, _ in tables] == ["Weak scaling", "Strong scaling"]
    several = [
        timed(n, 90 * n, k, variable_update=m)
        for m, n in (("independent", 1), ("independent", 2), ("replicated", 1), ("replicated", 4))
        for k in range(2)
    ]
    assert series_table.sections(of(several))[0].grids[0].head[1:3] == ["Devices", "Speedup"]


def test_a_picture_says_its_numbers_to_who_does_not_see_it():
    text = _plain(document.render(of(attributed())).decode())
    described = re.findall(r"<desc[^>]*>(.*?)</desc>", text)
    assert any("cudnn_lstm, replicated: 70.0 ± 0." in each and "Axis from 64" in each for each in described)
    assert any(re.search(r"cudnn_lstm, replicated: 1.00 on 1, 1.40 ± 0.0\d on 2\.", each) for each in described)
    assert any(
        re.search(r"points of efficiency lost: exchange 20.0 ± [\d.]+, contention 10.0 ± [\d.]+;", each)
        for each in described
    )
    assert all(re.search(r"\d", each) for each in described)


def test_a_loss_has_one_sign_in_picture_and_table():
    text = _plain(document.render(of(attributed())).decode())
    losses = text[text.index('id="loss"') : text.index('id="rates"')]
    (drawn,) = re.findall(r">(20.0 ± [\d.]+)</text>", losses)
    assert f"<td>{drawn}</td>" in losses
    assert "with a gap: begins at 0, cut" in losses and "not from 0)</text>" in losses
    assert "\u2212" not in losses and ">-20" not in losses


def test_what_cannot_be_told_is_one_sentence_and_no_picture():
    text = document.render(
        of([timed(n, rate, variable_update="replicated") for n, rate in ((1, 90.0), (2, 150.0))])
    ).decode()
    assert 'id="waterfall-0-t"' not in text and "Numbers of this loss" not in text
    losses = text[text.index('id="loss"') : text.index('id="rates"')]
    assert losses.count("<p>") == 1


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
    assert text.count('role="img"') == 1 + 3 + 24 + 24 and text.count('<div id="series-') == 30
    assert "the tables have 18 more" in text


def test_weak_and_strong_scaling_have_an_answer_and_pictures_of_their_own(tmp_path):
    made = of(weak_and_strong())
    said = conclusions.lead(made)
    assert said.startswith("Weak scaling: One of 2 series")
    assert "Strong scaling: cudnn_lstm, independent," in said
    assert conclusions.overview(made).startswith(
        "Weak scaling: 2 series reach"
    ) and "strong" not in conclusions.overview(made)
    text = document.render(made).decode()
    assert text.count('id="fig-speedup-t"') == text.count('id="fig-speedup-1-t"') == 1
    assert text.count("<h3>Strong scaling</h3>") == 2, "in the overview and over the curves"
    assert report.main([str(write_folder(tmp_path, weak_and_strong()))]) == 0
    assert "replicated" not in (tmp_path / "speedup_strong.svg").read_text()
    assert "strong" not in (tmp_path / "speedup.svg").read_text()


def test_runs_that_are_too_short_to_judge_are_not_called_unsteady():
    def counts(*batches):
        runs = [timed(1 + k % 2, 100.0, k, batches=count) for k, count in enumerate(batches)]
        made = document._steady_statements(of(runs))
        return {statement.kind: list(statement.values.values())[0] for statement in made}

    assert counts(20) == {"steady-too-short": 1} and counts(20, 25) == {"steady-too-short": 2}
    assert counts(40)["steady-runs"] == 1 and "steady-too-short" not in counts(40, 50)
    assert counts(20, 40)["steady-runs"] == counts(20, 40)["steady-too-short"] == 1
