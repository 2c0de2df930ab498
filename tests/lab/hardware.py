"""What the lab hosts pretend to be."""

from dataclasses import dataclass
from itertools import cycle, islice

_GIB = 1 << 30
MAX_HOSTS = 16
"""As many addresses as a lab hands out."""


@dataclass(frozen=True)
class Hardware:
    """The simulated hardware of one host."""

    cpu_model: str
    """What /proc/cpuinfo says there; the instructions are those of this machine."""
    memory_bytes: int
    """A real limit, and what /proc/meminfo says there."""
    gpu_generation: str
    """Only a label: no lab host has a GPU."""


_KINDS = (
    Hardware("Simulated Amber 7 CPU", 8 * _GIB, "ampere"),
    Hardware("Simulated Heron 9 CPU", 6 * _GIB, "hopper"),
    Hardware("Simulated Plain 1 CPU", 4 * _GIB, "none"),
)


def simulated_hardware(hosts: int) -> dict[str, Hardware]:
    """The hosts of a lab by name: `h1`, `h2`, …; from the fourth on the kinds repeat.

    Raises:
        ValueError: there are none, or more than `MAX_HOSTS`.
    """
    if not 1 <= hosts <= MAX_HOSTS:
        raise ValueError(f"a lab has 1 to {MAX_HOSTS} hosts, not {hosts}")
    return {f"h{number}": kind for number, kind in enumerate(islice(cycle(_KINDS), hosts), start=1)}
