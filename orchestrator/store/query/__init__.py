"""Answers questions: rows, columns, SQL."""
