"""How fast taxmeter itself is: `make bench`, or `python -m benchmarks.performance --help`."""
