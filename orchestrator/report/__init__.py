"""Summaries as people read them."""

from orchestrator.report.terminal import render

__all__ = ["render"]
