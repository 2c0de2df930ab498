"""Containers of ours on the engine of a host, as far as long and short ones, agents and looks, are alike."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final

from orchestrator.environments import ENGINE_EXCEPTIONS, UNLABELLED, remove_container
from orchestrator.execution import tar_of

ALL_GPUS: Final = {"count": -1, "capabilities": [["gpu", "compute", "utility"]]}
"""What the containers of trials ask their engine for."""

SHORT: Final[Mapping[str, Any]] = {
    "init": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges", UNLABELLED],
    "mem_limit": 1 << 30,
    "pids_limit": 256,
}
"""Settings of a container that looks and ends."""


def start_container(
    client: Any, settings: Mapping[str, Any], files: Mapping[str, bytes], owner: tuple[int, int] | None = None
) -> Any:
    """Starts a container. One that does not start is not left behind.

    Args:
        client: a connection to the engine.
        settings: of the SDK's `create`, with a label of ours.
        files: put into it before it starts, by absolute path: so they are in no `docker inspect` and no file of the
            host's.
        owner: user and group who alone can read the files; null for everybody.

    Raises:
        docker.errors.DockerException, requests.RequestException: the engine refused or failed.
    """
    container = client.containers.create(**settings)
    try:
        if files:
            container.put_archive("/", tar_of(files, owner))
        container.start()
    except BaseException:
        remove_container(container)
        raise
    return container


@contextmanager
def short_container(client: Any, settings: Mapping[str, Any], files: Mapping[str, bytes]) -> Iterator[Any]:
    """A container that is gone when the block ends; see `start_container`."""
    container = start_container(client, {**SHORT, **settings}, files)
    try:
        yield container
    finally:
        with suppress(*ENGINE_EXCEPTIONS):
            remove_container(container)


def remove_forgotten(client: Any, label: str, age_s: float) -> None:
    """Removes the containers with a label that are older, as a killed command leaves them; others may still run."""
    for container in client.containers.list(all=True, filters={"label": label}, ignore_removed=True):
        created = datetime.fromisoformat(str(container.attrs["Created"])[:19] + "+00:00").timestamp()
        if time.time() - created > age_s:
            with suppress(*ENGINE_EXCEPTIONS):
                remove_container(container)
