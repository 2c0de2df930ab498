"""Listens to which nodes of Ray live."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.executing import Execution, execution
from orchestrator.hosts.cluster.model import Cluster
from orchestrator.hosts.cluster.nodes import MARK
from orchestrator.hosts.labels import HOST_LABEL

NODE_LABEL = "taxmeter-node"
"""Of a node: random, so that it is not taken for an earlier one of the same host."""
FIRST_ANSWER_S = 60.0
_STDOUT = 1
_MARK = MARK.encode("ascii")


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
        living = [one.node for one in self.nodes() if one.host == host and one.is_alive]
        return living == [node]

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
                    if line.startswith(_MARK):
                        self._take(_nodes(json.loads(line.removeprefix(_MARK))))
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
    with ExitStack() as after, execution(cluster, ["python", "-m", "orchestrator.hosts.cluster.nodes"]) as running:
        watch = Watch(running)
        after.callback(watch.join)
        yield watch


def _nodes(document: list[dict[str, Any]]) -> tuple[Node, ...]:
    return tuple(
        Node(one["labels"][HOST_LABEL], one["labels"].get(NODE_LABEL, ""), one["alive"])
        for one in document
        if HOST_LABEL in one["labels"]
    )
