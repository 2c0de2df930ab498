"""Comparisons over the whole store: a table by named axes, two selections side by side, and the gate.

results = open_store("results")
table = compare(results, rows=["gpu", "workload"], cols=["backend"], baseline="backend=eager", where=["batch=1"])
table.pandas()
"""

from orchestrator.analysis.comparison.pivot import compare, compare_selections
from orchestrator.analysis.comparison.slowdowns import MAX_SLOWDOWN, Gate, GatedCell, Outcome, gate
from orchestrator.analysis.comparison.table import COLUMNS, SIDE, ComparisonTable, Entry
from orchestrator.analysis.confounders import Difference
from orchestrator.analysis.frame import Cell
from orchestrator.analysis.pooling import Policy, Pool, pools
