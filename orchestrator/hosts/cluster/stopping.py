"""Takes a cluster down: what carries its label goes, and nothing else."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace

from orchestrator.environments import connect, engine_errors
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.engines import host_engine, our_containers, remove
from orchestrator.hosts.cluster.state import Project, State, StateFiles
from orchestrator.hosts.connection import Connections, HostConnectionError, for_each

Say = Callable[[str], None]


def down(project: Project, say: Say) -> Mapping[str, str]:
    """Takes the cluster of a project down; nothing happens if there is none.

    Images, code and spooled rows stay on the hosts.

    Args:
        project: where we are.
        say: told about what is done.

    Returns:
        The hosts on which something may be left, each with the reason; a later call tries again.

    Raises:
        InfrastructureError: the engine of this machine failed.
    """
    files = StateFiles(project)
    with files.locked(say):
        state = files.load()
        if state is None:
            return {}
        with Connections(state.hosts) as connections:
            return take_down(files, state, connections, say)


def take_down(files: StateFiles, state: State, connections: Connections, say: Say) -> dict[str, str]:
    """As `down`, by whoever holds the lock."""

    def clear(name: str) -> str | None:
        try:
            with (
                engine_errors("its engine failed"),
                host_engine(name, state.hosts[name], connections) as engine,
            ):
                for container in our_containers(engine.client, state.id):
                    remove(container)
        except InfrastructureError as error:
            return error.problem if isinstance(error, HostConnectionError) else str(error)
        say(f"{name}: the agent is gone")
        return None

    results = dict(zip(state.touched, for_each(state.touched, clear, connections), strict=True))
    with engine_errors("the engine of this machine failed"), closing(connect()) as client:
        for container in our_containers(client, state.id):
            remove(container)
    say("the head is gone")
    shutil.rmtree(state.sockets, ignore_errors=True)
    shutil.rmtree(files.code, ignore_errors=True)
    left = {name: problem for name, problem in results.items() if problem is not None}
    if left:
        files.save(replace(state, head_address=None, agents={}, touched=tuple(left), unusable={}))
    else:
        files.forget()
    return left
