"""Explaining one configuration: its tax, its regime, where that changes, and what would remove it."""

from orchestrator.analysis.explanation.call import ExecutionTax, execution_of, execution_taxes
from orchestrator.analysis.explanation.explain import (
    Alternative,
    Explanation,
    Lack,
    explain,
    explain_columns,
    measuring,
)
from orchestrator.analysis.explanation.larger import FREE, Direction, FreeBatch, free_batch
