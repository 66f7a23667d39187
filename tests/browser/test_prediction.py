"""The page of a prediction in a real browser."""

import pytest

from rnn_scaling.commands import predict

TABLE = "| GPUs | words/s |\n|--|--|\n| 1 | 42953 |\n| 2 | 80945 |\n| 4 | 145385 |\n"


@pytest.fixture
def address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.md").write_text(TABLE)
    assert predict.main(["t.md", "--num_devices=8,4096", "--far", "--output=out"]) == 0
    return (tmp_path / "out/prediction.html").as_uri()


@pytest.mark.parametrize("width, height", [(1280, 800), (390, 844)])
def test_predicted_points_are_hollow_in_a_band_and_nothing_is_fetched(
    width, height, visit, address
):
    page = visit(address, viewport={"width": width, "height": height})
    labels = page.locator(".picture a").evaluate_all(
        "links => links.map(link => link.getAttribute('aria-label'))"
    )
    predicted = [label for label in labels if "predicted" in label]
    assert (len(predicted), len(labels)) == (10, 13)
    assert page.locator(".picture [fill='var(--paper)']").count() == 10
    band = page.locator(".picture [aria-label=area] path").get_attribute("d")
    assert "NaN" not in band and "Infinity" not in band
    note = page.locator("[data-view=chart] > .note").inner_text()
    assert "beyond the frame" in note and "Hollow" in note
    ticks = page.locator(".picture [aria-label='x-axis tick label'] text")
    assert {"4,096"} <= set(ticks.all_text_contents()) - {""}
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("combobox", name="Metric").select_option("not split")
    assert page.locator(".picture a").count() == 10


def test_without_scripts_and_in_print_both_static_pictures_are_there(visit, address):
    for has_scripts, media in ((False, "screen"), (True, "print")):
        page = visit(address, java_script_enabled=has_scripts, media=media)
        assert page.locator(".first svg.plot:visible").count() == 2
        assert page.locator("#answer").is_visible()
