"""Looks at a host: whether it can be used, and what it is. Nothing is changed there."""

from orchestrator.hosts.check.differences import differences
from orchestrator.hosts.check.engine import read_requirements
from orchestrator.hosts.check.findings import CHECK_TIMEOUT_S, Check, Finding, HostReport, Level
