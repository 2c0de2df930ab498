"""Whether this machine's engine can carry a lab."""

import os
import shutil

from docker import DockerClient

from orchestrator.environments import engine_address


def unsuitable(client: DockerClient) -> str | None:
    """Why not, with what to do; None if it can."""
    if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        return "there is no ssh client: apt-get install openssh-client"
    if not engine_address().startswith("unix://"):
        return f"the engine at {engine_address()} is on another machine, whose containers have no address here"
    information = client.info()
    if information.get("OperatingSystem") == "Docker Desktop" or os.uname().sysname != "Linux":
        return "this machine does not reach the addresses of Docker Desktop's containers; use Linux"
    security = " ".join(information.get("SecurityOptions") or ())
    if "rootless" in security or "userns" in security:
        return "an engine in a container needs one outside that runs as root, neither rootless nor with userns-remap"
    components = {str(one.get("Name")) for one in client.version().get("Components") or ()}
    if any("podman" in name.lower() for name in components):
        return "Podman's containers have no place for another engine; use Docker"
    return None
