"""A Ray cluster that somebody else keeps: whether this machine is part of it, and which node is which host.

It is looked at from a process of its own: where something is wrong, Ray waits for minutes or aborts.
"""

import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import ConfigurationError, InfrastructureError, NoUsableHostError
from orchestrator.hosts.labels import HOST_LABEL, SLOT

AUTO = "auto"

_CONNECT_S = 5.0
_LOOK_S = 60.0
_POLL_S = 0.1

_REFUSED = "InvalidAuthToken"
_UNREADABLE = "AuthenticationError"
# What Ray says where the process would have to be on another machine, or in another namespace of processes.
_NOT_HERE = "when trying to resolve node to connect to"
_NONE_RUNS = "Could not find any running Ray instance"
_SKEW = "Version mismatch"


@dataclass(frozen=True)
class RayNode:
    """A living node of a cluster."""

    node: str
    address: str
    machine: str
    """The name of its machine or pod."""
    labels: Mapping[str, str]
    slots: float
    """How many tasks of ours may run on it at once."""


@dataclass(frozen=True)
class ClusterInfo:
    """What a driver on this machine sees of a cluster."""

    address: str
    """Of its head, as Ray takes it; never `auto`."""
    own: RayNode
    """The node that this machine is."""
    nodes: tuple[RayNode, ...]


def cluster_info(address: str, error: Callable[[str], ConfigurationError]) -> ClusterInfo:
    """Looks at a cluster as a driver on this machine sees it. Takes a second or two.

    Args:
        address: HOST:PORT of its head, or `auto`.
        error: one about a problem of the key that has the address.

    Raises:
        ConfigurationError: this machine is no node of it, its token is another, or it runs another Ray or Python.
        NoUsableHostError: nothing answers there.
        InfrastructureError: it cannot be joined for another reason.
    """
    place = _Place(address, error)
    _refuse_silence(place)
    if not _a_raylet_runs_here():
        raise place.not_here()
    seen = _from_another_process(place)
    nodes = tuple(RayNode(**node) for node in seen["nodes"])
    own = next((node for node in nodes if node.node == seen["own_node"]), None)
    if own is None:
        raise place.not_here()
    return ClusterInfo(str(seen["address"]), own, nodes)


def node_of(host: str, seen: ClusterInfo) -> RayNode:
    """The node that is a host.

    Raises:
        InfrastructureError: none is, several are, or it takes no tasks of ours; the message does not name the host.
    """
    found = [node for node in seen.nodes if node.labels.get(HOST_LABEL) == host]
    if not found:
        known = sorted(node.labels[HOST_LABEL] for node in seen.nodes if HOST_LABEL in node.labels)
        raise InfrastructureError(
            f"no living node of the cluster has the label {HOST_LABEL}={host} (there is: "
            f"{', '.join(known) or 'none'}); start Ray there with --labels={HOST_LABEL}={host}"
        )
    if len(found) > 1:
        where = ", ".join(f"{node.machine} ({node.address})" for node in found)
        raise InfrastructureError(
            f"several nodes have the label {HOST_LABEL}={host}: {where}; give each one of its own"
        )
    if found[0].slots < 1:
        raise InfrastructureError(
            f"its node {found[0].machine} ({found[0].address}) has no resource {SLOT}, by which one trial runs at a "
            f"time; start Ray there with --resources='{{\"{SLOT}\": 1}}'"
        )
    return found[0]


def authentication() -> dict[str, str]:
    """The variables that make Ray use the token which the user's environment names."""
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    if "RAY_AUTH_MODE" in os.environ or not any(os.environ.get(name) for name in names):
        return {}
    return {"RAY_AUTH_MODE": "token"}


@dataclass(frozen=True)
class _Place:
    """The key of the inventory that is to blame."""

    address: str
    error: Callable[[str], ConfigurationError]

    def nobody(self, problem: str) -> NoUsableHostError:
        return NoUsableHostError(str(self.error(problem)))

    def not_here(self) -> ConfigurationError:
        return self.error(
            f"this machine is no node of the Ray cluster at {self.address}, and Ray's drivers must run on one: run the "
            f"command on a node, or make this machine one with `ray start --address={self.address} --num-cpus=0`"
        )


def _refuse_silence(place: _Place) -> None:
    if place.address == AUTO:
        return
    host, _, port = place.address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except OSError as error:
        raise place.nobody(
            f"no Ray cluster answers at {place.address} ({error.strerror or error}): start it, or correct the address"
        ) from None


def _a_raylet_runs_here() -> bool:
    """Ray's drivers find their node in the list of processes, so a node that is not seen there is none."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if Path(os.fsdecode((entry / "cmdline").read_bytes().partition(b"\0")[0])).name == "raylet":
                    return True
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
    return False


def _from_another_process(place: _Place) -> dict[str, Any]:
    command = [sys.executable, "-c", f"from {__name__} import main; main({place.address!r})"]
    environment = {**os.environ, **authentication()}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        # a group of its own: an interrupt is ours to pass on
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=environment, start_new_session=True)
        try:
            deadline = time.monotonic() + _LOOK_S
            while process.poll() is None:
                if time.monotonic() > deadline or _REFUSED in _text(errors):
                    break
                time.sleep(_POLL_S)
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            raise _explained(place, _text(errors))
        seen: dict[str, Any] = json.loads(_text(out).splitlines()[-1])
        return seen


def _explained(place: _Place, said: str) -> Exception:
    if _REFUSED in said or _UNREADABLE in said:
        path = os.environ.get("RAY_AUTH_TOKEN_PATH")
        # the order in which Ray looks
        in_variable = os.environ.get("RAY_AUTH_TOKEN") or not path
        of = "RAY_AUTH_TOKEN" if in_variable else f"the file {path} of RAY_AUTH_TOKEN_PATH"
        if _REFUSED not in said:
            return place.error(f"{of} cannot be read: name a file with the token of the cluster at {place.address}")
        has = f"does not take the token in {of}" if authentication() else "wants a token"
        return place.error(
            f"the Ray cluster at {place.address} {has}: write that of the cluster into a file that only you can read, "
            "and set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH"
        )
    if _NONE_RUNS in said:
        return place.nobody("no Ray cluster runs on this machine: name its address as HOST:PORT, or start it")
    if _SKEW in said:
        versions = " ".join(said.partition(_SKEW)[2].split())
        return place.error(
            f"the Ray cluster at {place.address} runs another version, and all sides need the same Ray and the same "
            f"Python, to the patch: install requirements/base.lock on all (the agents' image has it){versions[:300]}"
        )
    if _NOT_HERE in said:
        return place.not_here()
    last = (said.strip().splitlines() or [f"it said nothing within {_LOOK_S:.0f} s"])[-1]
    return InfrastructureError(f"the Ray cluster at {place.address} cannot be joined: {last}")


def _text(file: Any) -> str:
    file.seek(0)
    whole: bytes = file.read()
    return whole.decode("utf-8", "replace")


def main(address: str) -> None:
    """Connects as a driver does, and prints what it sees as JSON on the last line."""
    import ray  # only here: the package is imported by much that knows no Ray

    ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    context = ray.get_runtime_context()
    nodes = [_described(node) for node in ray.nodes() if node["Alive"]]
    seen = {"address": context.gcs_address, "own_node": context.get_node_id(), "nodes": nodes}
    sys.stdout.write(f"\n{json.dumps(seen)}\n")
    sys.stdout.flush()


def _described(node: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": node["NodeID"],
        "address": node["NodeManagerAddress"],
        "machine": node["NodeManagerHostname"],
        "labels": node.get("Labels") or {},
        "slots": (node.get("Resources") or {}).get(SLOT, 0.0),
    }
