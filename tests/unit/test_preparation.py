"""What is known about hosts before anything is built."""

from pathlib import Path

import pytest

from orchestrator.campaign import ProjectFiles, pins_without_building, preparation
from orchestrator.errors import NoUsableHostError
from orchestrator.inventory import load_inventory


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
