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
from orchestrator.analysis.verdict import MINIMUM_EFFECT, Verdict, judge, judge_family

__all__ = [
    "MINIMUM_EFFECT",
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
    "Verdict",
    "columns",
    "judge",
    "judge_family",
    "summarise",
]
