"""The base image: the pinned one, or a stand-in made offline where its registry cannot be reached."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from docker import DockerClient
from docker.errors import APIError, ImageNotFound

from orchestrator.environments.messages import engine_message, explain_registry, is_unreachable
from orchestrator.errors import InfrastructureError

OFFLINE_REPOSITORY = "taxmeter/base"


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


def ensure_base(entry: BaseImage, client: DockerClient, say: Callable[[str], None]) -> str:
    """The reference of a base image that the engine has: the pinned one wherever possible.

    Raises:
        InfrastructureError: the registry answers but does not give the image, or no stand-in can be made.
    """
    if _has(client, entry.base):
        return entry.base
    problem = _pull(client, entry.base, say)
    if problem is None:
        return entry.base
    offline = f"{OFFLINE_REPOSITORY}:{entry.debian_suite}"
    say(f"the registry of {entry.base.partition('@')[0]} cannot be reached ({problem})")
    if _has(client, offline):
        say(f"the base is {offline}, made on this machine earlier")
    else:
        _make_offline(entry.debian_suite, offline, client, say)
    return offline


def _has(client: DockerClient, reference: str) -> bool:
    try:
        client.images.get(reference)
    except ImageNotFound:
        return False
    return True


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
    if not _has(client, reference):
        raise InfrastructureError(f"the engine did not keep {reference}")
