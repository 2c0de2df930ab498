"""Runs what is planned: tasks to hosts, rows to the store, on without hosts that are lost."""
