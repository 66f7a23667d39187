"""Chromium and Playwright for tests in a real browser.

If either is missing, the importing module is skipped.
"""

import os
import shutil

import pytest

CHROMIUM = (
    os.environ.get("CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("chromium-browser")
)
if not CHROMIUM:
    pytest.skip(
        "no chromium: install it (apt-get install chromium) or name it in CHROMIUM",
        allow_module_level=True,
    )
playwright = pytest.importorskip(
    "playwright.sync_api", reason="no playwright: pip install -r requirements-dev.txt"
)

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
FLAGS += ["--disable-component-update", "--disable-sync"]
