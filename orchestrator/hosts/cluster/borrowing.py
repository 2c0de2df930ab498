"""Whose cluster it is: one that a sweep brought up for itself goes with it, one that somebody asked for stays."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.hosts.cluster.starting import load
from orchestrator.hosts.cluster.state import Project, StateFiles
from orchestrator.hosts.cluster.stopping import down

Say = Callable[[str], None]


@contextmanager
def borrowed(project: Project, say: Say) -> Iterator[None]:
    """Lets a sweep bring a cluster up, and takes that down at the end, unless it was up before for its own sake.

    One that a killed sweep left is this one's, as if it had brought it up.

    Raises:
        InfrastructureError: the engine of this machine failed.
    """
    mark = StateFiles(project).of_a_sweep
    if load(project) is None:
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch()
    try:
        yield
    finally:
        if mark.exists():
            for name, problem in down(project, say).items():
                say(f"{name}: something of the cluster may be left there: {problem}")
            mark.unlink(missing_ok=True)


def keep(project: Project) -> None:
    """Notes that somebody wants the cluster for its own sake, whoever brought it up."""
    StateFiles(project).of_a_sweep.unlink(missing_ok=True)
