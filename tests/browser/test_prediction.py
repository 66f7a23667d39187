"""The page of a prediction in a real browser."""

from __future__ import annotations

import pytest

from rnn_scaling.commands import predict

TABLE = "| GPUs | words/s |\n|--|--|\n| 1 | 42953 |\n| 2 | 80945 |\n| 4 | 145385 |\n"


@pytest.fixture
def address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.md").write_text(TABLE)
    assert predict.main(["t.md", "--num_devices=8,4096", "--far", "--output=out"]) == 0
    return (tmp_path / "out" / "prediction.html").as_uri()


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_predicted_points_are_hollow_in_a_band_and_nothing_is_fetched(
    size, browser, address
):
    seen = []
    with browser.new_context(
        viewport=dict(zip(("width", "height"), size)), offline=True
    ) as context:
        page = context.new_page()
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on(
            "request",
            lambda request: request.url.startswith("file:") or seen.append(request.url),
        )
        page.goto(address)
        labels = page.locator(".picture a").evaluate_all(
            "links => links.map(link => link.getAttribute('aria-label'))"
        )
        hollow = page.locator(".picture [fill='var(--paper)']").count()
        band = page.locator(".picture [aria-label=area] path").get_attribute("d")
        note = page.locator(".series .note").inner_text()
        ticks = page.locator(
            ".picture [aria-label='x-axis tick label'] text"
        ).all_text_contents()
        wide = page.evaluate("document.documentElement.scrollWidth")
        page.get_by_role("combobox", name="Metric").select_option("not split")
        parts = page.locator(".picture a").count()
    predicted = [label for label in labels if "predicted" in label]
    assert (len(predicted), len(labels)) == (10, 13) and hollow == 10
    assert (
        "NaN" not in band
        and "Infinity" not in band
        and "beyond the frame" in note
        and "Hollow" in note
    )
    assert "" not in ticks and "4,096" in ticks and parts == 10
    assert seen == [] and wide <= size[0]


def test_without_scripts_and_in_print_both_static_pictures_are_there(browser, address):
    for has_scripts, media in ((False, "screen"), (True, "print")):
        with browser.new_context(java_script_enabled=has_scripts) as context:
            page = context.new_page()
            page.emulate_media(media=media)
            page.goto(address)
            assert page.locator(".first svg.plot:visible").count() == 2
            assert page.locator("#answer").is_visible()
