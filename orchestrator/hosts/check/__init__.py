"""Looks at a host: whether it can be used, and what it is. Nothing is changed there."""

from orchestrator.hosts.check.clock import Skew, clock_here, measure_skew, measure_skew_of
from orchestrator.hosts.check.container import ContainerCommand, run_in_container
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
from orchestrator.hosts.check.expectation import unmet
from orchestrator.hosts.check.findings import Check, Finding, Level
from orchestrator.hosts.check.preflight import Preflight, PreflightQuestion, parse, preflight_here
from orchestrator.hosts.check.report import (
    CHECK_TIMEOUT_S,
    ENGINE_ROOTS,
    HostReport,
    Way,
    check_host,
    refusal,
    socket_problem,
)
from orchestrator.hosts.check.script import FILESYSTEM, SCRIPT, filesystem_problem

__all__ = [
    "CHECK_TIMEOUT_S",
    "ENGINE_ROOTS",
    "FILESYSTEM",
    "SCRIPT",
    "Check",
    "ContainerCommand",
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
    "run_in_container",
    "socket_problem",
    "unmet",
]
