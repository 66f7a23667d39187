"""Draw docs/report.png: the first screen of the page of docs/results/default.

    PYTHONPATH=. python tools/docs/screenshot.py

It needs Chromium and the packages of requirements-dev.txt.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright import sync_api as playwright

from rnn_scaling.commands import report

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "results" / "default"
PICTURE = ROOT / "docs" / "report.png"
WIDTH = 1280
HEIGHT = 800
# The last point of the chart has the pointer.
POINT = "[data-view=chart] .picture a"


def main() -> int:
    """Write the picture."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("error: no chromium in PATH; install it", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        # The report has the name of its folder.
        copy = Path(shutil.copytree(RECORDS, Path(folder) / RECORDS.name))
        status = report.main([str(copy)])
        if status:
            return status
        _draw(copy / "report.html", chromium)
    print(PICTURE.relative_to(ROOT))
    return 0


def _draw(page_file: Path, chromium: str) -> None:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(page_file.as_uri())
        page.locator(POINT).last.hover()
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
