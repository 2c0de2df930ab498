"""How fast the result store is: `make bench-store`, or `python -m benchmarks.store --help`."""
