"""One browser for all files of this folder."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="package")
def browser():
    from tests.support.chromium import (
        CHROMIUM,
        FLAGS,
        playwright,
    )  # skips where there is none

    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()
