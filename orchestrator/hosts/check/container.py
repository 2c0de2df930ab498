"""A short look from inside a container: no network, no rights, a time limit of its own, and gone afterwards."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orchestrator.environments import ENGINE_EXCEPTIONS, UNLABELLED, remove_container
from orchestrator.execution import tar_of
from orchestrator.hosts.connection import CommandOutput, Deadline

LABEL = "org.taxmeter.check"
"""Every container of a check carries it; no other is touched."""

EVERY_GPU = {"count": -1, "capabilities": [["gpu", "compute", "utility"]]}
"""What the containers of trials ask their engine for."""

_LIMIT_S = 60
_FORGOTTEN_S = 600
_MEMORY_BYTES = 1 << 30
_SHOWN = ("proc", "sys")


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
    _reap(client)
    container = client.containers.create(
        wanted.image,
        # The limit is inside too: nobody might be there any more to end it.
        ["timeout", "-k", "2", str(_LIMIT_S), *wanted.command],
        network_mode="none",
        mem_limit=_MEMORY_BYTES,
        pids_limit=256,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges", UNLABELLED],
        labels={LABEL: "1"},
        init=True,
        device_requests=[EVERY_GPU] if wanted.gpus else None,
        # No more of the host than what a fingerprint is read from.
        volumes={f"/{top}": {"bind": f"{wanted.host_at}/{top}", "mode": "ro"} for top in _SHOWN}
        if wanted.host_at is not None
        else None,
    )
    try:
        if wanted.files:
            container.put_archive("/", tar_of(wanted.files))
        client.api.timeout = deadline.left_s()
        container.start()
        exit_code = int(container.wait(timeout=deadline.left_s(_LIMIT_S + 5))["StatusCode"])
        out = container.logs(stdout=True, stderr=False).decode("utf-8", "replace")
        errors = container.logs(stdout=False, stderr=True).decode("utf-8", "replace")
    finally:
        client.api.timeout = deadline.left_s() + 10
        with suppress(*ENGINE_EXCEPTIONS):
            remove_container(container)
    return CommandOutput(exit_code, out, errors)


def _reap(client: Any) -> None:
    """Removes what a check that was killed left behind; one that may still run is left alone."""
    for container in client.containers.list(all=True, filters={"label": f"{LABEL}=1"}, ignore_removed=True):
        created = datetime.fromisoformat(str(container.attrs["Created"])[:19] + "+00:00").timestamp()
        if time.time() - created > _FORGOTTEN_S:
            with suppress(*ENGINE_EXCEPTIONS):
                remove_container(container)
