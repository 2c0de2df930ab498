"""`python -m orchestrator` is the command `taxmeter`."""

from orchestrator.cli import main

main()
