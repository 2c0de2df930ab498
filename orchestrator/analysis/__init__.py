"""From stored trials to statements with intervals."""

from orchestrator.analysis.changes import Change, change_columns, changes
from orchestrator.analysis.reproduction import (
    Comparison,
    ModeComparison,
    Place,
    Sides,
    compare_sides,
    reproduction_columns,
)
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
    "Change",
    "Comparison",
    "Estimate",
    "FailureGroup",
    "Latency",
    "Line",
    "ModeComparison",
    "Place",
    "Setting",
    "SettingSummary",
    "Shape",
    "Sides",
    "Summary",
    "Verdict",
    "change_columns",
    "changes",
    "columns",
    "compare_sides",
    "judge",
    "judge_family",
    "reproduction_columns",
    "summarise",
]
