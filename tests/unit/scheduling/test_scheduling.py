"""What the Ray scheduler decides without Ray."""

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from orchestrator.errors import ExitCode, InfrastructureError, NoUsableHostError
from orchestrator.scheduling import RecordPiece, SchedulingHost, TaskEnded
from orchestrator.scheduling.nodes import HOST_LABEL, SLOT, existing_cluster
from orchestrator.scheduling.ray import HostStream, Scheduler, _Running

HOST = SchedulingHost("h1", {"gpu": "H100"})
OTHER = SchedulingHost("h2", {"gpu": "H100"})


def node(**changes: object) -> dict[str, object]:
    labels = {HOST_LABEL: "h1", "gpu": "H100", "ray.io/node-id": "1"}
    return {"Alive": True, "NodeManagerHostname": "box", "Labels": labels, "Resources": {SLOT: 1.0}} | changes


def ray_with(*looks: list[dict[str, object]]) -> SimpleNamespace:
    """The module, with the nodes that are seen one look after the other; the last remains."""
    left = list(looks)
    return SimpleNamespace(nodes=lambda: left.pop(0) if len(left) > 1 else left[0], shutdown=lambda: None)


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """A scheduler of a cluster that is up, which this process need not be part of."""
    monkeypatch.setattr("orchestrator.scheduling.nodes.initialise", lambda *_: None)
    monkeypatch.setattr("orchestrator.scheduling.nodes.JOIN_DEADLINE_S", 0.2)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that it is as before afterwards
    return Scheduler(partial(existing_cluster, "127.0.0.1:1", tmp_path / "token"))


def test_a_ray_that_does_not_start_here_is_no_usable_host_and_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    timed_out = Mock(side_effect=InfrastructureError("the node timed out during startup"))
    monkeypatch.setattr("orchestrator.scheduling.nodes.initialise", timed_out)
    monkeypatch.setattr("orchestrator.scheduling.nodes.os.environ", {})
    monkeypatch.setitem(sys.modules, "ray", ray_with([]))
    with pytest.raises(NoUsableHostError, match="timed out during startup: .*try again when it is less busy") as caught:
        Scheduler().start([HOST])
    assert caught.value.exit_code == ExitCode.NO_USABLE_HOST


def test_a_node_that_others_see_a_moment_later_is_waited_for(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.scheduling.nodes.JOIN_DEADLINE_S", 20.0)
    late = node(Labels={HOST_LABEL: "h2", "gpu": "H100"})
    monkeypatch.setitem(sys.modules, "ray", ray_with([node()], [node(), late]))
    assert scheduler.start([HOST, OTHER]) == {}


@pytest.mark.parametrize(
    "change",
    [
        *({"Alive": False}, {"Resources": {}}),
        *({"Labels": {HOST_LABEL: "h1", "gpu": "A100"}}, {"Labels": {HOST_LABEL: "h3", "gpu": "H100"}}),
    ],
)
def test_a_cluster_that_serves_none_of_the_hosts_is_refused(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", ray_with([node(**change)]))
    with pytest.raises(NoUsableHostError, match="no node of the Ray cluster serves h1, h2 .*living nodes: "):
        scheduler.start([HOST, OTHER])


def test_each_task_is_heard_in_turn_its_end_when_its_slot_is_free_and_its_loss_with_the_reason() -> None:
    lost = RayError("the node\ndied")

    def get(said: object) -> object:
        if isinstance(said, RayError):
            raise said
        return said

    def wait(streams: list[object], num_returns: int, **_: object) -> tuple[list[object], list[object]]:
        return streams[:num_returns], streams[num_returns:]

    scheduler = Scheduler()
    scheduler._ray = SimpleNamespace(get=get, wait=wait, exceptions=SimpleNamespace(RayError=RayError))
    piece, end = RecordPiece("h1", "calm", 0, 0, b"x"), TaskEnded("h1", "calm", None, None, 1)
    # what a task says, as Ray gives it: reference by reference, until it is over
    for task_id, said in (("calm", [piece, end]), ("lost", [lost]), ("mute", [])):
        request = SimpleNamespace(host="h1", task=SimpleNamespace(task_id=task_id))
        scheduler._running[iter(said)] = _Running(cast("Any", request))
    first, *others = scheduler.take()
    assert first is piece
    assert [(event.task_id, event.problem) for event in others if isinstance(event, TaskEnded)] == [
        ("lost", "Ray lost the task: the node died"),
        ("mute", "the task ended without a word"),
    ]
    assert list(scheduler.take()) == [], "the end is there, and the stream not over"
    assert list(scheduler.take()) == [end]


class RayError(Exception):
    """Any of Ray's; for an error of our own code on a host it has a cause."""

    cause: Exception


def stream_that_fails(cause: Exception) -> HostStream[str]:
    # Without a way to cancel: what has ended is left alone
    error = RayError("a traceback")
    error.cause = cause
    exceptions = SimpleNamespace(RayError=RayError)
    ray = SimpleNamespace(wait=lambda found, **_: (found, []), get=Mock(side_effect=error), exceptions=exceptions)
    return HostStream(ray, iter(["reference"]))


def test_a_disk_that_fails_on_a_host_is_its_trouble_and_a_defect_is_ours() -> None:
    stream = stream_that_fails(OSError(5, "Input/output error"))
    assert stream.take() == []
    assert (stream.is_over, str(stream.problem)) == (True, "OSError: [Errno 5] Input/output error")
    stream.drop()
    with pytest.raises(RayError):
        stream_that_fails(KeyError("x")).take()
