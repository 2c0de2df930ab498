"""Looks at a host: whether it can be used, and what it is. Nothing is changed there."""

from orchestrator.hosts.check.differences import Difference, differences
from orchestrator.hosts.check.engine import (
    EngineFacts,
    EngineQuestion,
    Requirements,
    WantedImage,
    engine_facts,
    images_on,
    read_requirements,
)
from orchestrator.hosts.check.findings import Check, Finding, Level, Skew, unmet
from orchestrator.hosts.check.preflight import (
    SCRIPT,
    Preflight,
    PreflightQuestion,
    filesystem_problem,
    parse,
    preflight_here,
)
from orchestrator.hosts.check.report import (
    CHECK_TIMEOUT_S,
    ENGINE_ROOTS,
    HostReport,
    Way,
    check_host,
    clock_here,
    measure_skew,
    measure_skew_of,
    refusal,
    socket_problem,
)

__all__ = [
    "CHECK_TIMEOUT_S",
    "ENGINE_ROOTS",
    "SCRIPT",
    "Check",
    "Difference",
    "EngineFacts",
    "EngineQuestion",
    "Finding",
    "HostReport",
    "Level",
    "Preflight",
    "PreflightQuestion",
    "Requirements",
    "Skew",
    "WantedImage",
    "Way",
    "check_host",
    "clock_here",
    "differences",
    "engine_facts",
    "filesystem_problem",
    "images_on",
    "measure_skew",
    "measure_skew_of",
    "parse",
    "preflight_here",
    "read_requirements",
    "refusal",
    "socket_problem",
    "unmet",
]
