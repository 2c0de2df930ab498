"""The pictures in the documentation, of a store's newest campaign, drawn by a headless Chromium.

python -m benchmarks.picture results docs

`overview.png` stands in README; `screens/` has the terminal at two widths and the report's first screen at two widths,
light and dark: to be looked at after each change of either.
"""

import argparse
import io
import tempfile
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Browser
from rich.console import Console, RenderableType
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme

from orchestrator.analysis.summary import columns, summarise
from orchestrator.report.page import make_report, render_page
from orchestrator.report.terminal import render
from orchestrator.store import open_store
from tests.browser import browser, draw_all, opened

OVERVIEW_WIDTH: Final = 1100
REPORT_WIDTHS: Final = (1400, 420)
"""Of the window in pixels."""
TERMINAL_WIDTHS: Final = (80, 120)
"""Columns."""
SCHEMES: Final = ("light", "dark")
_COLOURS: Final = 256
"""Of a picture: more cannot be told apart in it, and take more bytes."""
_LIGHT: Final = TerminalTheme(
    (255, 255, 255),
    (40, 40, 40),
    [
        (0, 0, 0),
        (178, 24, 24),
        (24, 120, 24),
        (150, 100, 0),
        (30, 70, 180),
        (140, 40, 140),
        (0, 120, 130),
        (90, 90, 90),
    ],
)
_PAGE: Final = """<!doctype html><html data-ready><meta charset="utf-8"><style>
body {{ margin: 0; width: max-content }} {stylesheet} pre {{ margin: 0; padding: 12px; font: 13px/1.35 monospace;
color: {foreground}; background: {background} }}</style><body><pre>{code}</pre></html>"""


def main() -> None:
    """Writes the pictures of a store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a store")
    parser.add_argument("output", type=Path, help="a directory")
    given = parser.parse_args()
    screens = given.output / "screens"
    screens.mkdir(parents=True, exist_ok=True)
    store = open_store(given.results)
    newest = store.sql("SELECT campaign_id FROM campaigns ORDER BY started_at DESC LIMIT 1").fetchall()[0][0]
    said = render(summarise(store.trials(f"campaign_id = '{newest}'", columns=columns()).arrow()))
    with tempfile.TemporaryDirectory() as directory, browser() as running:
        page = Path(directory) / "report.html"
        page.write_text(render_page(make_report(store)), encoding="utf-8")
        with opened(running, page, width=OVERVIEW_WIDTH) as found:
            draw_all(found.page)
            _write(found.page.locator("#overview").screenshot(), given.output / "overview.png")
        for scheme in SCHEMES:
            for width in REPORT_WIDTHS:
                with opened(running, page, width=width, scheme=scheme) as found:
                    _write(found.page.screenshot(), screens / f"report-{width}-{scheme}.png")
            for width in TERMINAL_WIDTHS:
                _write(_terminal(running, said, width, scheme), screens / f"terminal-{width}-{scheme}.png")


def _terminal(running: Browser, said: RenderableType, width: int, scheme: str) -> bytes:
    """What a terminal of so many columns shows."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(said)
    html = console.export_html(theme=_LIGHT if scheme == "light" else DIMMED_MONOKAI, code_format=_PAGE)
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory) / "terminal.html"
        page.write_text(html, encoding="utf-8")
        with opened(running, page) as found:
            return found.page.locator("pre").screenshot()


def _write(picture: bytes, path: Path) -> None:
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(_COLOURS, Image.Quantize.MAXCOVERAGE)
    image.save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
