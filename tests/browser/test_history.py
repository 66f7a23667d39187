"""The page of a history in a real browser."""

import dataclasses

import pytest

from rnn_scaling.analysis.history import curves
from rnn_scaling.commands import history
from rnn_scaling.reports.page import history as page_of_history
from tests.support import histories


@pytest.fixture
def show(visit, tmp_path, monkeypatch):
    """Return a function that opens the page of a history of these rates."""
    monkeypatch.chdir(tmp_path)

    def call(rates, *words, anchor="", **context):
        if not (tmp_path / "history").exists():
            histories.write(tmp_path / "history", rates)
            assert history.main(["show", *words]) == 0
        address = (tmp_path / "history/history.html").as_uri()
        return visit(f"{address}{anchor}", **context)

    return call


def test_points_lead_to_commits_and_nothing_is_fetched(show):
    page = show(
        [1000.0] * 20 + [900.0] * 5,
        "--commit_url=https://example.org/c/",
        viewport={"width": 390, "height": 844},
    )
    addresses = page.evaluate(
        "[...document.querySelectorAll('.live a')].map((a) => a.href.baseVal ?? a.href)"
    )
    commits = {f"https://example.org/c/{histories.make_commit(n)}" for n in range(25)}
    assert commits <= set(addresses)
    assert page.evaluate("document.body.scrollWidth") <= 390


def test_a_click_on_a_point_without_an_address_keeps_the_choices(show):
    page = show([1000.0] * 3, anchor="#metric=words_per_second")
    before = page.url
    page.locator(".picture a").first.click()
    assert page.url == before


def test_steps_of_several_configurations_at_one_entry_are_one_mark():
    entries = []
    for number, rates in enumerate(
        histories.scatter_rates([1000.0] * 20 + [900.0] * 5)
    ):
        made = histories.entry(number, rates)
        [part] = made.configurations
        other = dataclasses.replace(
            part, options={**part.options, "encoder_type": "dynamic_rnn"}
        )
        entries.append(dataclasses.replace(made, configurations=(part, other)))
    shown = curves.build_timeline(entries)
    assert [len(curve.change_points) for curve in shown.curves] == [1, 1]
    marks = page_of_history._make_explorer(shown, "").marks
    assert len({(mark.axis, mark.x) for mark in marks}) == len(marks) == 2
    assert marks[0].text.count("%") == 2
