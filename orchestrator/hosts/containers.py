"""Containers of ours on the engine of a host, as far as long and short ones are alike; and short looks from inside."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from orchestrator.environments import ENGINE_EXCEPTIONS, UNLABELLED, remove_container
from orchestrator.files import tar_of
from orchestrator.hosts.connection import CommandOutput, Deadline

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


CHECK_LABEL: Final = "org.taxmeter.check"
"""Every container of a check carries it; no other is touched."""

_LIMIT_S = 60
_FORGOTTEN_S = 600
_SHOWN = ("proc", "sys")


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


@dataclass(frozen=True)
class ContainerCommand:
    """What is to be run."""

    image: str
    """Its id; nothing is ever pulled."""
    command: Sequence[str]
    gpus: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Put into the container before it starts, by absolute path."""
    host_at: str | None = None
    """Below which the host's own /proc and /sys are to be seen, read-only; null: nowhere."""


def run_in_container(client: Any, wanted: ContainerCommand, deadline: Deadline) -> CommandOutput:
    """Runs a command in a container.

    Args:
        client: a connection to the engine.
        wanted: the command and its image.
        deadline: for all of it.

    Raises:
        DockerException, RequestException: the engine refused, or gave no answer in time.
    """
    client.api.timeout = deadline.left_s()
    remove_forgotten(client, f"{CHECK_LABEL}=1", _FORGOTTEN_S)
    settings = {
        "image": wanted.image,
        # The limit is inside too: nobody might be there any more to end it.
        "command": ["timeout", "-k", "2", str(_LIMIT_S), *wanted.command],
        "network_mode": "none",
        "labels": {CHECK_LABEL: "1"},
        "device_requests": [ALL_GPUS] if wanted.gpus else None,
        # No more of the host than what a fingerprint is read from.
        "volumes": {f"/{top}": {"bind": f"{wanted.host_at}/{top}", "mode": "ro"} for top in _SHOWN}
        if wanted.host_at is not None
        else None,
    }
    with short_container(client, settings, wanted.files) as container:
        try:
            client.api.timeout = deadline.left_s()
            exit_code = int(container.wait(timeout=deadline.left_s(_LIMIT_S + 5))["StatusCode"])
            out = container.logs(stdout=True, stderr=False).decode("utf-8", "replace")
            errors = container.logs(stdout=False, stderr=True).decode("utf-8", "replace")
        finally:
            client.api.timeout = deadline.left_s() + 10
    return CommandOutput(exit_code, out, errors)
