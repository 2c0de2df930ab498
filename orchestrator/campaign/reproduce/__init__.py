"""Stored trials run again, in what they ran in."""
