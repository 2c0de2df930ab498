"""Explaining one configuration: its tax, its regime, where that changes, and what would remove it."""

from orchestrator.analysis.explaining.backends import Alternative
from orchestrator.analysis.explaining.execution import ExecutionTax, execution_of, execution_taxes
from orchestrator.analysis.explaining.explaining import Explanation, Failed, Lack, explain
from orchestrator.analysis.explaining.free import FREE, Direction, FreeBatch, Variant
from orchestrator.analysis.explaining.processes import explain_columns
from orchestrator.analysis.explaining.tax import Tax
from orchestrator.analysis.transition import Interval, Side, Transition, transition

__all__ = [
    "FREE",
    "Alternative",
    "Direction",
    "ExecutionTax",
    "Explanation",
    "Failed",
    "FreeBatch",
    "Interval",
    "Lack",
    "Side",
    "Tax",
    "Transition",
    "Variant",
    "execution_of",
    "execution_taxes",
    "explain",
    "explain_columns",
    "transition",
]
