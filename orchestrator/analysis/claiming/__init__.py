"""Claims: findings as queries with thresholds, decided from what is in a store."""

from orchestrator.analysis.claiming.configurations import claim_columns, configurations
from orchestrator.analysis.claiming.deciding import Decision, JudgedCase, decide
from orchestrator.analysis.claiming.figures import Figure, Finding, Scale
from orchestrator.analysis.claiming.schema import Claim, load_claims
from orchestrator.analysis.claiming.statistics import Case

__all__ = [
    "Case",
    "Claim",
    "Decision",
    "Figure",
    "Finding",
    "JudgedCase",
    "Scale",
    "claim_columns",
    "configurations",
    "decide",
    "load_claims",
]
