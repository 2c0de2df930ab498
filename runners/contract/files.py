"""The one place that knows the names of the files of a task directory."""

import os
import re
from dataclasses import dataclass
from typing import List

EXIT_CANNOT_RECORD = 74
"""A runner ends with it that cannot write its records: a full disk, say, which is no fault of a trial."""

_AGAIN = "again-"


@dataclass(frozen=True)
class TaskFiles:
    """Paths below one task directory. The directory is the whole interface: it can be copied to another machine."""

    directory: str

    @property
    def task(self) -> str:
        """The task, written by the orchestrator before the runner starts."""
        return os.path.join(self.directory, "task.json")

    @property
    def origin(self) -> str:
        """What the orchestrator makes rows of the records with, if it sent the task to a host; not for the runner."""
        return os.path.join(self.directory, "origin.json")

    @property
    def records(self) -> str:
        """JSON lines, appended by the supervisor only."""
        return os.path.join(self.directory, "records.jsonl")

    @property
    def system(self) -> str:
        """The fingerprint of the machine, written before the trials start; without what is private in it."""
        return os.path.join(self.directory, "system.json")

    @property
    def lock(self) -> str:
        """Locked while a runner works here."""
        return os.path.join(self.directory, "lock")

    @property
    def log(self) -> str:
        """Standard output and error of the supervisor."""
        return os.path.join(self.directory, "supervisor.log")

    @property
    def code(self) -> str:
        """Holds a copy of the `runners` package; the working directory of the runner."""
        return os.path.join(self.directory, "code")

    def again(self, number: int) -> "TaskFiles":
        """The task directory of a later start, of those trials that the earlier ones left; the first such is 2."""
        return TaskFiles(os.path.join(self.directory, "%s%d" % (_AGAIN, number)))

    def starts(self) -> List["TaskFiles"]:
        """This directory and those of the later starts that are there, in order."""
        names = os.listdir(self.directory) if os.path.isdir(self.directory) else []
        found = (re.match(_AGAIN + r"([0-9]+)\Z", name) for name in names)
        return [self] + [self.again(number) for number in sorted(int(match.group(1)) for match in found if match)]
