"""Finds a command-line client that can build, and the settings of this site that a build needs."""

import configparser
import io
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import InfrastructureError

# Where pip looks, least important first.
_PIP_FILES = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
# Settings that name a file of this machine: they mean nothing in a container, and the bundle is passed on its own.
_PIP_LOCAL = frozenset({"cert", "client-cert", "cache-dir", "log", "target", "prefix", "user", "require-virtualenv"})
_PIP_VARIABLES = ("index-url", "extra-index-url", "trusted-host", "proxy", "no-index", "retries", "default-timeout")
_SYSTEM_CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


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


def site_pip_configuration(environment: Mapping[str, str] = os.environ) -> str:
    """The pip settings of this site as one configuration file; empty when there are none."""
    merged = configparser.RawConfigParser(default_section="no such section")
    for path in _pip_files(environment):
        merged.read(path, encoding="utf-8")
    for section in merged.sections():
        for option in list(merged.options(section)):
            if option in _PIP_LOCAL:
                merged.remove_option(section, option)
    given = {name: environment.get("PIP_" + name.upper().replace("-", "_")) for name in _PIP_VARIABLES}
    for name, value in given.items():
        if value:
            if not merged.has_section("global"):
                merged.add_section("global")
            merged.set("global", name, value)
    if not any(merged.options(section) for section in merged.sections()):
        return ""
    text = io.StringIO()
    merged.write(text)
    return text.getvalue()


def site_ca_bundle(environment: Mapping[str, str] = os.environ, system: str = _SYSTEM_CA_BUNDLE) -> Path | None:
    """The bundle of certificate authorities that this site trusts, so that the build trusts the same."""
    candidates = [environment.get("PIP_CERT"), environment.get("SSL_CERT_FILE"), system]
    return next((Path(c) for c in candidates if c and Path(c).is_file()), None)


def _pip_files(environment: Mapping[str, str]) -> list[Path]:
    chosen = environment.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return []
    home = environment.get("HOME", "~")
    files = [Path(name.replace("~", home)) for name in _PIP_FILES]
    # pip reads the file that is named instead of the user's own, on top of the machine's
    return [files[0], Path(chosen)] if chosen and Path(chosen).exists() else files


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
