"""From stored trials to statements with intervals."""

from orchestrator.analysis.changes import Change, change_columns, changes
from orchestrator.analysis.comparing import (
    ComparisonTable,
    Gate,
    Interval,
    Policy,
    Pool,
    compare,
    compare_selections,
    gate,
)
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
    Flagged,
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
    "ComparisonTable",
    "Estimate",
    "FailureGroup",
    "Flagged",
    "Gate",
    "Interval",
    "Latency",
    "Line",
    "ModeComparison",
    "Place",
    "Policy",
    "Pool",
    "Setting",
    "SettingSummary",
    "Shape",
    "Sides",
    "Summary",
    "Verdict",
    "change_columns",
    "changes",
    "columns",
    "compare",
    "compare_selections",
    "compare_sides",
    "gate",
    "judge",
    "judge_family",
    "reproduction_columns",
    "summarise",
]
