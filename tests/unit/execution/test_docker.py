"""What a container asks its engine for, and which image it insists on."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from docker.errors import ImageNotFound

from orchestrator.environments import identity_of
from orchestrator.errors import InfrastructureError
from orchestrator.execution import DockerSettings, ProcessSettings
from orchestrator.execution.docker import device_requests, insist_on_image
from orchestrator.execution.process import environment
from tests.conftest import MakeTask, MakeTrial


def test_only_a_task_with_trials_on_a_gpu_gets_one_the_one_that_is_named(
    make_trial: MakeTrial, make_task: MakeTask, tmp_path: Path
) -> None:
    on_cpu = make_task(make_trial())
    on_gpu = make_task(make_trial(), make_trial("bert-base", sequence_length=8, device="cuda"))
    [request] = device_requests(on_gpu)
    assert (request["Count"], request["Capabilities"]) == (-1, [["gpu", "compute", "utility"]])
    [request] = device_requests(on_gpu, "GPU-1")
    assert (request["Count"], request["DeviceIDs"]) == (0, ["GPU-1"])
    assert device_requests(on_cpu) == device_requests(on_cpu, "GPU-1") == []
    process = ProcessSettings(tmp_path / "python", (0,), 1, tmp_path, "GPU-1")
    seen = environment(process, on_gpu, tmp_path, 1)
    assert seen["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    # A driver may be where no linker looks by itself
    assert "/usr/local/nvidia/lib64" in seen["LD_LIBRARY_PATH"].split(":")
    seen = environment(process, on_cpu, tmp_path, 1)
    assert not [name for name in seen if name.startswith(("CUDA", "LD_LIBRARY_PATH"))]


def test_an_image_that_is_gone_or_another_one_under_its_id_is_refused() -> None:
    image = {"Id": "sha256:1", "Config": {"Env": ["A=1"]}, "RootFS": {"Layers": ["sha256:" + "a" * 64]}}
    settings = DockerSettings("sha256:1", "unix:///x.sock", (0,), 1, Path(), expected=identity_of(image))

    def insist(**changes: Any) -> None:
        """On the image of a campaign, at an engine whose image is changed like this."""
        found = SimpleNamespace(attrs=image | changes)
        insist_on_image(SimpleNamespace(images=SimpleNamespace(get=lambda _: found)), settings)

    insist()
    gone = SimpleNamespace(get=Mock(side_effect=ImageNotFound("sha256:1")))
    with pytest.raises(InfrastructureError, match=r"unix:///x\.sock no longer has the image sha256:1 "):
        insist_on_image(SimpleNamespace(images=gone), settings)
    another = "not the one that this campaign is pinned to: "
    with pytest.raises(InfrastructureError, match=f"{another}layer 1 of 1: expected aaaaaaaaaaaa, found bbbbbbbbbbbb"):
        insist(RootFS={"Layers": ["sha256:" + "b" * 64]})
    with pytest.raises(InfrastructureError, match=f"{another}settings .* expected .*, found "):
        insist(Config={"Env": ["A=2"]})
