"""The page of a history in a real browser."""

from __future__ import annotations

import dataclasses

from rnn_scaling.analysis.history import curves
from rnn_scaling.commands import history
from rnn_scaling.reports.page import history as page_of_history
from tests.support import histories


def test_points_lead_to_commits_and_nothing_is_fetched(browser, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    histories.write(tmp_path / "history", [1000.0] * 20 + [900.0] * 5)
    assert history.main(["show", "--commit_url=https://example.org/c/"]) == 0
    seen = []
    with browser.new_context(
        viewport={"width": 390, "height": 844}, offline=True
    ) as context:
        page = context.new_page()
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on(
            "request",
            lambda request: request.url.startswith("file:") or seen.append(request.url),
        )
        page.goto((tmp_path / "history" / "history.html").as_uri())
        addresses = page.evaluate(
            "[...document.querySelectorAll('.live a')].map((a) => a.href.baseVal ?? a.href)"
        )
        wide = page.evaluate("document.body.scrollWidth")
    assert {
        f"https://example.org/c/{histories.commit_of(n)}" for n in range(25)
    } <= set(addresses)
    assert seen == [] and wide <= 390


def test_a_click_on_a_point_without_an_address_keeps_the_choices(
    browser, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    histories.write(tmp_path / "history", [1000.0] * 3)
    assert history.main(["show"]) == 0
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(
            (tmp_path / "history" / "history.html").as_uri()
            + "#metric=words_per_second"
        )
        before = page.url
        page.locator(".picture a").first.click()
        after = page.url
    assert after == before


def test_without_scripts_and_in_print_the_static_picture_is_there(
    browser, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    histories.write(tmp_path / "history", [1000.0] * 3)
    assert history.main(["show"]) == 0
    seen = []
    for has_scripts, media in ((False, "screen"), (True, "print")):
        with browser.new_context(java_script_enabled=has_scripts) as context:
            page = context.new_page()
            page.emulate_media(media=media)
            page.goto((tmp_path / "history" / "history.html").as_uri())
            seen.append(
                (
                    page.locator(".first svg.plot").is_visible(),
                    "viewBox" in page.locator("main").inner_text(),
                )
            )
    assert seen == [(True, False)] * 2


def test_steps_of_several_configurations_at_one_entry_are_one_mark():
    entries = []
    for number, rates in enumerate(histories.scattered([1000.0] * 20 + [900.0] * 5)):
        made = histories.entry(number, rates)
        [part] = made.configurations
        other = dataclasses.replace(
            part, options={**part.options, "encoder_type": "dynamic_rnn"}
        )
        entries.append(dataclasses.replace(made, configurations=(part, other)))
    shown = curves.timeline(entries)
    assert [len(curve.steps) for curve in shown.curves] == [1, 1]
    marks = page_of_history._data(shown, "").marks
    assert len({(mark.axis, mark.at) for mark in marks}) == len(marks) == 2
    assert marks[0].text.count("%") == 2
