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
from orchestrator.report.page import summary
from orchestrator.report.page.build import Page, Report
from orchestrator.report.page.cells import Against
from orchestrator.report.page.facts import differences_table, facts_table, systems_table
from orchestrator.report.page.failures import disturbed_table, failures_table
from orchestrator.report.page.html import Markup, element, joined, text
from orchestrator.report.page.overview import overview
from orchestrator.report.page.payload import packed, payload

_SCRIPTS: Final = (
    *("data.js", "state.js", "drawing.js", "latency.js", "tax.js", "ratios.js", "roofline.js"),
    *("cells.js", "samples.js", "memory.js", "watch.js"),
)
"""In the order in which they stand on the page."""
_SERVED: Final = "serving.js"
"""On served pages alone: no other may ask anybody for anything."""
_MAIN: Final = "main.js"


def render_page(report: Report, refresh_s: int | None = None, version: str | None = None) -> str:
    """The whole page, as HTML.

    Args:
        report: what it shows.
        refresh_s: how often the page loads itself anew, or asks its server whether to; null if it is not to change
            any more.
        version: of a page that is served: what its server calls it. Null for a file.

    Raises:
        ConfigurationError: the charting library is not installed.
    """
    page = report.page
    scripts = (*_SCRIPTS, *([_SERVED] if version is not None else []), _MAIN)
    template = Template(_file("page.html"))
    return template.substitute(
        title=text(page.title),
        selection=text(page.selection),
        made_at=text(f"{page.made_at:%Y-%m-%d %H:%M:%S} UTC"),
        refresh=str(refresh_s or 0),
        version=text(version),
        connect="connect-src 'self'; " if version is not None else "",
        live=_live(page, refresh_s, is_served=version is not None).html,
        overview=overview(page).html,
        tiles=summary.tiles(page).html,
        verdicts=summary.verdicts(page).html,
        regimes=summary.regimes(page).html,
        calibration=summary.calibration(page).html,
        campaigns=summary.campaigns(page).html,
        speedups_title=text("Speed-up" + _against(page, Against.BACKEND)),
        hardware_title=text("Hardware" + _against(page, Against.SYSTEM)),
        backend_differences=_differences(page, Against.BACKEND).html,
        system_differences=_differences(page, Against.SYSTEM).html,
        systems=joined([systems_table(page.at.systems), facts_table(page.hardware, "Systems", "hardware")]).html,
        software=facts_table(page.software, "Environments", "software").html,
        failures=failures_table(page.failures).html,
        failures_empty=_empty("" if page.failures else "every trial ended ok"),
        flagged=disturbed_table(page.disturbed, left_out=page.without_flagged).html,
        flagged_empty=_empty(_why_not_disturbed(page)),
        samples_note=text(_samples_note(report)),
        style=_file("page.css"),
        script="\n".join(map(_file, scripts)),
        data=packed(payload(page, report.samples)),
        blocks=_blocks(report).html,
        plotly=_plotly(),
    )


def render_waiting(campaign_id: str, refresh_s: int) -> str:
    """The page of a campaign of which no trial has ended yet."""
    return Template(_file("waiting.html")).substitute(
        campaign=text(campaign_id), refresh=str(refresh_s), style=_file("page.css")
    )


def _live(page: Page, refresh_s: int | None, *, is_served: bool) -> Markup:
    if refresh_s is None:
        return Markup("")
    state = "The campaign is running" if page.is_running else "This page is kept up to date"
    how = f"looks every {refresh_s} s for new rows" if is_served else f"loads itself anew every {refresh_s} s"
    return element("p", f"{state}: the page {how}.", class_="live", role="status")


def _empty(why: str) -> str:
    """An attribute that has the script hide a section, and say why at the end of the page; empty if it has content."""
    return f' data-empty="{why}"' if why else ""


def _why_not_disturbed(page: Page) -> str:
    if page.disturbed.groups:
        return ""
    return "guards flagged no trial" if page.disturbed.watched else "no trial had guards"


def _against(page: Page, kind: Against) -> str:
    number = page.baselines[kind]
    return "" if number is None else f" against {page.labels(kind)[number]}"


def _differences(page: Page, kind: Against) -> Markup:
    return differences_table(page.differences[kind], kind, has_ratios=bool(page.ratios(kind)))


def _samples_note(report: Report) -> str:
    book = report.samples
    if not book.total:
        return "There are no samples."
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
