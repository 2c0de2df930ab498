"""Hands results out and takes them in."""
