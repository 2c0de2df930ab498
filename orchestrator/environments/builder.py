"""Finds a command-line client that can build."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from orchestrator.errors import InfrastructureError


@dataclass(frozen=True)
class Builder:
    """A client that builds with BuildKit: its command and the variables that it needs."""

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


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
