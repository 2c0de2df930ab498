"""The picture in README: the overview of a report, drawn by a headless Chromium.

python -m benchmarks.picture results docs/overview.png
"""

import argparse
import tempfile
from pathlib import Path

from orchestrator.report.page import make_report, render_page
from orchestrator.store import open_store
from tests.browser import browser, draw_all, opened

WIDTH = 1100
"""Of the window in pixels."""


def main() -> None:
    """Writes the picture of all that is in a store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a store")
    parser.add_argument("output", type=Path, help="a PNG file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory) / "report.html"
        page.write_text(render_page(make_report(open_store(given.results))), encoding="utf-8")
        with browser() as running, opened(running, page, width=WIDTH) as found:
            draw_all(found.page)
            found.page.locator("#overview").screenshot(path=given.output)


if __name__ == "__main__":
    main()
