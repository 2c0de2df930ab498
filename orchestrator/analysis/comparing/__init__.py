"""Comparisons over the whole store: a table by named axes, two selections side by side, and the gate.

results = open_store("results")
table = compare(results, rows=["gpu", "workload"], cols=["backend"], baseline="backend=eager", where=["batch=1"])
table.pandas()
"""

from orchestrator.analysis.comparing.asking import compare, compare_selections
from orchestrator.analysis.comparing.cells import Cell
from orchestrator.analysis.comparing.confounders import Difference
from orchestrator.analysis.comparing.gating import Gate, GatedCell, Outcome, gate
from orchestrator.analysis.comparing.policies import Policy, Pool
from orchestrator.analysis.comparing.table import COLUMNS, ComparisonTable, Entry

__all__ = [
    "COLUMNS",
    "Cell",
    "ComparisonTable",
    "Difference",
    "Entry",
    "Gate",
    "GatedCell",
    "Outcome",
    "Policy",
    "Pool",
    "compare",
    "compare_selections",
    "gate",
]
