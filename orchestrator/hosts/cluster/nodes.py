"""Which nodes of Ray live: told by a program in the head's container, and listened to from outside.

    python -m orchestrator.hosts.cluster.nodes

Prints a JSON document a line, after a mark: at once, and whenever something has changed, until it is told to end. Ray
prints lines of its own between them, such as that a node has died.
"""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.executing import Execution, execution
from orchestrator.hosts.cluster.model import Cluster
from orchestrator.hosts.cluster.plan import NODE_LABEL
from orchestrator.hosts.cluster.settings import HOST_LABEL

MARK = "taxmeter-nodes:"
_POLL_S = 0.2
FIRST_ANSWER_S = 60.0
_STDOUT = 1


@dataclass(frozen=True)
class Node:
    """A node of Ray that serves a host."""

    host: str
    node: str
    """Value of its label `taxmeter-node`."""
    is_alive: bool


class Watch:
    """What is known about the nodes, as of now."""

    def __init__(self, running: Execution) -> None:
        self._running = running
        self._changed = threading.Condition()
        self._nodes: tuple[Node, ...] | None = None
        self._errors = bytearray()
        self._is_over = False
        self._thread = threading.Thread(target=self._listen, name="nodes", daemon=True)
        self._thread.start()

    def nodes(self) -> tuple[Node, ...]:
        """The nodes of hosts, dead ones too.

        Raises:
            InfrastructureError: nobody tells them.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._nodes is not None or self._is_over, FIRST_ANSWER_S):
                raise InfrastructureError(
                    f"the head of the cluster says nothing about its nodes for {FIRST_ANSWER_S:g} s"
                )
            if self._is_over or self._nodes is None:
                said = " ".join(self._errors.decode("utf-8", "replace").split())[-500:]
                raise InfrastructureError(f"the head of the cluster does not tell its nodes: {said or 'it ended'}")
            return self._nodes

    def serves(self, host: str, node: str) -> bool:
        """Whether just this node serves the host: one that came before it may still count as alive for a moment."""
        return self.living(host) == (node,)

    def living(self, host: str) -> tuple[str, ...]:
        """Labels of the nodes that serve a host and live."""
        return tuple(node.node for node in self.nodes() if node.host == host and node.is_alive)

    def wait(self, timeout_s: float) -> None:
        """Returns when something may have changed."""
        with self._changed:
            self._changed.wait(timeout_s)

    def join(self) -> None:
        """Returns when the listening is over, as it is soon after its command was left."""
        self._thread.join()

    def _listen(self) -> None:
        pending = b""
        try:
            for stream, data in self._running.frames():
                if stream != _STDOUT:
                    self._errors += data
                    continue
                pending += data
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    if line.startswith(MARK.encode()):
                        self._take(_nodes(json.loads(line.removeprefix(MARK.encode()))))
                    else:
                        self._errors += line
        except (OSError, ValueError) as error:
            # closed at our end, or the engine was lost: whoever asks next is told
            self._errors += str(error).encode()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _take(self, nodes: tuple[Node, ...]) -> None:
        with self._changed:
            self._nodes = nodes
            self._changed.notify_all()


@contextmanager
def watching(cluster: Cluster) -> Iterator[Watch]:
    """Listens while the block lasts.

    Raises:
        InfrastructureError: there is no head.
    """
    # in this order: the command is left, then the thread hears of it
    with (
        ExitStack() as after,
        execution(cluster, ["python", "-W", "ignore", "-m", "orchestrator.hosts.cluster.nodes"]) as running,
    ):
        watch = Watch(running)
        after.callback(watch.join)
        yield watch


def _nodes(document: list[dict[str, Any]]) -> tuple[Node, ...]:
    return tuple(
        Node(node["labels"][HOST_LABEL], node["labels"].get(NODE_LABEL, ""), node["alive"])
        for node in document
        if HOST_LABEL in node["labels"]
    )


def main() -> None:
    """Watches."""
    import ray  # only here: whoever listens from outside knows no Ray

    ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level=logging.ERROR)
    said = None
    while True:
        text = json.dumps([_described(node) for node in ray.nodes()])
        if text != said:
            sys.stdout.write(f"\n{MARK}{text}\n")
            sys.stdout.flush()
            said = text
        time.sleep(_POLL_S)


def _described(node: dict[str, Any]) -> dict[str, Any]:
    return {
        "alive": bool(node["Alive"]),
        "address": node["NodeManagerAddress"],
        "labels": node.get("Labels") or {},
        "resources": node.get("Resources") or {},
        "death": node.get("DeathReasonMessage") or "",
    }


if __name__ == "__main__":
    main()
