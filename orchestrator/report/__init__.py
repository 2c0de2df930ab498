"""Summaries as people read them."""

from orchestrator.report.coverage import coverage_columns, coverage_page
from orchestrator.report.reproduction import render_reproduction
from orchestrator.report.terminal import render
