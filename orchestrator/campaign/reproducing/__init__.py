"""Runs stored trials again in what they ran in, and says what differs."""
