"""Which GPU, cores and memory a task gets on its host, and what the inventory has to do with it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.campaign.driver.requests import Requests, seat_of
from orchestrator.campaign.provision import ReadyHost
from orchestrator.campaign.reproduce.reproduction import limited
from orchestrator.config import Exclusive, load_inventory
from orchestrator.environments import Catalogue
from orchestrator.errors import ConfigurationError
from orchestrator.execution import DockerSettings
from orchestrator.files import ProjectFiles
from orchestrator.hosts.pins import KnownEnvironments, planning_host
from orchestrator.planning import EnvironmentPin, GpuFacts, Isolation, PlanningHost, make_slots
from runners.contract import Environment, Task
from runners.system import Fingerprint, GpuPlace, NumaNode, Topology, collect
from runners.system.nvml import Gpu
from tests.conftest import PROJECT, MakeTask, MakeTrial
from tests.fake_host import host_facts

TOPOLOGY = Topology(
    tuple(map(str, range(8))),
    (NumaNode(0, "0-3"), NumaNode(1, "4-7")),
    (GpuPlace("GPU-a", "0000:01:00.0", 0), GpuPlace("GPU-b", "0000:02:00.0", 1)),
)
CORES = tuple(range(8))


def host(exclusive: Exclusive) -> ReadyHost:
    pins = {"cpu": EnvironmentPin("cpu", Isolation.DOCKER, "for a test", "lock")}
    slots = make_slots(CORES, TOPOLOGY, TOPOLOGY.gpus, exclusive)
    planning = PlanningHost("h1", {}, CORES, pins, topology=TOPOLOGY, slots=slots, exclusive=exclusive)
    return ReadyHost(planning, {"cpu": DockerSettings("sha256:1", None, CORES, 1000, Path())})


@pytest.fixture
def task(make_trial: MakeTrial, make_task: MakeTask) -> Callable[[str, int], Task]:
    """On a device, in a round."""
    return lambda device, number: make_task(make_trial("bert-base", sequence_length=8, device=device, round=number))


def limits(host: ReadyHost, task: Task) -> tuple[str | None, tuple[int, ...], int, str | None]:
    seat = seat_of(host, task)
    assert isinstance(seat.execution, DockerSettings)
    return seat.execution.gpu_uuid, seat.execution.cores, seat.execution.memory_bytes, seat.part


def test_slots_share_cores_and_memory_and_have_a_gpu_each(task: Callable[[str, int], Task]) -> None:
    shared = host(Exclusive.GPU)
    assert [limits(shared, task("cuda", number)) for number in (1, 2, 3)] == [
        ("GPU-a", (0, 1, 2, 3), 500, "GPU-a"),
        ("GPU-b", (4, 5, 6, 7), 500, "GPU-b"),
        ("GPU-a", (0, 1, 2, 3), 500, "GPU-a"),
    ]
    assert limits(shared, task("cpu", 2)) == (None, CORES, 1000, None), "trials of processors have all, and no GPU"

    for whole in (host(Exclusive.HOST), limited(shared, {}, 1)):  # stored trials are repeated one by one
        for number in (1, 2):
            assert limits(whole, task("cuda", number)) == ("GPU-a", CORES, 1000, None)


def requests(fingerprint: Fingerprint) -> Requests:
    return Requests("c", {"h1": host(Exclusive.GPU)}, ProjectFiles(Path()), "store", fingerprint)


def test_rows_tell_the_cores_and_the_memory_of_the_slot(task: Callable[[str, int], Task]) -> None:
    asked = requests(collect())
    for made, told in (
        (task("cuda", 2), ("4-7", 500, "GPU-b", "gpu", 1)),
        (task("cpu", 2), ("0-7", 1000, None, "host", 0)),
        (None, ("0-7", 1000, None, None, None)),
    ):
        seen = asked.origin("h1", "cpu", made).context
        assert (seen.trial_cores, seen.memory_limit_bytes, seen.gpu_uuid, seen.exclusive, seen.slot) == told


def test_a_row_names_its_gpu_where_a_host_has_several_kinds(task: Callable[[str, int], Task]) -> None:
    gpu = Gpu("NVIDIA A100-SXM4-80GB", "8.0", 80 * 2**30, *(None,) * 10)
    seen = replace(collect(), gpus=(gpu, replace(gpu, name="Tesla T4")))
    assert seen.private is not None
    asked = requests(replace(seen, private=replace(seen.private, gpu_uuids=("GPU-a", "GPU-b"))))
    builder = asked.builder(asked.origin("h1", "cpu", task("cuda", 2)))
    assert builder.context.hot["gpu_name"] == "Tesla T4"
    assert builder.rows([]).systems[0]["gpu_name"] == "NVIDIA A100-SXM4-80GB, Tesla T4"
    # An export tells no UUIDs, so that the runner names the GPU that it sees
    builder.runs_on(replace(seen, private=None))
    assert builder.context.hot["gpu_name"] == "NVIDIA A100-SXM4-80GB, Tesla T4"
    builder.saw(Environment("task", {}, {"driver_visible_gpu": "Tesla T4"}, "0" * 64))
    assert builder.context.hot["gpu_name"] == "Tesla T4"


A100, T4 = GpuFacts("NVIDIA A100-SXM4-80GB", "8.0", 80 * 2**30), GpuFacts("Tesla T4", "7.5", 16 * 2**30)


def planned(tmp_path: Path, settings: str, cores: tuple[int, ...] = CORES) -> PlanningHost:
    """A machine with two GPUs of two kinds, as its inventory wants it."""
    path = tmp_path / "hostinventory.yaml"
    path.write_text(f"version: 1\nhosts:\n  here: {{connection: local, executor: process, {settings}}}\n")
    known = load_inventory(path)
    environments = KnownEnvironments(("cpu",), Catalogue.load(ProjectFiles(PROJECT).catalogue), {})
    found = host_facts("here", A100, T4, cores=cores, topology=TOPOLOGY)
    return planning_host(found, known.hosts["here"], known, environments, {})


@pytest.mark.parametrize(
    ("settings", "slots", "names"),
    [
        ("exclusive: host", [("GPU-a", CORES)], [A100.name]),
        ('exclusive: host, gpus: ["GPU-b"]', [("GPU-b", CORES)], [T4.name]),
        ("exclusive: gpu", [("GPU-a", (0, 1, 2, 3)), ("GPU-b", (4, 5, 6, 7))], [A100.name, T4.name]),
        ("exclusive: gpu, gpus: []", [(None, CORES)], []),
    ],
)
def test_a_host_uses_the_gpus_of_the_inventory(
    settings: str, slots: list[tuple[str | None, tuple[int, ...]]], names: list[str], tmp_path: Path
) -> None:
    host = planned(tmp_path, settings)
    assert [(slot.gpu_uuid, slot.cores) for slot in host.slots] == slots
    assert host.machine is not None
    assert [gpu.name for gpu in host.machine.gpus] == names
    assert (host.machine.gpu_reason is None) == bool(names)


def test_gpus_and_cores_that_a_host_lacks_are_refused_with_the_line(tmp_path: Path) -> None:
    for settings, cores, told in (
        ("gpus: [0, 2]", CORES, "yaml:3: hosts.here.gpus: gpus names 2, and the host has 0: GPU-a, 1"),
        ("exclusive: gpu", (5,), "yaml:3: hosts.here.exclusive: 2 GPUs at once need as many cores"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            planned(tmp_path, settings, cores)
