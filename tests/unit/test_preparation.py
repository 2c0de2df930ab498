"""What is known about hosts before anything is built."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.campaign import ProjectFiles, pins_without_building, prepare_hosts
from orchestrator.campaign.preparing import preparation
from orchestrator.config import load_inventory, load_sweep
from orchestrator.environments import EnvironmentEntry, VirtualEnvironment
from orchestrator.errors import NoUsableHostError
from orchestrator.planning import GpuFacts, needed_environments, plan
from runners.system import Fingerprint, collect
from runners.system.nvml import Gpu


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "hostinventory.yaml"
    path.write_text("version: 1\nhosts:\n  here: {connection: local, executor: process}\n")
    return path


def test_a_host_lacks_what_its_interpreters_cannot_serve(
    inventory: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = {"cpu": None, "cpu-2022": "there is no Python 3.9"}
    monkeypatch.setattr(preparation, "virtualenv_problem", lambda entry, root: problems[entry.name])
    [host] = pins_without_building(load_inventory(inventory).hosts, inventory, list(problems), ProjectFiles(project))
    assert host.unavailable == {"cpu-2022": "there is no Python 3.9"}
    assert set(host.environments) == {"cpu", "cpu-2022"}


def test_a_sweep_that_no_host_can_serve_at_all_ends(
    inventory: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "virtualenv_problem", lambda entry, root: f"no Python for {entry.name}")
    hosts = load_inventory(inventory).hosts
    with pytest.raises(NoUsableHostError, match="no Python for cpu; no Python for cpu-2022"):
        pins_without_building(hosts, inventory, ["cpu", "cpu-2022"], ProjectFiles(project))


def test_any_suitable_without_a_usable_environment_ends_too(
    inventory: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "virtualenv_problem", lambda entry, root: f"no Python for {entry.name}")
    hosts, files = load_inventory(inventory).hosts, ProjectFiles(project)
    with pytest.raises(NoUsableHostError, match="no Python for cpu; .*no Python for cuda126"):
        pins_without_building(hosts, inventory, ["any-suitable"], files)
    monkeypatch.setattr(
        preparation, "virtualenv_problem", lambda entry, root: None if entry.name == "cpu" else "no Python"
    )
    [host] = pins_without_building(hosts, inventory, ["any-suitable"], files)
    assert "cuda126" in host.unavailable


def test_an_environment_without_a_lock_is_none(inventory: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts, files = load_inventory(inventory).hosts, ProjectFiles(project)
    with pytest.raises(NoUsableHostError, match="tensorrt: this environment has no lock: "):
        pins_without_building(hosts, inventory, ["tensorrt"], files)
    monkeypatch.setattr(preparation, "virtualenv_problem", lambda entry, root: None)
    assert pins_without_building(hosts, inventory, ["tensorrt", "cpu"], files)


def scripted(gpu: Gpu | None) -> Callable[[], Fingerprint]:
    """A fingerprint of this machine with one GPU, or none."""
    seen = replace(
        collect(),
        gpus=() if gpu is None else (gpu,),
        gpu_driver_version=None if gpu is None else "535.183.01",
        gpu_reason="NVML does not start" if gpu is None else None,
    )
    return lambda: seen


PASCAL = Gpu("NVIDIA GeForce GTX 1080 Ti", "6.1", 11 * 2**30, *(None,) * 10)


def test_planning_knows_the_gpus_of_the_fingerprint_and_what_environments_need(
    inventory: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "collect", scripted(PASCAL))
    monkeypatch.setattr(preparation, "virtualenv_problem", lambda entry, root: None)
    hosts = load_inventory(inventory).hosts
    [host] = pins_without_building(hosts, inventory, ["any-suitable"], ProjectFiles(project))
    assert host.machine is not None
    assert host.machine.gpus == (GpuFacts("NVIDIA GeForce GTX 1080 Ti", "6.1", 11 * 2**30),)
    assert (host.machine.driver_version, host.machine.gpu_reason) == ("535.183.01", None)
    assert host.machine.trial_memory_bytes == preparation.trial_memory_bytes()
    assert host.machine.architecture == collect().kernel.architecture is not None
    assert set(host.environments) == {*host.demands, "any-suitable"} > {"cpu", "cuda126", "tensorrt"}
    assert host.environments["tensorrt"].lock_sha256 is None
    sweep = load_sweep(project / "sweeps/paper/figure_3.yaml").model_copy(update={"threads": (1,)})
    assert needed_environments(plan(sweep, [host], "c")) == {"here": {"cuda126"}}


def test_only_the_environments_that_trials_need_are_built(
    inventory: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []

    def build(entry: EnvironmentEntry, root: Path, say: object) -> VirtualEnvironment:
        built.append(entry.name)
        return VirtualEnvironment(root / entry.name, "0" * 64)

    monkeypatch.setattr(preparation, "ensure_virtualenv", build)
    monkeypatch.setattr(preparation, "virtualenv_problem", lambda entry, root: None)
    hosts, files = load_inventory(inventory).hosts, ProjectFiles(project)
    wanted = ["cpu", "cuda126", "tensorrt", "any-suitable"]
    [ready] = prepare_hosts(hosts, inventory, wanted, files, print, {"here": {"cpu"}})
    assert built == ["cpu"]
    assert set(ready.executions) == {"cpu"}
    assert ready.planning.environments["cpu"].lock_sha256 == "0" * 64
    assert {"cuda126", "tensorrt", "any-suitable"} < set(ready.planning.environments)
    [idle] = prepare_hosts(hosts, inventory, wanted, files, print, {})
    assert (built, idle.executions) == (["cpu"], {})
