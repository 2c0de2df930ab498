"""The one place that knows the names of the files of a task directory."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskFiles:
    """Paths below one task directory. The directory is the whole interface: it can be copied to another machine."""

    directory: str

    @property
    def task(self) -> str:
        """The task, written by the orchestrator before the runner starts."""
        return os.path.join(self.directory, "task.json")

    @property
    def records(self) -> str:
        """JSON lines, appended by the supervisor only."""
        return os.path.join(self.directory, "records.jsonl")

    @property
    def log(self) -> str:
        """Standard output and error of the supervisor."""
        return os.path.join(self.directory, "supervisor.log")

    @property
    def code(self) -> str:
        """Holds a copy of the `runners` package; the working directory of the runner."""
        return os.path.join(self.directory, "code")
