"""Claims: findings as queries with thresholds, decided from what is in a store."""

from orchestrator.analysis.claiming.cases import Case
from orchestrator.analysis.claiming.configurations import claim_columns, configurations
from orchestrator.analysis.claiming.deciding import Decision, JudgedCase, decide
from orchestrator.analysis.claiming.figures import Figure, Finding, Scale
from orchestrator.analysis.claiming.quantities import unit_of
from orchestrator.analysis.claiming.schema import Claim, Kind, load_claims

__all__ = [
    "Case",
    "Claim",
    "Decision",
    "Figure",
    "Finding",
    "JudgedCase",
    "Kind",
    "Scale",
    "claim_columns",
    "configurations",
    "decide",
    "load_claims",
    "unit_of",
]
