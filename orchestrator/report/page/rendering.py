"""Puts a page together: text, data, styles, script and the charting library in one file.

The file asks nobody for anything, and its own policy (`Content-Security-Policy`) has the browser refuse it if it did.
"""

import base64
import gzip
import importlib.resources
import importlib.util
from functools import lru_cache
from pathlib import Path
from string import Template
from typing import Final

from orchestrator.errors import ConfigurationError
from orchestrator.report.page import summary, tables
from orchestrator.report.page.html import Markup, element, joined, text
from orchestrator.report.page.making import Report
from orchestrator.report.page.model import Page
from orchestrator.report.page.payload import packed, payload

_SCRIPTS: Final = (
    *("data.js", "state.js", "drawing.js", "latency.js", "tax.js", "ratios.js", "roofline.js"),
    *("cells.js", "samples.js", "main.js"),
)
"""In the order in which they stand on the page."""


def render_page(report: Report, refresh_s: int | None = None) -> str:
    """The whole page, as HTML.

    Args:
        report: what it shows.
        refresh_s: the page loads itself anew that often; null if it is not to change any more.

    Raises:
        ConfigurationError: the charting library is not installed.
    """
    page = report.page
    template = Template(_file("page.html"))
    return template.substitute(
        title=text(page.title),
        selection=text(page.selection),
        made_at=text(f"{page.made_at:%Y-%m-%d %H:%M:%S} UTC"),
        refresh=str(refresh_s or 0),
        live=_live(page, refresh_s).html,
        tiles=summary.tiles(page).html,
        verdicts=summary.verdicts(page).html,
        regimes=summary.regimes(page).html,
        noise=summary.noise(page).html,
        campaigns=tables.campaigns(page).html,
        baseline_backend=_name(page, "backend"),
        baseline_system=_name(page, "system"),
        backend_differences=tables.differences(page, "backends").html,
        system_differences=tables.differences(page, "systems").html,
        systems=tables.facts(page.hardware, "Systems", "hardware").html,
        software=tables.facts(page.software, "Environments", "software").html,
        failures=tables.failures(page).html,
        flagged=tables.flagged(page).html,
        samples_note=text(_samples_note(report)),
        style=_file("page.css"),
        script="\n".join(map(_file, _SCRIPTS)),
        data=packed(payload(page, report.samples)),
        blocks=_blocks(report).html,
        plotly=_plotly(),
    )


def render_waiting(campaign_id: str, refresh_s: int) -> str:
    """The page of a campaign of which no trial has ended yet."""
    return Template(_file("waiting.html")).substitute(
        campaign=text(campaign_id), refresh=str(refresh_s), style=_file("page.css")
    )


def _live(page: Page, refresh_s: int | None) -> Markup:
    if refresh_s is None:
        return Markup("")
    state = "The campaign is running" if page.is_running else "This page is kept up to date"
    return element("p", f"{state}: the page loads itself anew every {refresh_s} s.", class_="live", role="status")


def _name(page: Page, kind: str) -> str:
    number = getattr(page.baselines, kind)
    if number is None:
        return "no baseline"
    return text(page.backends[number].label if kind == "backend" else page.systems[number].label)


def _samples_note(report: Report) -> str:
    book = report.samples
    if book.kept == book.total:
        return f"All {book.total:,} samples are in this page."
    series = f" of {book.series:,} of {book.series_total:,} series" if book.series < book.series_total else ""
    return (
        f"Of {book.total:,} samples {book.kept:,} are in this page: at most {book.per_series:,} of each series, evenly "
        f"spaced in their order{series}. Numbers, least, median and largest of a series are those of all its samples."
    )


def _blocks(report: Report) -> Markup:
    """The samples: the browser takes them for plain text until somebody looks."""
    return joined(
        element("script", Markup(base64.b64encode(block).decode()), type="text/plain", id=f"samples-{number}")
        for number, block in enumerate(report.samples.blocks)
    )


def _file(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _plotly() -> str:
    """The charting library, compressed: a third of its size, and text of which no browser fetches anything.

    Raises:
        ConfigurationError: it is not installed.
    """
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        raise ConfigurationError("the page needs plotly, which is not installed; `make report` installs it")
    source = (Path(found.origin).parent / "package_data" / "plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(source, 9, mtime=0)).decode()
