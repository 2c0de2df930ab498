"""Runs a build: the same command for every image of ours."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.environments.builder import Builder
from orchestrator.environments.messages import build_failure
from orchestrator.environments.site_settings import site_ca_bundle, site_pip_configuration
from orchestrator.errors import InfrastructureError

_TAIL_LINES = 15


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


def _environment(builder: Builder, address: str) -> dict[str, str]:
    # The client must build on the very engine that the Python client speaks to, whatever its current context is.
    environment = {name: value for name, value in os.environ.items() if name != "DOCKER_CONTEXT"}
    return environment | {"DOCKER_HOST": address} | dict(builder.environment)
