"""From settings to an executor: the one place that knows them all."""

from orchestrator.execution.base import DockerSettings, ExecutionSettings, Executor, ProcessSettings
from orchestrator.execution.docker import DockerExecutor
from orchestrator.execution.fake import FakeExecutor
from orchestrator.execution.process import ProcessExecutor
from orchestrator.execution.relay import RelayExecutor


def create_executor(settings: ExecutionSettings) -> Executor:
    """The executor that the settings belong to."""
    if isinstance(settings, DockerSettings):
        return DockerExecutor(settings)
    if isinstance(settings, ProcessSettings):
        return ProcessExecutor(settings) if settings.relay is None else RelayExecutor(settings, settings.relay)
    return FakeExecutor(settings)
