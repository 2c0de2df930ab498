"""One page in HTML about a selection of trials: everything in one file, for a browser that is offline."""

from orchestrator.report.page.making import Report, make_report
from orchestrator.report.page.rendering import render_page

__all__ = ["Report", "make_report", "render_page"]
