"""Builds images: the client that can, the base that they stand on, and the command with the settings of this site."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from docker import DockerClient
from docker.errors import APIError

from orchestrator.environments.engine import (
    NO_SPACE,
    attributes_of,
    engine_message,
    explain,
    explain_registry,
    is_unreachable,
)
from orchestrator.environments.installers import hash_mismatch
from orchestrator.environments.site_settings import site_ca_bundle, site_pip_configuration
from orchestrator.errors import InfrastructureError

OFFLINE_REPOSITORY = "taxmeter/base"

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
    reference: str
    dockerfile: Path
    context: Path
    arguments: Mapping[str, str]
    log: Path
    labels: Mapping[str, str]
    from_scratch: bool = False
    """Without what the engine kept of earlier builds."""


class BaseImage(Protocol):
    """What an image is built on."""

    @property
    def base(self) -> str:
        """The pinned image, as NAME@sha256:…"""
        ...

    @property
    def debian_suite(self) -> str:
        """What stands in for it where its registry cannot be reached."""
        ...


def find_builder(search_path: str | None = None) -> Builder:
    """The first `docker` on the search path that can build with BuildKit.

    Raises:
        InfrastructureError: there is none; the message says what each client lacks.
    """
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


def ensure_base(entry: BaseImage, client: DockerClient, say: Callable[[str], None]) -> str:
    """The reference of a base image that the engine has: the pinned one wherever possible.

    Raises:
        InfrastructureError: the registry answers but does not give the image, or no stand-in can be made.
    """
    if attributes_of(client, entry.base) is not None:
        return entry.base
    problem = _pull(client, entry.base, say)
    if problem is None:
        return entry.base
    offline = f"{OFFLINE_REPOSITORY}:{entry.debian_suite}"
    say(f"the registry of {entry.base.partition('@')[0]} cannot be reached ({problem})")
    if attributes_of(client, offline) is not None:
        say(f"the base is {offline}, made on this machine earlier")
    else:
        _make_offline(entry.debian_suite, offline, client, say)
    return offline


def run_build(builder: Builder, build: Build, address: str) -> None:
    """Builds an image on an engine, with the settings that this site has for pip and for certificates.

    Args:
        builder: the client.
        build: what it builds.
        address: of the engine.

    Raises:
        InfrastructureError: the build fails; the message says why, or ends with the tail of the log.
    """
    command = [*builder.command, "--progress", "plain", "--network", "host", "--tag", build.reference]
    if build.from_scratch:
        command.append("--no-cache")
    for name, value in build.labels.items():
        command += ["--label", f"{name}={value}"]
    for name, value in build.arguments.items():
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
        environment = _environment(builder, address)
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False)
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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def _pull(client: DockerClient, reference: str, say: Callable[[str], None]) -> str | None:
    """Pulls an image. Returns None, or why the registry could not be reached."""
    say(f"pulling {reference}")
    try:
        client.images.pull(reference)
    except APIError as error:
        message = engine_message(error)
        if is_unreachable(message):
            return message
        raise InfrastructureError(
            f"the base image {reference} cannot be pulled: {explain_registry(message)}; check `base` in "
            "docker/images.yaml"
        ) from None
    return None


def _make_offline(suite: str, reference: str, client: DockerClient, say: Callable[[str], None]) -> None:
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
        done = subprocess.run(
            [tool, "--variant=minbase", suite, str(root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
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
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise InfrastructureError(f"{reference} cannot be packed: {done.stderr.strip()}")
        with open(archive.name, "rb") as stream:
            client.api.import_image_from_data(stream, repository=repository, tag=tag)
    if attributes_of(client, reference) is None:
        raise InfrastructureError(f"the engine did not keep {reference}")


def _environment(builder: Builder, address: str) -> dict[str, str]:
    # The client must build on the very engine that the Python client speaks to, whatever its current context is.
    environment = {name: value for name, value in os.environ.items() if name != "DOCKER_CONTEXT"}
    return environment | {"DOCKER_HOST": address} | dict(builder.environment)
