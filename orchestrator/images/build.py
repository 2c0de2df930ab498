"""Builds the image of an environment, or takes the one that the engine already has."""

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import DockerException, ImageNotFound
from requests.exceptions import RequestException

from orchestrator.errors import InfrastructureError
from orchestrator.images.base import ensure_base
from orchestrator.images.builder import Builder, find_builder, site_ca_bundle, site_pip_configuration
from orchestrator.images.catalogue import DOCKERFILE, EnvironmentEntry, lock_sha256, recipe_sha256
from orchestrator.images.engine import engine_address
from orchestrator.images.locking import exclusive
from orchestrator.images.record import BuiltImage, record_built_image
from orchestrator.images.wheels import ensure_wheels

LABEL_ENVIRONMENT = "org.taxmeter.environment"
LABEL_BASE = "org.taxmeter.base"
LABEL_LOCK = "org.taxmeter.lock-sha256"
LABEL_RECIPE = "org.taxmeter.recipe-sha256"

_TAIL_LINES = 15


def ensure_image(
    entry: EnvironmentEntry, client: DockerClient, say: Callable[[str], None], engine: str | None = None
) -> BuiltImage:
    """The image of `entry` on the engine of `client`, built when no image has the same recipe.

    Args:
        entry: the environment.
        client: a connection to the engine.
        say: told, in a line each, about choices and long steps.
        engine: the address that `client` was made with; a build runs a command that needs it too.

    Raises:
        InfrastructureError: no client can build, the base or a package cannot be had, or the build fails.
    """
    recipe = recipe_sha256(entry)
    reference = f"taxmeter/{entry.name}:{recipe[:12]}"
    lock = entry.state_directory / "locks" / f"image-{entry.name}"
    address = engine_address(engine)
    with exclusive(lock, lambda: say(f"waiting for another command that builds the image {entry.name}")):
        try:
            attributes = _find(client, reference, recipe)
            if attributes is None:
                attributes = _make(entry, reference, client, say, address)
        except (DockerException, RequestException) as error:
            raise InfrastructureError(f"the engine at {address} failed: {' '.join(str(error).split())}") from error
        image = _describe(reference, attributes)
        record_built_image(entry, image)
    return image


def _find(client: DockerClient, reference: str, recipe: str) -> dict[str, Any] | None:
    """What the engine knows about the image; its tag may be gone while its labels still tell what it is."""
    try:
        found = client.images.get(reference)
    except ImageNotFound:
        images = client.images.list(filters={"label": [f"{LABEL_RECIPE}={recipe}"]})
        if not images:
            return None
        found = max(images, key=lambda image: str(image.attrs["Created"]))
        found.tag(reference)
        found.reload()
    attributes: dict[str, Any] = found.attrs
    return attributes if (attributes["Config"]["Labels"] or {}).get(LABEL_RECIPE) == recipe else None


def _make(
    entry: EnvironmentEntry, reference: str, client: DockerClient, say: Callable[[str], None], address: str
) -> dict[str, Any]:
    builder = find_builder()
    ensure_wheels(entry, say)
    base = ensure_base(entry, client, say)
    say(f"building the image {entry.name} on {base} (a few minutes; log: {_log(entry)})")
    _run_build(builder, entry, reference, base, address)
    attributes = _find(client, reference, recipe_sha256(entry))
    if attributes is None:
        raise InfrastructureError(f"the build of {reference} succeeded, but the engine at {address} does not have it")
    return attributes


def _run_build(builder: Builder, entry: EnvironmentEntry, reference: str, base: str, address: str) -> None:
    arguments = {
        "BASE_IMAGE": base,
        "PYTHON": f"python{entry.python}",
        "LOCK": entry.lock,
        "ENVIRONMENT": entry.name,
        "LOCK_SHA256": lock_sha256(entry),
        "RECIPE_SHA256": recipe_sha256(entry),
    }
    command = [*builder.command, "--progress", "plain", "--network", "host", "--tag", reference]
    for name, value in arguments.items():
        command += ["--build-arg", f"{name}={value}"]
    bundle = site_ca_bundle()
    if bundle is not None:
        command += ["--secret", f"id=cabundle,src={bundle}"]
    log = _log(entry)
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="taxmeter-build-") as secrets, log.open("w", encoding="utf-8") as output:
        settings = site_pip_configuration()
        if settings:
            path = Path(secrets, "pip.conf")
            path.write_text(settings, encoding="utf-8")
            command += ["--secret", f"id=pipconf,src={path}"]
        command += ["--file", str(entry.directory / DOCKERFILE), str(entry.directory)]
        done = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, env=_build_environment(builder, address), check=False
        )
    if done.returncode != 0:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        raise InfrastructureError(f"the image {entry.name} cannot be built; log: {log}\n" + "\n".join(tail))


def _log(entry: EnvironmentEntry) -> Path:
    return entry.state_directory / "logs" / f"build-{entry.name}.log"


def _build_environment(builder: Builder, address: str) -> dict[str, str]:
    # The client must build on the very engine that the Python client speaks to, whatever its current context is.
    environment = {name: value for name, value in os.environ.items() if name != "DOCKER_CONTEXT"}
    return environment | {"DOCKER_HOST": address} | dict(builder.environment)


def _describe(reference: str, attributes: dict[str, Any]) -> BuiltImage:
    labels = attributes["Config"]["Labels"]
    digests = attributes.get("RepoDigests") or []
    return BuiltImage(
        reference=reference,
        image_id=attributes["Id"],
        repo_digest=digests[0] if digests else None,
        layers=tuple(attributes["RootFS"]["Layers"]),
        lock_sha256=labels[LABEL_LOCK],
        recipe_sha256=labels[LABEL_RECIPE],
        base=labels[LABEL_BASE],
    )
