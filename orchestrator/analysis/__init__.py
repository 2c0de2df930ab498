"""From stored trials to statements with intervals.

Whatever reads the store raises `StoreError` where a file cannot be read; so does `orchestrator.report.page`.
"""

from orchestrator.analysis.axes import Shape
from orchestrator.analysis.comparison import compare, gate
from orchestrator.analysis.confounders import Change, change_columns, changes
from orchestrator.analysis.ratios import Pairing, Ratio, Twin
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.transition import Transition
from orchestrator.analysis.verdict import MARGIN, Judgement, Verdict, judge_family
