"""Looks at an image from inside: which distributions and which builds of the frameworks are in it."""

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.types import LogConfig

import runners.system
from orchestrator.environments.engine import ENGINE_EXCEPTIONS, engine_errors, remove_container
from orchestrator.errors import InfrastructureError
from orchestrator.files import read_tree, tar_of

LABEL = "org.taxmeter.observation"

# The frameworks are imported, which takes seconds, on a busy machine minutes.
_LIMIT_S = 300
# Between a container's creation and the start of its limit, and from its end to its removal.
_ALLOWANCE_S = 120
# Far more than imports take; a package that runs wild must not take the machine with it.
_MEMORY_BYTES = 8 << 30
_MAX_PROCESSES = 4096
_TIMED_OUT = (124, 137)
_MOMENT = re.compile(r"(?P<seconds>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(?P<zone>Z|[+-]\d\d:\d\d)")
_DIRECTORY = "taxmeter"
_OF_THE_IMAGE = ("torch_", "onnxruntime_", "libc", "python_implementation", "python_compiler")
_OF_THE_HOST = frozenset({"torch_cpu_capability"})

FactValue = str | int | float | bool | None


@dataclass(frozen=True)
class Observation:
    """What was seen inside an image."""

    versions: Mapping[str, str]
    facts: Mapping[str, FactValue]


def observe(client: DockerClient, image_id: str) -> Observation:
    """Starts a container without a network, imports the frameworks in it and asks what is installed.

    Args:
        client: a connection to the engine that has the image.
        image_id: the image.

    Raises:
        InfrastructureError: a framework cannot be imported, or the engine failed.
    """
    with engine_errors(f"the image {image_id[:19]} cannot be looked into"):
        reap(client)
        container = client.containers.create(
            image_id,
            # The limit is inside too: over SSH the client's own is ignored, and a killed command waits no longer.
            ["timeout", "-k", "10", str(_LIMIT_S), "python", "-m", "runners.system", "--environment"],
            working_dir=f"/{_DIRECTORY}",
            network_mode="none",
            mem_limit=_MEMORY_BYTES,
            pids_limit=_MAX_PROCESSES,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            labels={LABEL: "1"},
            log_config=LogConfig(type=LogConfig.types.JSON),
            init=True,
        )
        try:
            # Copied in rather than mounted: the engine may be on another machine.
            container.put_archive("/", _runners())
            container.start()
            exit_code = int(container.wait(timeout=_LIMIT_S + _ALLOWANCE_S)["StatusCode"])
            output = container.logs(stdout=True, stderr=False).decode("utf-8", "replace")
            errors = container.logs(stdout=False, stderr=True).decode("utf-8", "replace")
        finally:
            with suppress(*ENGINE_EXCEPTIONS):
                remove_container(container)
    if exit_code != 0:
        last = (errors.strip().splitlines() or [f"exit code {exit_code} without a message"])[-1]
        if exit_code in _TIMED_OUT:
            last = f"it was ended, after {_LIMIT_S} s or because memory ran out; its last words: {last}"
        raise InfrastructureError(f"the frameworks of the image {image_id[:19]} cannot be imported: {last}")
    return parse(output)


def reap(client: DockerClient) -> None:
    """Removes the containers of commands that were killed while they looked; one that may still be used is left."""
    found = client.containers.list(all=True, filters={"label": f"{LABEL}=1"}, ignore_removed=True)
    if not found:
        return
    # The engine's clock, which is another machine's, made both times.
    now = _seconds(client.info().get("SystemTime")) or time.time()
    for container in found:
        created = _seconds(container.attrs.get("Created"))
        if created is not None and now - created > _LIMIT_S + 2 * _ALLOWANCE_S:
            with suppress(*ENGINE_EXCEPTIONS):
                remove_container(container)


def parse(output: str) -> Observation:
    """What `python -m runners.system --environment` printed, without what is true of one host only.

    Raises:
        InfrastructureError: it did not print that. What libraries print around it does not matter.
    """
    document = next(filter(None, map(_document, reversed(output.splitlines()))), None)
    if document is None:
        last = (output.strip().splitlines() or ["nothing"])[-1]
        raise InfrastructureError(f"the image did not tell what is installed in it; it printed: {last[:200]}")
    facts = {
        name: value
        for name, value in sorted(document["facts"].items())
        if name.startswith(_OF_THE_IMAGE) and name not in _OF_THE_HOST
    }
    return Observation(document["versions"], facts)


def _document(line: str) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except ValueError:
        return None
    is_ours = isinstance(document, dict) and {"versions", "facts"} <= document.keys()
    return document if is_ours else None


def _seconds(moment: str | None) -> float | None:
    """A time as engines write it: in any zone, with nanoseconds, which Python's parser would not take."""
    match = _MOMENT.fullmatch(moment or "")
    return datetime.fromisoformat(match["seconds"] + match["zone"]).timestamp() if match else None


def _runners() -> bytes:
    """The runners' code, since importing frameworks as they do is a part of it."""
    package = Path(runners.system.__file__).parents[1]
    return tar_of({f"{_DIRECTORY}/runners/{name}": content for name, content in read_tree(package).items()})
