"""What claims are about: the metrics of all commands, the size of the work, and what a series over batches gives."""

from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.axes import AXES
from orchestrator.analysis.metrics import METRICS
from orchestrator.errors import ConfigurationError, near_names
from orchestrator.store import TRIALS

TRANSITION_BATCH: Final = "transition_batch"
PEAK_THROUGHPUT: Final = "peak_throughput"
SERIES_QUANTITIES: Final = (TRANSITION_BATCH, PEAK_THROUGHPUT)
"""Of all batches of a configuration together, not of one trial."""


@dataclass(frozen=True)
class Quantity:
    """One number per process."""

    name: str
    column: str
    unit: str
    """Such as `s`; `1` of a plain ratio."""
    higher_is_better: bool
    valid: str | None = None
    """The column that must be true for the number to count."""
    turns: str | None = None
    """The column with the medians of its turns."""


_WORK: Final = {
    name: Quantity(name, name, TRIALS.field(name).metadata[b"unit"].decode(), higher_is_better=False)
    for name in ("macs", "flops", "parameters")
}


def quantity(name: str) -> Quantity:
    """The quantity of a name: a metric, or `macs`, `flops` or `parameters`.

    Raises:
        ConfigurationError: there is none.
    """
    if name in _WORK:
        return _WORK[name]
    if name not in METRICS:
        known = [*METRICS, *_WORK]
        hint = near_names(name, known) or f"; metrics: {', '.join(known)}"
        raise ConfigurationError(f"no metric is called {name}{hint}")
    one = METRICS[name]
    return Quantity(one.name, one.column, one.unit, one.higher_is_better, one.valid, one.turns)


def default_quantity(device: str) -> Quantity:
    """The latency that the regime of a device is about."""
    return quantity("latency_sync" if device == "cpu" else "latency_pipelined")


def unit_of(name: str) -> str:
    """The unit of a quantity, or of a transition batch.

    Raises:
        ConfigurationError: there is no such quantity.
    """
    return str(AXES["batch"].unit) if name == TRANSITION_BATCH else quantity(name).unit


def quantity_columns() -> list[str]:
    """The columns of `trials` of all quantities."""
    found = [quantity(name) for name in (*METRICS, *_WORK)]
    names = (name for one in found for name in (one.column, one.valid, one.turns) if name is not None)
    return list(dict.fromkeys(names))
