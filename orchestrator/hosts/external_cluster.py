"""A Ray cluster that somebody else keeps: looked at, joined as a driver, and left as it was.

It is looked at from a process of its own: where something is wrong, Ray waits for minutes or aborts.
"""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config import Inventory
from orchestrator.errors import ConfigurationError, InfrastructureError, NoUsableHostError, some_names
from orchestrator.hosts.calls import Answer, Argument, decode_answer, encode_call, perform
from orchestrator.hosts.cluster.settings import HOST_LABEL, SLOT, WORKERS

_AUTO = "auto"
_RAY_ADDRESS = "ray_address"

_CONNECT_S = 5.0
_LOOK_S = 60.0
_LOOK_POLL_S = 0.1

_REFUSED = "InvalidAuthToken"
_UNREADABLE = "AuthenticationError"
# What Ray says where the process would have to be on another machine, or in another namespace of processes.
_NOT_HERE = "when trying to resolve node to connect to"
_NONE_RUNS = "Could not find any running Ray instance"
_SKEW = "Version mismatch"


@dataclass(frozen=True)
class RayNode:
    """A living node of a cluster."""

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
    nodes: tuple[RayNode, ...]


def cluster_info(inventory: Inventory) -> ClusterInfo:
    """Looks at the cluster that an inventory names, as a driver on this machine sees it. Takes a second or two.

    Raises:
        ConfigurationError: this machine is no node of it, its token is another, or it runs another Ray or Python.
        NoUsableHostError: nothing answers there.
        InfrastructureError: it cannot be joined for another reason.
    """
    _refuse_silence(inventory)
    if not _a_raylet_runs_here():
        raise _not_here(inventory)
    seen = _from_another_process(inventory)
    if not seen["is_node"]:
        raise _not_here(inventory)
    return ClusterInfo(str(seen["address"]), tuple(RayNode(**node) for node in seen["nodes"]))


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
            f"{some_names(known) or 'none'}); start Ray there with --labels={HOST_LABEL}={host}"
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


def _not_here(inventory: Inventory) -> ConfigurationError:
    address = inventory.ray_address
    return inventory.error(
        f"this machine is no node of the Ray cluster at {address}, and Ray's drivers must run on one: run the "
        f"command on a node, or make this machine one with `ray start --address={address} --num-cpus=0`",
        _RAY_ADDRESS,
    )


def _nobody(inventory: Inventory, problem: str) -> NoUsableHostError:
    return NoUsableHostError(str(inventory.error(problem, _RAY_ADDRESS)))


def _refuse_silence(inventory: Inventory) -> None:
    address = str(inventory.ray_address)
    if address == _AUTO:
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except OSError as error:
        raise _nobody(
            inventory,
            f"no Ray cluster answers at {address} ({error.strerror or error}): start it, or correct the address",
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


def _from_another_process(inventory: Inventory) -> dict[str, Any]:
    command = [sys.executable, "-c", f"from {__name__} import main; main({inventory.ray_address!r})"]
    environment = {**os.environ, **authentication()}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        # a group of its own: an interrupt is ours to pass on
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=environment, start_new_session=True)
        try:
            deadline = time.monotonic() + _LOOK_S
            while process.poll() is None:
                if time.monotonic() > deadline or _REFUSED in _text(errors):
                    break
                time.sleep(_LOOK_POLL_S)
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            raise _explained(inventory, _text(errors))
        seen: dict[str, Any] = json.loads(_text(out).splitlines()[-1])
        return seen


def _explained(inventory: Inventory, said: str) -> Exception:
    address = inventory.ray_address
    if _REFUSED in said or _UNREADABLE in said:
        path = os.environ.get("RAY_AUTH_TOKEN_PATH")
        # the order in which Ray looks
        in_variable = os.environ.get("RAY_AUTH_TOKEN") or not path
        of = "RAY_AUTH_TOKEN" if in_variable else f"the file {path} of RAY_AUTH_TOKEN_PATH"
        has = f"does not take the token in {of}" if authentication() else "wants a token"
        problem = (
            f"the Ray cluster at {address} {has}: write that of the cluster into a file that only you can read, "
            "and set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH"
            if _REFUSED in said
            else f"{of} cannot be read: name a file with the token of the cluster at {address}"
        )
        return inventory.error(problem, _RAY_ADDRESS)
    if _NONE_RUNS in said:
        return _nobody(inventory, "no Ray cluster runs on this machine: name its address as HOST:PORT, or start it")
    if _SKEW in said:
        versions = " ".join(said.partition(_SKEW)[2].split())
        problem = (
            f"the Ray cluster at {address} runs another version, and all sides need the same Ray and the same "
            f"Python, to the patch: install requirements/base.lock on all (the agents' image has it){versions[:300]}"
        )
        return inventory.error(problem, _RAY_ADDRESS)
    if _NOT_HERE in said:
        return _not_here(inventory)
    last = (said.strip().splitlines() or [f"it said nothing within {_LOOK_S:.0f} s"])[-1]
    return InfrastructureError(f"the Ray cluster at {address} cannot be joined: {last}")


def _text(file: Any) -> str:
    file.seek(0)
    whole: bytes = file.read()
    return whole.decode("utf-8", "replace")


def main(address: str) -> None:
    """Connects as a driver does, and prints what it sees as JSON on the last line."""
    import ray  # only here: the package is imported by much that knows no Ray

    ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    context = ray.get_runtime_context()
    living = [node for node in ray.nodes() if node["Alive"]]
    nodes = [
        {
            "address": node["NodeManagerAddress"],
            "machine": node["NodeManagerHostname"],
            "labels": node.get("Labels") or {},
            "slots": (node.get("Resources") or {}).get(SLOT, 0.0),
        }
        for node in living
    ]
    is_node = context.get_node_id() in [node["NodeID"] for node in living]
    sys.stdout.write(f"\n{json.dumps({'address': context.gcs_address, 'is_node': is_node, 'nodes': nodes})}\n")
    sys.stdout.flush()


_POLL_S = 0.5


@dataclass
class ExternalCluster:
    """Such a cluster. Nothing of it ends with us but our own tasks."""

    address: str
    """Of its head, as Ray takes it."""
    code: Path
    """The directory with our packages, which Ray brings to the nodes."""

    def join(self) -> Any:
        """Joins the cluster with this process, unless it has, and returns the module `ray`."""
        os.environ.update(authentication())
        import ray  # only now: Ray reads its settings when it is imported

        if not ray.is_initialized():
            runtime = {"working_dir": str(self.code), "env_vars": WORKERS}
            options = {"address": self.address, "runtime_env": runtime}
            initialise(ray, options, f"the Ray cluster at {self.address} cannot be joined")
        return ray

    def leave(self) -> None:
        """Leaves the cluster, if this process has joined it."""
        import ray

        ray.shutdown()

    def call(self, host: str, function: Callable[[Argument], Answer], argument: Argument, timeout_s: float) -> Answer:
        """Runs a function on the node of a host; see `HostAccess.call`."""
        return decode_answer(function, self.run(host, perform, encode_call(function, argument), timeout_s))

    def run(self, host: str, function: Callable[[str], Any], text: str, timeout_s: float) -> Any:
        """The same with a function that Ray brings as it is, where the module of ours might not be importable."""
        ray = self.join()
        task = ray.remote(num_cpus=0, max_retries=0)(function)
        reference = task.options(label_selector={HOST_LABEL: host}).remote(text)
        if not is_there(ray, reference, timeout_s):
            # Never one that has ended: Ray aborts this process if that happens while it still takes note of the end
            ray.cancel(reference, force=True)
            raise _no_answer(timeout_s)
        return answered(ray, reference, timeout_s)


def answered(ray: Any, reference: Any, timeout_s: float) -> Any:
    """What a task or an actor answers.

    Raises:
        InfrastructureError: what it raised, or why there is no answer.
    """
    if not is_there(ray, reference, timeout_s):
        raise _no_answer(timeout_s)
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        said = str(error) if cause is None else f"{type(cause).__name__}: {cause}"
        if isinstance(cause, InfrastructureError):
            said = str(cause)
        raise InfrastructureError(" ".join(said.split())[:500]) from error


def _no_answer(timeout_s: float) -> InfrastructureError:
    return InfrastructureError(f"it gave no answer within {timeout_s:g} s")


def is_there(ray: Any, reference: Any, timeout_s: float, fetch_local: bool = True) -> bool:
    """Whether an answer is there, after so many seconds at the latest."""
    deadline = time.monotonic() + timeout_s
    # in short steps, so that an interrupt is heard
    while not ray.wait([reference], timeout=_POLL_S, fetch_local=fetch_local)[0]:
        if time.monotonic() > deadline:
            return False
    return True


def initialise(ray: Any, options: Mapping[str, Any], problem: str) -> None:
    """Connects the module `ray` to a cluster, or starts one, as `ray.init` does; signals stay ours, and it is quiet.

    Raises:
        InfrastructureError: it cannot; `problem`, with what Ray says.
    """
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options, log_to_driver=False, logging_level="error")
    except Exception as error:
        raise InfrastructureError(f"{problem}: {' '.join(str(error).split())}") from error
    finally:
        # Ray installs a handler of its own that aborts the process before anything can be cleaned up.
        signal.signal(signal.SIGTERM, on_terminate)
    _silence()


def _silence() -> None:
    """Keeps Ray from printing what it hears of dead nodes and workers, with stack traces, into the progress.

    `log_to_driver` does not turn that off, and nothing public does. We tell of it ourselves, in one line.
    """
    from ray._private import worker

    worker.print_to_stdstream = lambda *_, **__: None
