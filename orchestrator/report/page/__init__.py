"""One page in HTML about a selection of trials: everything in one file, for a browser that is offline."""

from orchestrator.report.page.build import Report, make_report
from orchestrator.report.page.render import render_page
from orchestrator.report.page.roofs import Ceiling, Roof, roofs_of
