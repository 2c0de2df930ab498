"""Claims: findings as queries with thresholds, decided from what is in a store."""

from orchestrator.analysis.claims.cases import Case
from orchestrator.analysis.claims.configurations import claim_columns, configurations
from orchestrator.analysis.claims.decision import Decision, JudgedCase, decide, decide_all
from orchestrator.analysis.claims.intervals import Agreement, Figure, Finding, Scale
from orchestrator.analysis.claims.schema import Claim, Kind, load_claims
