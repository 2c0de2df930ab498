"""Runs one task on this machine: in a container, in a plain process, or pretended for tests."""

from orchestrator.execution.base import (
    DockerSettings,
    ExecutionSettings,
    FakeSettings,
    ProcessSettings,
    Relay,
    TaskOutcome,
)
from orchestrator.execution.choice import create_executor
from orchestrator.execution.docker import remove_containers
from orchestrator.execution.records import (
    MAX_LINE_BYTES,
    RecordLine,
    RecordReader,
    aftermath,
    read_lines,
    read_pieces,
)
from orchestrator.execution.task_directory import (
    INSTALLED,
    PackedCode,
    copy_code,
    keep_code,
    pack,
    pack_files,
    pack_project,
    stage,
    unpack,
)
