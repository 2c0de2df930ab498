"""By which labels and resources Ray's nodes are told apart."""

from typing import Final

HOST_LABEL: Final = "taxmeter-host"
SLOT: Final = "bench_slot"
"""Usually one per host: a second benchmark on a host would disturb the first, whatever cores it uses."""
