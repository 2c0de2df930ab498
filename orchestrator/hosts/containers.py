"""Short looks from inside a container on the engine of a host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.environments import end_of, remove_forgotten, short_container
from orchestrator.hosts.connection import CommandOutput, Deadline

ALL_GPUS: Final = {"count": -1, "capabilities": [["gpu", "compute", "utility"]]}
"""What the containers of trials ask their engine for."""

CHECK_LABEL: Final = "org.taxmeter.check"
"""Every container of a check carries it; no other is touched."""

_LIMIT_S = 60
_FORGOTTEN_S = 600
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
            return CommandOutput(*end_of(container, deadline.left_s(_LIMIT_S + 5)))
        finally:
            client.api.timeout = deadline.left_s() + 10
