"""A Ray cluster that somebody else keeps, joined as a driver and left as it was."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.hosts.labels import HOST_LABEL
from orchestrator.scheduling.base import SchedulingHost
from orchestrator.scheduling.existing import authentication
from orchestrator.scheduling.nodes import Connected, connected, initialise

_OF_OUR_WORKERS = {
    # Ray would run them at nice 15, and what they start with them.
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass
class JoinedCluster:
    """Such a cluster, joined by this process. Nothing of it ends with us but our own tasks."""

    address: str
    """Of its head, as Ray takes it."""
    code: Path
    """The directory with our packages, which Ray brings to the nodes."""

    def connect(self, hosts: Sequence[SchedulingHost]) -> Connected:
        """See `RayCluster.connect`. The labels of the inventory need not be labels of Ray there."""
        os.environ.update(authentication())
        import ray  # only now: Ray reads its settings when it is imported

        options = {
            "address": self.address,
            "runtime_env": {"working_dir": str(self.code), "env_vars": _OF_OUR_WORKERS},
        }
        initialise(ray, options, f"the Ray cluster at {self.address} cannot be joined")
        return connected(ray, [replace(host, labels={}) for host in hosts])

    def disconnect(self) -> None:
        """See `RayCluster.disconnect`."""
        import ray

        ray.shutdown()


def unheard(hosts: Sequence[str], timeout_s: float) -> dict[str, str]:
    """Which hosts cannot stream results to this process, and what that means. Tasks there would hang without a word.

    Args:
        hosts: with a node each, of the cluster that this process has joined.
        timeout_s: for all of them.
    """
    import ray

    streaming = ray.remote(num_cpus=0, max_retries=0)(_count)
    streams = {
        host: streaming.options(num_returns="streaming", label_selector={HOST_LABEL: host}).remote() for host in hosts
    }
    deadline = time.monotonic() + timeout_s
    problems: dict[str, str] = {}
    for host, stream in streams.items():
        try:
            is_heard = _comes(ray, stream, deadline) and _comes(ray, stream, deadline)
        except ray.exceptions.RayError as error:
            problems[host] = f"Ray runs no task there: {' '.join(str(error).split())[:300]}"
            continue
        if not is_heard:
            ray.cancel(stream, force=True)
            problems[host] = (
                f"its results do not arrive here within {timeout_s:.0f} s: the ports of Ray's drivers and workers "
                f"(--min-worker-port to --max-worker-port) must be open between {ray.util.get_node_ip_address()} and it"
            )
    return problems


def _comes(ray: Any, stream: Any, deadline: float) -> bool:
    # in short steps, so that an interrupt is heard
    while not ray.wait([stream], timeout=0.5, fetch_local=False)[0]:
        if time.monotonic() > deadline:
            return False
    ray.get(next(stream))
    return True


def _count() -> Iterator[int]:
    yield 1
    yield 2
