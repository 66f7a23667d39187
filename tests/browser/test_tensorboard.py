"""`./run.sh tensorboard` in a real browser: the tab Report, the link of the text tab, Ctrl-C."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys

import pytest

from rnn_scaling.records import record
from tests.support.chromium import CHROMIUM, FLAGS, playwright
from tests.support.paths import ROOT
from tests.support.records import changed
from tests.support.scaling_runs import timed

PATIENCE_MS = 20_000  # a busy machine draws late


@pytest.fixture(scope="module")
def url(tf, tmp_path_factory):
    """TensorBoard with three runs of which one has event files; at the end Ctrl-C must end it with 130."""
    from rnn_scaling.reports.tensorboard import event_files

    folder = tmp_path_factory.mktemp("logs")
    for n in (1, 2, 4):
        result = timed(n, 90.0 * n, variable_update="replicated")
        batches = dataclasses.replace(result.batches, loss=(1.0,) * len(result.batches.seconds))
        result = changed(result, batches=batches)
        record.write(result, folder / f"on-{n}" / "run.json")
    graph = tf.function(lambda x: x + 1, autograph=False).get_concrete_function(tf.constant(1)).graph
    event_files.write(str(folder / "on-4"), graph, result)
    command = [sys.executable, "-m", "rnn_scaling", "tensorboard", f"--logdir={folder}", "--port=0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().split()[0].rstrip("/")
        finally:
            server.send_signal(signal.SIGINT)
            said = server.communicate(timeout=60)[1]
    assert server.returncode == 130 and said.endswith("interrupted\n") and "Traceback" not in said


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def page(browser, url):
    seen = []
    made = browser.new_page(viewport={"width": 1200, "height": 800})
    made.set_default_timeout(PATIENCE_MS)
    made.on("request", lambda request: request.url.startswith((url, "data:", "blob:")) or seen.append(request.url))
    made.on("pageerror", lambda error: seen.append(f"error: {error}"))
    yield made
    made.close()
    assert seen == [], "nothing is fetched from elsewhere"


def test_the_tab_shows_the_report_of_all_runs_or_of_one(page, url):
    page.goto(f"{url}/#rnn_scaling")
    tab = page.frame_locator("iframe")
    report = tab.frame_locator("iframe[title=Report]")
    report.get_by_text("3 runs").first.wait_for()
    assert "on 4 devices" in report.locator("#answer").inner_text()
    tab.locator("select").select_option("on-2")
    report.get_by_text("on-2 · 1 run").wait_for()
    report.locator("details:has(code) > summary").first.click()
    assert report.locator("details[open] button.copy").first.is_visible(), "the page's own script runs"


def test_the_link_of_the_text_tab_leads_to_the_runs_report(page, url):
    page.goto(f"{url}/#text")
    page.get_by_role("link", name="The report of this run").click()
    page.get_by_text("on-4 · 1 run").wait_for()
    assert page.url.startswith(f"{url}/data/plugin/rnn_scaling/report?id=")
