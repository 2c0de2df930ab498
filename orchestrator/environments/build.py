"""Builds images: on a base that the engine has, with a client that can, and with the settings of this site."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import APIError

from orchestrator.environments.engine import (
    NO_SPACE,
    attributes_of,
    engine_errors,
    engine_message,
    explain,
    is_unreachable,
)
from orchestrator.environments.packages import ANSWER_S, BUILD_S, FETCH_S, hash_mismatch, run_command
from orchestrator.environments.site_settings import site_ca_bundle, site_pip_configuration
from orchestrator.errors import InfrastructureError, Say

OFFLINE_REPOSITORY = "taxmeter/base"
LABEL_BASE_ID = "org.taxmeter.base-id"

_TAIL_LINES = 15
_ENGINE_DOWN = re.compile(r"Cannot connect to the Docker daemon[^\n]*|error during connect:[^\n]*")
_BUILD_PREFIX = re.compile(r"^#\d+ [\d.]+ ?", re.MULTILINE)


@dataclass(frozen=True)
class Builder:
    """A client that builds with BuildKit: its command and the variables that it needs."""

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Build:
    """What is to be built."""

    what: str
    """In messages, such as `the image cpu`."""
    duration: str
    """For people, such as `a few minutes`."""
    reference: str
    base: str
    """The pinned image that it stands on, as NAME@sha256:…"""
    debian_suite: str
    """What stands in for the base where its registry cannot be reached."""
    dockerfile: Path
    context: Path
    arguments: Mapping[str, str]
    """Of the Dockerfile, beside `BASE_IMAGE`."""
    log: Path
    labels: Mapping[str, str] = field(default_factory=dict)
    """Beside that of the base's id."""
    from_scratch: bool = False
    """Without what the engine kept of earlier builds."""


def build_image(build: Build, client: DockerClient, address: str, say: Say) -> dict[str, Any]:
    """Builds an image on an engine, with the settings that this site has for pip and for certificates.

    Args:
        address: of the engine; the command that builds needs it too.

    Returns:
        What the engine's `inspect` says about it.

    Raises:
        InfrastructureError: no client can build, the base cannot be had, or the build fails; the message says why, or
            ends with the tail of the log.
    """
    builder = find_builder()
    with engine_errors(f"the engine at {address} failed"):
        base = ensure_base(build.base, build.debian_suite, client, say)
        base_id = str((attributes_of(client, base) or {}).get("Id"))
        say(f"building {build.what} on {base} ({build.duration}; log: {build.log})")
        # A label and no part of a recipe, which would have another digest; labels change no identity.
        _run(builder, build, address, {"BASE_IMAGE": base, **build.arguments}, {LABEL_BASE_ID: base_id, **build.labels})
        attributes = attributes_of(client, build.reference)
    if attributes is None:
        raise InfrastructureError(
            f"the build of {build.reference} succeeded, but the engine at {address} does not have it"
        )
    return attributes


def find_builder(search_path: str | None = None) -> Builder:
    """The first `docker` on the search path that can build with BuildKit."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/bin" if search_path is None else search_path
    clients = list(dict.fromkeys(_clients(path)))
    for client in clients:
        if _answers([client, "buildx", "version"]) is not None:
            # The builder called default runs in the engine itself, which then has the image without a transfer.
            return Builder((client, "buildx", "build", "--builder", "default", "--load"))
        major = _major_version(client)
        # Up to 22 the client speaks to the engine's own BuildKit; later ones do so only through buildx.
        if major is not None and major < 23:
            return Builder((client, "build"), (("DOCKER_BUILDKIT", "1"),))
    tried = f"tried {', '.join(clients)}" if clients else "there is no docker command on PATH"
    raise InfrastructureError(
        f"no client can build with BuildKit ({tried}): install the buildx plugin "
        "(docker-buildx-plugin, docker-buildx), or Debian's docker.io"
    )


def ensure_base(base: str, debian_suite: str, client: DockerClient, say: Say) -> str:
    """The reference of a base image that the engine has: the pinned one wherever possible."""
    if attributes_of(client, base) is not None:
        return base
    problem = _pull(client, base, say)
    if problem is None:
        return base
    offline = f"{OFFLINE_REPOSITORY}:{debian_suite}"
    say(f"the registry of {base.partition('@')[0]} cannot be reached ({problem})")
    if attributes_of(client, offline) is not None:
        say(f"the base is {offline}, made on this machine earlier")
    else:
        _make_offline(debian_suite, offline, client, say)
    return offline


def _run(builder: Builder, build: Build, address: str, arguments: Mapping[str, str], labels: Mapping[str, str]) -> None:
    command = [*builder.command, "--progress", "plain", "--network", "host", "--tag", build.reference]
    if build.from_scratch:
        command.append("--no-cache")
    for name, value in labels.items():
        command += ["--label", f"{name}={value}"]
    for name, value in arguments.items():
        command += ["--build-arg", f"{name}={value}"]
    bundle = site_ca_bundle()
    if bundle is not None:
        command += ["--secret", f"id=cabundle,src={bundle}"]
    build.log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="taxmeter-build-") as secrets, build.log.open("w", encoding="utf-8") as log:
        settings = site_pip_configuration()
        if settings:
            path = Path(secrets, "pip.conf")
            path.write_text(settings, encoding="utf-8")
            command += ["--secret", f"id=pipconf,src={path}"]
        command += ["--file", str(build.dockerfile), str(build.context)]
        # It must build on the very engine that the Python client speaks to, whatever its current context is.
        environment = {name: value for name, value in os.environ.items() if name != "DOCKER_CONTEXT"}
        environment |= {"DOCKER_HOST": address, **dict(builder.environment)}
        done = run_command(command, BUILD_S, stdout=log, stderr=subprocess.STDOUT, env=environment)
    if done.returncode != 0:
        text = build.log.read_text(encoding="utf-8", errors="replace")
        reason = build_failure(text)
        tail = "" if reason else "\n" + "\n".join(text.splitlines()[-_TAIL_LINES:])
        raise InfrastructureError(
            f"{build.what} cannot be built; {f'{reason}; ' if reason else ''}log: {build.log}{tail}"
        )


def build_failure(output: str) -> str | None:
    """The one reason in the log of a build, where it is a known one; null if the log itself must be read."""
    mismatch = hash_mismatch(_BUILD_PREFIX.sub("", output))
    if mismatch is not None:
        return mismatch
    space = next((line for line in output.splitlines() if NO_SPACE.search(line)), None)
    if space is not None:
        return explain(_BUILD_PREFIX.sub("", space))
    down = _ENGINE_DOWN.search(output)
    return None if down is None else " ".join(down[0].split())


def _clients(path: str) -> list[str]:
    directories = [part for part in path.split(os.pathsep) if part]
    found = (shutil.which("docker", path=directory) for directory in directories)
    return [client for client in found if client is not None]


def _major_version(client: str) -> int | None:
    match = re.match(r"Docker version (\d+)\.", _answers([client, "--version"]) or "")
    return int(match[1]) if match else None


def _answers(command: list[str]) -> str | None:
    done = run_command(command, ANSWER_S, capture_output=True)
    return done.stdout if done.returncode == 0 else None


def _pull(client: DockerClient, reference: str, say: Say) -> str | None:
    """Pulls an image. Returns None, or why the registry could not be reached."""
    say(f"pulling {reference}")
    try:
        client.images.pull(reference)
    except APIError as error:
        message = engine_message(error)
        if is_unreachable(message):
            return message
        raise InfrastructureError(
            f"the base image {reference} cannot be pulled: {explain(message, about_a_registry=True)}; check `base` in "
            "docker/images.yaml"
        ) from None
    return None


def _make_offline(suite: str, reference: str, client: DockerClient, say: Say) -> None:
    if os.geteuid() != 0:
        raise InfrastructureError(
            "without the registry the base image must be made with debootstrap, which needs root: run this once as root"
        )
    tool = shutil.which("debootstrap", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if tool is None:
        raise InfrastructureError(
            "without the registry the base image must be made with debootstrap: apt-get install debootstrap"
        )
    say(f"making the base {reference} with debootstrap instead (about a minute)")
    with tempfile.TemporaryDirectory(prefix="taxmeter-base-") as directory:
        root = Path(directory, "root")
        command = [tool, "--variant=minbase", suite, str(root)]
        done = run_command(command, FETCH_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            last = (done.stdout.strip().splitlines() or ["no message"])[-1]
            raise InfrastructureError(f"debootstrap of {suite} failed: {last}")
        _import(root, reference, client)
    say(f"the base is {reference}")


def _import(root: Path, reference: str, client: DockerClient) -> None:
    # debootstrap leaves the packages that it unpacked behind
    shutil.rmtree(root / "var/cache/apt/archives")
    repository, _, tag = reference.partition(":")
    with tempfile.NamedTemporaryFile(prefix="taxmeter-base-", suffix=".tar") as archive:
        command = ["tar", "--numeric-owner", "--one-file-system", "-C", str(root), "-cf", archive.name, "."]
        done = run_command(command, FETCH_S, capture_output=True)
        if done.returncode != 0:
            raise InfrastructureError(f"{reference} cannot be packed: {done.stderr.strip()}")
        with open(archive.name, "rb") as stream:
            client.api.import_image_from_data(stream, repository=repository, tag=tag)
    if attributes_of(client, reference) is None:
        raise InfrastructureError(f"the engine did not keep {reference}")
