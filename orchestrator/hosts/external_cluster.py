"""A Ray cluster that somebody else keeps, joined as a driver and left as it was."""

import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from orchestrator.errors import InfrastructureError
from orchestrator.hosts.access import Answer, Argument
from orchestrator.hosts.calls import decode_answer, encode_call, perform
from orchestrator.hosts.cluster_info import authentication
from orchestrator.hosts.labels import HOST_LABEL

_OF_OUR_WORKERS = {
    # Ray would run them at nice 15, and what they start with them.
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_POLL_S = 0.5


@dataclass
class ExternalCluster:
    """Such a cluster. Nothing of it ends with us but our own tasks."""

    address: str
    """Of its head, as Ray takes it."""
    code: Path
    """The directory with our packages, which Ray brings to the nodes."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def join(self) -> Any:
        """Joins the cluster with this process, unless it has, and returns the module `ray`.

        Raises:
            InfrastructureError: it cannot be joined.
        """
        with self._lock:
            os.environ.update(authentication())
            import ray  # only now: Ray reads its settings when it is imported

            if not ray.is_initialized():
                options = {
                    "address": self.address,
                    "runtime_env": {"working_dir": str(self.code), "env_vars": _OF_OUR_WORKERS},
                }
                initialise(ray, options, f"the Ray cluster at {self.address} cannot be joined")
            return ray

    def leave(self) -> None:
        """Leaves the cluster, if this process has joined it."""
        import ray

        ray.shutdown()

    def call(self, host: str, function: Callable[[Argument], Answer], argument: Argument, timeout_s: float) -> Answer:
        """Runs a function on the node of a host; see `HostAccess.call`."""
        return decode_answer(function, self._run(host, perform, encode_call(function, argument), timeout_s))

    def refuse_other_packages(self, host: str, timeout_s: float) -> None:
        """Refuses a node that does not have the packages of this process.

        Raises:
            InfrastructureError: it does not, or gives no answer.
        """
        ours, theirs = (
            _versions_here(_dependencies())(""),
            self._run(host, _versions_here(_dependencies()), "", timeout_s),
        )
        wrong = [
            f"{name} is {theirs.get(name) or 'missing'} there, and {version} here"
            for name, version in ours.items()
            if theirs.get(name) != version
        ]
        if wrong:
            raise InfrastructureError(
                f"{', '.join(wrong)}: install requirements/base.lock with this Python there (the agents' image has it)"
            )

    def refuse_unheard(self, host: str, timeout_s: float) -> None:
        """Refuses a node that cannot stream results to this process: tasks there would hang without a word.

        Raises:
            InfrastructureError: it cannot.
        """
        ray = self.join()
        streaming = ray.remote(num_cpus=0, max_retries=0)(_count)
        stream = streaming.options(num_returns="streaming", label_selector={HOST_LABEL: host}).remote()
        deadline = time.monotonic() + timeout_s
        try:
            if _comes(ray, stream, deadline) and _comes(ray, stream, deadline):
                return
        except ray.exceptions.RayError as error:
            said = " ".join(str(error).split())[:300]
            raise InfrastructureError(f"Ray runs no task there: {said}") from error
        ray.cancel(stream, force=True)
        raise InfrastructureError(
            f"its results do not arrive here within {timeout_s:.0f} s: the ports of Ray's drivers and workers "
            f"(--min-worker-port to --max-worker-port) must be open between {ray.util.get_node_ip_address()} and it"
        )

    def _run(self, host: str, function: Callable[[str], Any], text: str, timeout_s: float) -> Any:
        ray = self.join()
        task = ray.remote(num_cpus=0, max_retries=0)(function)
        reference = task.options(label_selector={HOST_LABEL: host}).remote(text)
        deadline = time.monotonic() + timeout_s
        # in short steps, so that an interrupt is heard
        while not ray.wait([reference], timeout=_POLL_S)[0]:
            if time.monotonic() > deadline:
                ray.cancel(reference, force=True)
                raise InfrastructureError(f"it gave no answer within {timeout_s:g} s")
        try:
            return ray.get(reference)
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            said = str(error) if cause is None else f"{type(cause).__name__}: {cause}"
            raise InfrastructureError(" ".join(said.split())[:500]) from error


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

    worker.print_to_stdstream = _say_nothing


def _say_nothing(*_: object, **__: object) -> None:
    pass


def _dependencies() -> list[str]:
    """The distributions that our packages need."""
    found = metadata.requires("taxmeter") or []
    return sorted({requirement.partition(";")[0].strip() for requirement in found})


def _versions_here(names: Sequence[str]) -> Callable[[str], dict[str, str | None]]:
    """A function that Ray sends as it is: where a package is missing, ours cannot be imported."""

    def here(_: str) -> dict[str, str | None]:
        found: dict[str, str | None] = {"python": platform.python_version()}
        for name in names:
            found[name] = None
            with suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(name)
        return found

    return here


def _comes(ray: Any, stream: Any, deadline: float) -> bool:
    # in short steps, so that an interrupt is heard
    while not ray.wait([stream], timeout=_POLL_S, fetch_local=False)[0]:
        if time.monotonic() > deadline:
            return False
    ray.get(next(stream))
    return True


def _count() -> Iterator[int]:
    yield 1
    yield 2
