"""Keys of a lab, and the configuration of ssh that pins them for a person."""

import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from docker.models.containers import Container

from orchestrator.errors import InfrastructureError

IDENTITY = "id"
"""File of the client's private key."""
HOST_KEYS = "host_keys.json"
CONFIGURATION = "ssh_config"
KNOWN_HOSTS = "known_hosts"
USER = "bench"
_ETC = "/etc/lab"


def make_key(path: Path, comment: str) -> str:
    """Makes a key pair without a passphrase at `path` and `path`.pub. Returns the public half: its type and itself.

    Raises:
        InfrastructureError: ssh-keygen is missing or fails.
    """
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        raise InfrastructureError("no ssh-keygen on this machine: apt-get install openssh-client") from None
    if done.returncode != 0:
        raise InfrastructureError(f"ssh-keygen cannot write {path}: {' '.join((done.stderr or done.stdout).split())}")
    return " ".join(path.with_name(f"{path.name}.pub").read_text(encoding="ascii").split()[:2])


def give_host_key(container: Container, host: str, client_key: str) -> str:
    """Puts a new host key, and the client's public key, into a container that need not run. Returns the public half.

    The private half is nowhere else.
    """
    with tempfile.TemporaryDirectory(prefix="taxmeter-lab-") as directory:
        path = Path(directory, "ssh_host_ed25519_key")
        public = make_key(path, host)
        files = {path.name: path.read_bytes(), "authorized_keys": f"{client_key}\n".encode("ascii")}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            information = tarfile.TarInfo(name)
            information.size = len(content)
            information.mode = 0o600 if name == path.name else 0o644
            archive.addfile(information, io.BytesIO(content))
    container.put_archive(_ETC, buffer.getvalue())
    return public


def read_host_keys(directory: Path) -> dict[str, str]:
    """The public halves of the host keys of a lab, by host; empty if it has none."""
    path = directory / HOST_KEYS
    keys: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return keys


def write_keys(directory: Path, addresses: Mapping[str, str], host_keys: Mapping[str, str]) -> None:
    """Keeps the host keys, and writes with what a person reaches the hosts by `ssh -F`."""
    (directory / HOST_KEYS).write_text(json.dumps(host_keys), encoding="utf-8")
    hosts = "".join(
        f"Host {name}\n  HostName {address}\n  HostKeyAlias {name}\n" for name, address in addresses.items()
    )
    common = {
        "User": USER,
        "IdentityFile": quoted(directory / IDENTITY),
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": quoted(directory / KNOWN_HOSTS),
        "StrictHostKeyChecking": "yes",
    }
    settings = "".join(f"  {key} {value}\n" for key, value in common.items())
    (directory / CONFIGURATION).write_text(f"{hosts}Host *\n{settings}", encoding="utf-8")
    known = "".join(f"{name} {key}\n" for name, key in host_keys.items())
    (directory / KNOWN_HOSTS).write_text(known, encoding="ascii")


def quoted(path: Path) -> str:
    """A path as ssh's configuration takes it: there a `%` begins a placeholder, and a blank ends a value."""
    return '"' + str(path).replace("%", "%%") + '"'
