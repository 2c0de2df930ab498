"""Hosts with several GPUs, simulated: which of them are found, named, handed to containers, and given cores."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.cli import run
from orchestrator.config import Inventory, load_inventory, select_hosts
from orchestrator.environments import BuiltImage, Catalogue
from orchestrator.errors import ExitCode
from orchestrator.execution.docker import device_requests
from orchestrator.files import ProjectFiles
from orchestrator.hosts import HostFacts, open_hosts
from orchestrator.hosts.cluster import up
from orchestrator.hosts.pins import KnownEnvironments, planning_host
from runners.contract import Task, Trial
from tests.lab.clusters import NODES, Site, ask
from tests.lab.gpus import simulated_gpus
from tests.lab.lab import Lab

Check = Callable[..., tuple[int, dict[str, str]]]

pytestmark = [pytest.mark.engine, pytest.mark.lab]


@pytest.fixture
def two_gpus(seeded_lab: Lab, lab: Lab) -> Iterator[tuple[str, ...]]:
    """Two GPUs for the host h2."""
    with simulated_gpus(lab.host("h2"), 2) as uuids:
        yield uuids


@pytest.fixture
def inventory(lab: Lab, tmp_path: Path) -> Callable[..., Path]:
    """The inventory of the lab, with more settings of h2."""

    def write(**settings: object) -> Path:
        path = tmp_path / "hostinventory.yaml"
        lines = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in settings.items())
        path.write_text(lab.inventory().read_text().replace("  h2:\n", f"  h2:\n{lines}", 1))
        return path

    return write


@pytest.fixture
def check(inventory: Callable[..., Path], in_project: object, capsys: pytest.CaptureFixture[str]) -> Check:
    """Checks h2 with some settings; returns the exit code and what was found about its GPUs."""

    def checked(**settings: object) -> tuple[int, dict[str, str]]:
        capsys.readouterr()
        code = run(["hosts", "check", "--format", "json", "--inventory", str(inventory(**settings)), "--limit", "h2"])
        [host] = json.loads(capsys.readouterr().out)["hosts"]
        return code, host["checks"]["gpu"]

    return checked


def test_gpus_are_seen_inside(two_gpus: tuple[str, ...], check: Check) -> None:
    code, found = check()
    assert (code, found["level"], found["shown"]) == (ExitCode.OK, "ok", "2, 2 inside")
    code, found = check(gpus=[two_gpus[1]])
    assert (code, found["shown"]) == (ExitCode.OK, "2, 2 inside, 1 used")


def assert_a_slot_each(facts: HostFacts, known: Inventory, files: ProjectFiles, uuids: tuple[str, ...]) -> None:
    environments = KnownEnvironments(("cpu",), Catalogue.load(files.catalogue), {})
    host = planning_host(facts, known.hosts["h2"], known, environments, {})
    assert [slot.gpu_uuid for slot in host.slots] == list(uuids)
    first, second = (set(slot.cores) for slot in host.slots)
    assert len(first) == len(second) > 0
    assert not first & second
    assert host.machine is not None
    assert len(host.machine.gpus) == 2


def test_two_gpus_at_once_need_two_cores(
    two_gpus: tuple[str, ...], check: Check, inventory: Callable[..., Path]
) -> None:
    code, found = check(exclusive="gpu", reserved_cores=0)
    assert (code, found["level"]) == (ExitCode.OK, "ok")
    known, files = load_inventory(inventory(exclusive="gpu", reserved_cores=0)), ProjectFiles(Path.cwd())
    with open_hosts(select_hosts(known, "h2"), known, files) as hosts:
        facts, problems = hosts.look()
    assert problems == {}
    assert_a_slot_each(facts["h2"], known, files, two_gpus)


@pytest.mark.cluster
@pytest.mark.long
def test_an_agent_takes_a_task_for_each_gpu_that_its_containers_see(
    two_gpus: tuple[str, ...], inventory: Callable[..., Path], lab: Lab, in_project: Path, tmp_path: Path
) -> None:
    known, site = load_inventory(inventory(exclusive="gpu", reserved_cores=0)), Site(lab, tmp_path / "state")
    chosen = select_hosts(known, "h2")
    cluster = up(chosen, known, site, print)
    try:
        agent = cluster.agents["h2"]
        assert agent.gpu_uuids == two_gpus
        [taken] = [resources["bench_slot"] for _, resources, _ in ask(cluster, NODES) if "bench_slot" in resources]
        assert taken >= 2
        with open_hosts(chosen, known, site) as hosts:
            facts, problems = hosts.join(["h2"], print)
        assert problems == {}
        assert_a_slot_each(facts["h2"], known, ProjectFiles(in_project), two_gpus)
    finally:
        site.down()


def test_a_container_gets_the_gpu_that_its_task_names_and_no_other(
    two_gpus: tuple[str, ...],
    lab: Lab,
    cpu_image: BuiltImage,
    make_trial: Callable[..., Trial],
    make_task: Callable[..., Task],
) -> None:
    task = make_task(make_trial("bert-base", sequence_length=8, device="cuda"))
    seen = {}
    with lab.host("h2").engine() as client:
        for uuid in (None, *two_gpus):
            request = device_requests(task, uuid)
            options = {"device_requests": request, "network_mode": "none", "remove": True, "read_only": True}
            seen[uuid] = client.containers.run(cpu_image.reference, ["nvidia-smi", "-L"], **options).decode()
    assert all(uuid in seen[None] for uuid in two_gpus)
    for uuid in two_gpus:
        assert seen[uuid] == f"GPU 0: Simulated Ampere 80GB (UUID: {uuid})\n"
