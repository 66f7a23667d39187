"""One browser for all files of this folder, and pages that must stay silent."""

import pytest


@pytest.fixture(scope="package")
def browser():
    # This import skips the tests if Chromium or Playwright is missing.
    from tests.support.chromium import CHROMIUM, FLAGS, playwright

    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


def listen(page, seen):
    """Collect the page's requests, messages and errors in `seen`, which must stay empty."""

    def add_request(request):
        if not request.url.startswith("file:"):
            seen.append(f"request: {request.url}")

    page.on("console", lambda message: seen.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: seen.append(f"error: {error}"))
    page.on("request", add_request)


@pytest.fixture
def visit(browser):
    """Return a function that opens an address without a network; fail if it says a thing."""
    contexts, seen = [], []

    def call(address, media="screen", **context):
        contexts.append(browser.new_context(offline=True, **context))
        page = contexts[-1].new_page()
        listen(page, seen)
        page.emulate_media(media=media)
        page.goto(address)
        return page

    yield call
    for context in contexts:
        context.close()
    assert seen == []
