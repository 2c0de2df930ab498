"""Explaining one configuration: its tax, its regime, where that changes, and what would remove it."""

from orchestrator.analysis.explanation.call import ExecutionTax, Tax, execution_of, execution_taxes, tax_of
from orchestrator.analysis.explanation.explain import (
    Alternative,
    Explanation,
    Lack,
    explain,
    explain_columns,
    measuring,
)
from orchestrator.analysis.explanation.larger import FREE, Direction, FreeBatch, free_batch
