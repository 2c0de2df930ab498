"""The image of the lab hosts, made on this machine from Debian's packages."""

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from docker import DockerClient

from orchestrator.environments import Catalogue, attributes_of, engine_address
from orchestrator.environments.build import ensure_base, find_builder
from orchestrator.errors import InfrastructureError

DIRECTORY = Path(__file__).resolve().parent
PROJECT = DIRECTORY.parent.parent
RECIPE = (
    *("Dockerfile", "lab-engine", "lab-nvidia-smi", "lab-runtime", "lab-simulate", "lab-start", "registry.yml"),
    "sshd_config",
)
"""The files that the image is made of."""


def ensure_lab_image(client: DockerClient, say: Callable[[str], None]) -> str:
    """The reference of the image that lab hosts run, built if the engine lacks it (half a minute).

    Its tag is the digest of its recipe, so a changed recipe is another image. It stays when a lab goes.

    Raises:
        InfrastructureError: the base cannot be had, or the build fails.
    """
    reference = f"taxmeter/lab-host:{_recipe_sha256()[:12]}"
    if attributes_of(client, reference) is not None:
        return reference
    entry = Catalogue.load(PROJECT / "docker" / "images.yaml").entry("cpu")
    base = ensure_base(entry.base, entry.debian_suite, client, say)
    say(f"building the image of the lab hosts on {base} (half a minute)")
    builder = find_builder()
    command = [*builder.command, "--network", "host", "--build-arg", f"BASE={base}", "--tag", reference, str(DIRECTORY)]
    environment = {name: value for name, value in os.environ.items() if name != "DOCKER_CONTEXT"}
    environment |= {"DOCKER_HOST": engine_address()} | dict(builder.environment)
    done = subprocess.run(command, text=True, capture_output=True, env=environment, check=False)
    if done.returncode != 0:
        raise InfrastructureError(f"the image of the lab hosts cannot be built:\n{done.stderr[-2000:]}")
    return reference


def _recipe_sha256() -> str:
    digest = hashlib.sha256()
    for name in RECIPE:
        content = (DIRECTORY / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
