"""The connection to a Docker engine, or to Podman's compatible socket."""

import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from docker import DockerClient
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from requests.exceptions import RequestException

from orchestrator.errors import InfrastructureError

DEFAULT_ENGINE = "unix:///var/run/docker.sock"

UNLABELLED = "label=disable"
"""A security option of containers that must see files of the host which are not theirs, where SELinux would forbid it;
it means nothing elsewhere."""

_REMOVAL_S = 60

TRANSFER_TIMEOUT_S = 900.0
"""An engine packs or unpacks an image of gigabytes before it says the next word."""


def connect(base_url: str | None = None, timeout_s: float = 60.0) -> DockerClient:
    """Connects to an engine that answers. The caller closes the client.

    Args:
        base_url: the engine's address; by default what DOCKER_HOST says, else the local socket.
        timeout_s: how long a single answer of the engine may take.

    Raises:
        InfrastructureError: no engine answers there.
    """
    address = engine_address(base_url)
    environment = dict(os.environ) | {"DOCKER_HOST": address}
    try:
        _probe(address, timeout_s)
        return DockerClient.from_env(environment=environment, timeout=timeout_s)
    except (DockerException, RequestException, OSError, ValueError) as error:
        raise InfrastructureError(f"no Docker engine answers at {address}: {_reason(error)}") from None


def engine_problem(base_url: str | None = None) -> str | None:
    """Why no engine can be used, in one line, or None when one answers. Takes ten seconds at most."""
    try:
        connect(base_url, timeout_s=10).close()
    except InfrastructureError as error:
        return str(error)
    return None


def attributes_of(client: DockerClient, name: str) -> dict[str, Any] | None:
    """What an engine says about an image, by reference, digest or id; null if it does not have it."""
    try:
        attributes: dict[str, Any] = client.images.get(name).attrs
    except ImageNotFound:
        return None
    return attributes


def remove_container(container: Any) -> None:
    """Removes a container, running or not, with its volumes, and returns when it is gone.

    One that is gone, or that the engine removes already because it was asked to when the container ends, is no error.

    Raises:
        docker.errors.DockerException, requests.RequestException: the engine failed.
    """
    try:
        container.remove(force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if "already in progress" not in str(error):
            raise
        with suppress(NotFound):
            container.wait(condition="removed", timeout=_REMOVAL_S)


def host_network_problem(information: Mapping[str, Any]) -> str | None:
    """Why containers of an engine cannot have the network of their host, in one line; null if they can.

    Args:
        information: what the engine says about itself (`info`).
    """
    options = " ".join(information.get("SecurityOptions") or ())
    for mark, what in (("rootless", "is rootless"), ("userns", "maps users (userns-remap)")):
        if mark in options:
            return (
                f"its engine {what}, so its containers do not have the host's network, which a cluster needs: use an "
                "engine that runs as root and maps no users, such as `engine: unix:///var/run/docker.sock`"
            )
    return None


def engine_address(base_url: str | None = None) -> str:
    """The engine meant when `base_url` is not given; the address is passed to command-line clients too."""
    return base_url or os.environ.get("DOCKER_HOST") or DEFAULT_ENGINE


def _probe(address: str, timeout_s: float) -> None:
    """Fails where no engine can be, because the SDK then leaves an open socket to the garbage collector."""
    if not address.startswith("unix://"):
        return
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        connection.connect(address.removeprefix("unix://"))


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    known = {
        r"Permission ?denied": "permission denied; add yourself to the group docker, or use sudo",
        r"No such file": "there is no such socket; is the engine started?",
        r"Connection ?refused": "connection refused; is the engine started?",
        r"[Tt]imed? ?out|Timeout": "it did not answer in time",
    }
    for pattern, reason in known.items():
        if re.search(pattern, text):
            return reason
    return text
