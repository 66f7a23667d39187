"""The page of a history in a real browser."""

from __future__ import annotations

from rnn_scaling.commands import history
from tests.support import histories
from tests.support.chromium import CHROMIUM, FLAGS, playwright


def test_points_lead_to_commits_and_nothing_is_fetched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    histories.write(tmp_path / "history", [1000.0] * 20 + [900.0] * 5)
    assert history.main(["show", "--commit_url=https://example.org/c/"]) == 0
    seen = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_context(viewport={"width": 390, "height": 844}, offline=True).new_page()
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("request", lambda request: request.url.startswith("file:") or seen.append(request.url))
        page.goto((tmp_path / "history" / "history.html").as_uri())
        addresses = page.evaluate("[...document.querySelectorAll('.live a')].map((a) => a.href.baseVal ?? a.href)")
        wide = page.evaluate("document.body.scrollWidth")
        browser.close()
    assert {f"https://example.org/c/{histories.commit_of(n)}" for n in range(25)} <= set(addresses)
    assert seen == [] and wide <= 390
