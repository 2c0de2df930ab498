"""Runs one task on this machine: in a container, in a plain process, or pretended for tests."""

from orchestrator.execution.aftermath import Aftermath, aftermath
from orchestrator.execution.base import (
    DockerSettings,
    ExecutionSettings,
    Executor,
    FakeSettings,
    ProcessSettings,
    TaskOutcome,
    stage,
)
from orchestrator.execution.choice import create_executor
from orchestrator.execution.docker import remove_containers

__all__ = [
    "Aftermath",
    "DockerSettings",
    "ExecutionSettings",
    "Executor",
    "FakeSettings",
    "ProcessSettings",
    "TaskOutcome",
    "aftermath",
    "create_executor",
    "remove_containers",
    "stage",
]
