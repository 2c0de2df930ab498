"""The image that head, driver and agents run: the locked packages, and none of our code."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient

from orchestrator.environments import (
    Build,
    ImageIdentity,
    attributes_of,
    engine_errors,
    ensure_base,
    find_builder,
    identity_of,
    run_build,
)
from orchestrator.errors import ConfigurationError, InfrastructureError
from orchestrator.files import exclusive

PYTHON = "3.11"
_LABEL_RECIPE = "org.taxmeter.agent-recipe-sha256"
_LABEL_BASE_ID = "org.taxmeter.base-id"


@dataclass(frozen=True)
class AgentBase:
    """What the image is built on; that of the environments of today, so that a site has one base to bring."""

    base: str = "python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b"
    debian_suite: str = "bookworm"


@dataclass(frozen=True)
class AgentImage:
    """The image as this machine's engine has it."""

    reference: str
    identity: ImageIdentity


def ensure_agent_image(root: Path, client: DockerClient, address: str, say: Callable[[str], None]) -> AgentImage:
    """The image of this recipe, built if the engine lacks it (a minute or two).

    Args:
        root: of the project: `docker/agent` and `requirements` are in it.
        client: a connection to this machine's engine.
        address: of that engine.
        say: told about long steps.

    Raises:
        ConfigurationError: the project has no recipe.
        InfrastructureError: the base cannot be had, or the build fails.
    """
    dockerfile, lock = root / "docker" / "agent" / "Dockerfile", root / "requirements" / "base.lock"
    for path in (dockerfile, lock):
        if not path.is_file():
            raise ConfigurationError("the image of the agents is made from it; run this in the project", file=path)
    base = AgentBase()
    recipe = _recipe_sha256(dockerfile, lock, base)
    reference = f"taxmeter/agent:{recipe[:12]}"
    waiting = "waiting for another command that builds the image of the agents"
    with exclusive(root / ".taxmeter" / "locks" / "image-agent", lambda: say(waiting)):
        attributes = attributes_of(client, reference)
        if attributes is None:
            builder = find_builder()
            with engine_errors(f"the engine at {address} failed"):
                name = ensure_base(base, client, say)
                base_id = str((attributes_of(client, name) or {}).get("Id"))
            log = root / ".taxmeter" / "logs" / "build-agent.log"
            say(f"building the image of the agents on {name} (a minute or two; log: {log})")
            arguments = {"BASE_IMAGE": name, "PYTHON": f"python{PYTHON}"}
            labels = {_LABEL_RECIPE: recipe, _LABEL_BASE_ID: base_id}
            what = "the image of the agents"
            run_build(builder, Build(what, reference, dockerfile, lock.parent, arguments, log, labels), address)
            attributes = attributes_of(client, reference)
    if attributes is None:
        raise InfrastructureError(f"the build of {reference} succeeded, but the engine at {address} does not have it")
    return AgentImage(reference, identity_of(attributes))


def _recipe_sha256(dockerfile: Path, lock: Path, base: AgentBase) -> str:
    recipe = {
        "base": base.base,
        "debian_suite": base.debian_suite,
        "dockerfile": hashlib.sha256(dockerfile.read_bytes()).hexdigest(),
        "lock": hashlib.sha256(lock.read_bytes()).hexdigest(),
        "python": PYTHON,
    }
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()
