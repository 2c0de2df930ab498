"""Summaries as people read them."""
