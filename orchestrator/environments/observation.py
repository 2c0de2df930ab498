"""Looks at an image from inside: which distributions and which builds of the frameworks are in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient
from docker.types import LogConfig

import runners.system
from orchestrator.boundary import validated
from orchestrator.environments.engine import end_of, engine_errors, remove_forgotten, short_container
from orchestrator.errors import ForeignDataError, InfrastructureError
from orchestrator.files import read_tree

LABEL = "org.taxmeter.observation"

# The frameworks are imported, which takes seconds, on a busy machine minutes.
_LIMIT_S = 300
# Between a container's creation and the start of its limit, and from its end to its removal.
_ALLOWANCE_S = 120
# Far more than imports take; a package that runs wild must not take the machine with it.
_MEMORY_BYTES = 8 << 30
_MAX_PROCESSES = 4096
_TIMED_OUT = (124, 137)
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
    """Starts a container without a network, imports the frameworks in it and asks what is installed."""
    with engine_errors(f"the image {image_id[:19]} cannot be looked into"):
        remove_forgotten(client, f"{LABEL}=1", _LIMIT_S + 2 * _ALLOWANCE_S)
        settings = {
            "image": image_id,
            # The limit is inside too: over SSH the client's own is ignored, and a killed command waits no longer.
            "command": ["timeout", "-k", "10", str(_LIMIT_S), "python", "-m", "runners.system", "--environment"],
            "working_dir": f"/{_DIRECTORY}",
            "network_mode": "none",
            "mem_limit": _MEMORY_BYTES,
            "pids_limit": _MAX_PROCESSES,
            "security_opt": ["no-new-privileges"],
            "labels": {LABEL: "1"},
            "log_config": LogConfig(type=LogConfig.types.JSON),
        }
        # The runners' code, since importing frameworks as they do is a part of it.
        package = Path(runners.system.__file__).parents[1]
        code = {f"{_DIRECTORY}/runners/{name}": content for name, content in read_tree(package).items()}
        with short_container(client, settings, code) as container:
            exit_code, output, errors = end_of(container, _LIMIT_S + _ALLOWANCE_S)
    if exit_code != 0:
        last = (errors.strip().splitlines() or [f"exit code {exit_code} without a message"])[-1]
        if exit_code in _TIMED_OUT:
            last = f"it was ended, after {_LIMIT_S} s or because memory ran out; its last words: {last}"
        raise InfrastructureError(f"the frameworks of the image {image_id[:19]} cannot be imported: {last}")
    return parse(output)


def parse(output: str) -> Observation:
    """What `python -m runners.system --environment` printed, without what is true of one host only.

    Raises:
        InfrastructureError: it did not print that. What libraries print around it does not matter.
    """
    seen = next(filter(None, map(_observation, reversed(output.splitlines()))), None)
    if seen is None:
        last = (output.strip().splitlines() or ["nothing"])[-1]
        raise InfrastructureError(f"the image did not tell what is installed in it; it printed: {last[:200]}")
    facts = {
        name: value
        for name, value in sorted(seen.facts.items())
        if name.startswith(_OF_THE_IMAGE) and name not in _OF_THE_HOST
    }
    return Observation(seen.versions, facts)


def _observation(line: str) -> Observation | None:
    try:
        return validated(Observation, line, "what it printed")
    except ForeignDataError:
        return None
