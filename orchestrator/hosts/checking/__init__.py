"""Looks at the hosts of an inventory: whether each can be used, and what it is. Nothing is changed there."""

from orchestrator.hosts.checking.differences import Difference, differences
from orchestrator.hosts.checking.facts import FACTS_TIMEOUT_S, Facts, host_facts, local_facts
from orchestrator.hosts.checking.probing import PROBE_TIMEOUT_S, check_hosts
from orchestrator.hosts.checking.report import Check, Finding, HostReport, Level, Requirements
from orchestrator.hosts.checking.requirements import requirements

__all__ = [
    "FACTS_TIMEOUT_S",
    "PROBE_TIMEOUT_S",
    "Check",
    "Difference",
    "Facts",
    "Finding",
    "HostReport",
    "Level",
    "Requirements",
    "check_hosts",
    "differences",
    "host_facts",
    "local_facts",
    "requirements",
]
