"""What a container asks its engine for."""

from collections.abc import Callable

from orchestrator.execution.docker import device_requests
from runners.contract import Task, Trial


def test_only_a_task_with_trials_on_a_gpu_asks_for_one(
    make_trial: Callable[..., Trial], make_task: Callable[..., Task]
) -> None:
    assert device_requests(make_task(make_trial())) == []
    [request] = device_requests(make_task(make_trial(), make_trial("bert-base", sequence_length=8, device="cuda")))
    assert (request["Count"], request["Capabilities"]) == (-1, [["gpu", "compute", "utility"]])
