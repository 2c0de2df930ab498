"""Keeps rows: from the journal into sealed parts, in generations."""
