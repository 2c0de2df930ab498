"""Explaining one configuration: its tax, its regime, where that changes, and what would remove it."""

from orchestrator.analysis.explanation.execution import ExecutionTax, execution_of, execution_taxes
from orchestrator.analysis.explanation.explain import Alternative, Explanation, Failed, Lack, explain, explain_columns
from orchestrator.analysis.explanation.larger import FREE, Direction, FreeBatch, Variant, free_batch
from orchestrator.analysis.explanation.tax import Tax, tax_of
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
    "free_batch",
    "tax_of",
    "transition",
]
