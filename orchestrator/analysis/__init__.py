"""From stored trials to statements with intervals."""

from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.summary import (
    AaPair,
    Cell,
    FailureGroup,
    Latency,
    Line,
    Setting,
    SettingSummary,
    Shape,
    Summary,
    columns,
    summarise,
)

__all__ = [
    "AaPair",
    "Cell",
    "Estimate",
    "FailureGroup",
    "Latency",
    "Line",
    "Setting",
    "SettingSummary",
    "Shape",
    "Summary",
    "columns",
    "summarise",
]
