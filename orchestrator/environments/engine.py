"""Container engines, Docker's or Podman's compatible socket: the connection, and what they say when something fails."""

import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final

from docker import DockerClient
from docker.errors import APIError, DockerException, ImageNotFound, NotFound, StreamParseError
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from orchestrator.errors import InfrastructureError
from orchestrator.files import tar_of

DEFAULT_ENGINE = "unix:///var/run/docker.sock"

UNLABELLED = "label=disable"
"""A security option of containers that must see files of the host which are not theirs, where SELinux would forbid it;
it means nothing elsewhere."""

_REMOVAL_S = 60
_SHORT: Final[Mapping[str, Any]] = {
    "init": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges", UNLABELLED],
    "mem_limit": 1 << 30,
    "pids_limit": 256,
}

TRANSFER_TIMEOUT_S = 900.0
"""An engine packs or unpacks an image of gigabytes before it says the next word."""

ENGINE_EXCEPTIONS = (DockerException, StreamParseError, RequestException, HTTPError)
"""What the SDK raises; the last where it reads a stream by itself, which nobody translates."""

NO_SPACE = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
# The engine passes its registry client's text on, under one status code for everything; there is no error code to read.
_UNREACHABLE = re.compile(
    r"dial tcp|no such host|i/o timeout|connection refused|connection reset|network is unreachable|no route to host"
    r"|request canceled|deadline exceeded|Client\.Timeout|TLS handshake|proxyconnect|name resolution|\bEOF\b"
)
_UNTRUSTED = re.compile(r"x509: |failed to verify certificate|certificate (signed by unknown|has expired|is not)")
_DENIED = re.compile(r"\bdenied\b|unauthorized|authentication required|no basic auth credentials|forbidden", re.I)
_UNKNOWN = re.compile(r"manifest unknown|manifest for .* not found|name unknown|repository .* not found|: not found")
_LOST = re.compile(
    r"Connection aborted|Connection broken|Broken ?pipe|RemoteDisconnected|IncompleteRead|Connection reset by peer"
)
_OF_THE_ENGINE = (
    (NO_SPACE, "the disk is full: {}; `docker system df` shows what fills it"),
    (_LOST, "the engine broke the connection off ({}); its log says why, often a full disk"),
    (re.compile(r"[Rr]ead timed out|ReadTimeout"), "the engine did not answer in time ({})"),
)
_OF_A_REGISTRY = (
    _OF_THE_ENGINE[0],
    (
        _UNTRUSTED,
        (
            "the engine does not trust the registry's certificate ({}): put the authority that signed it into "
            "/etc/docker/certs.d/HOST/ca.crt where the engine runs"
        ),
    ),
    (
        re.compile(r"server gave HTTP response to HTTPS client"),
        "the registry speaks plain HTTP: name it under insecure-registries in the engine's settings ({})",
    ),
    (_DENIED, "the registry refuses: {}; `docker login` with an account that may"),
    (_UNKNOWN, "the registry does not have it: {}"),
    (_UNREACHABLE, "the registry cannot be reached: {}"),
    *_OF_THE_ENGINE,
)
"""By what an engine says, what is told: the first that is found counts."""


def connect(base_url: str | None = None, timeout_s: float = 60.0) -> DockerClient:
    """Connects to an engine that answers. The caller closes the client.

    Args:
        base_url: the engine's address; by default what DOCKER_HOST says, else the local socket.
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


def start_container(
    client: DockerClient, settings: Mapping[str, Any], files: Mapping[str, bytes], owner: tuple[int, int] | None = None
) -> Any:
    """Starts a container. One that does not start is not left behind.

    Args:
        settings: of the SDK's `create`, with a label of ours.
        files: put into it before it starts, by absolute path: so they are in no `docker inspect` and no file of the
            host's, which may be another machine.
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
def short_container(client: DockerClient, settings: Mapping[str, Any], files: Mapping[str, bytes]) -> Iterator[Any]:
    """A container that looks and ends, and is gone when the block ends; see `start_container`."""
    container = start_container(client, {**_SHORT, **settings}, files)
    try:
        yield container
    finally:
        with suppress(*ENGINE_EXCEPTIONS):
            remove_container(container)


def end_of(container: Any, limit_s: float) -> tuple[int, str, str]:
    """The exit code, the output and the errors of a container that ends within so many seconds."""
    exit_code = int(container.wait(timeout=limit_s)["StatusCode"])
    output = container.logs(stdout=True, stderr=False).decode("utf-8", "replace")
    return exit_code, output, container.logs(stdout=False, stderr=True).decode("utf-8", "replace")


def remove_forgotten(client: DockerClient, label: str, age_s: float) -> None:
    """Removes the containers with a label that are older, as a killed command leaves them; others may still run."""
    found = client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
    if not found:
        return
    # The engine's clock, which is another machine's, made both times.
    now = _seconds(client.info().get("SystemTime")) or time.time()
    for container in found:
        created = _seconds(container.attrs.get("Created"))
        if created is not None and now - created > age_s:
            with suppress(*ENGINE_EXCEPTIONS):
                remove_container(container)


def _seconds(moment: str | None) -> float | None:
    """A time as engines write it: in any zone, with nanoseconds."""
    try:
        return datetime.fromisoformat(moment or "").timestamp()
    except ValueError:
        return None


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


@contextmanager
def engine_errors(what: str, about_a_registry: bool = False) -> Iterator[None]:
    """Turns what an engine or its connection raises into one line that begins with `what`.

    Args:
        about_a_registry: the engine was asked to speak to one, so that its words are about that.
    """
    try:
        yield
    except ENGINE_EXCEPTIONS as error:
        # What is raised without an answer of the engine is about the connection to the engine itself.
        of_a_registry = about_a_registry and isinstance(error, APIError)
        raise InfrastructureError(f"{what}: {explain(engine_message(error), of_a_registry)}") from error


def is_unreachable(message: str) -> bool:
    """Whether an engine's message about a registry says that it was not reached at all.

    One whose certificate is not trusted was reached: whoever answered may be anybody.
    """
    return _UNREACHABLE.search(message) is not None and _UNTRUSTED.search(message) is None


def engine_message(error: Exception) -> str:
    """What an engine or the connection to it said, in one line."""
    said = error.explanation if isinstance(error, APIError) else None
    return " ".join(str(said or error).split())


def explain(message: str, about_a_registry: bool = False) -> str:
    """A message of an engine, or of the connection to it, in one line and with what mends it."""
    text = " ".join(message.split())
    known = _OF_A_REGISTRY if about_a_registry else _OF_THE_ENGINE
    return next((told.format(text) for pattern, told in known if pattern.search(text)), text)


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
