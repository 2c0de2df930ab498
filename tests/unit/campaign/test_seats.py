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
from orchestrator.hosts import HostFacts
from orchestrator.hosts.pins import KnownEnvironments, planning_host
from orchestrator.planning import EnvironmentPin, GpuFacts, Isolation, PlanningHost, make_slots
from runners.contract import Environment, Task, Trial
from runners.system import Fingerprint, GpuPlace, NumaNode, Topology, collect
from runners.system.nvml import Gpu

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
def task(make_trial: Callable[..., Trial], make_task: Callable[..., Task]) -> Callable[[str, int], Task]:
    def task(device: str, round_number: int) -> Task:
        trial = make_trial("bert-base", sequence_length=8, device=device)
        return make_task(replace(trial, round=round_number))

    return task


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


def test_an_exclusive_host_gives_its_first_gpu_and_everything_else(task: Callable[[str, int], Task]) -> None:
    for whole in (host(Exclusive.HOST), limited(host(Exclusive.GPU), {}, 1)):  # stored trials are repeated one by one
        for number in (1, 2):
            assert limits(whole, task("cuda", number)) == ("GPU-a", CORES, 1000, None)


def requests(fingerprint: Fingerprint) -> Requests:
    return Requests("c", {"h1": host(Exclusive.GPU)}, ProjectFiles(Path()), "store", fingerprint)


def test_rows_tell_the_cores_and_the_memory_of_the_slot(task: Callable[[str, int], Task]) -> None:
    asked = requests(collect())
    context = asked.origin("h1", "cpu", task("cuda", 2)).context
    assert (context.trial_cores, context.memory_limit_bytes) == ("4-7", 500)
    assert (context.gpu_uuid, context.exclusive, context.slot) == ("GPU-b", "gpu", 1)
    alone = asked.origin("h1", "cpu", task("cpu", 2)).context
    assert (alone.trial_cores, alone.gpu_uuid, alone.exclusive, alone.slot) == ("0-7", None, "host", 0)
    unrun = asked.origin("h1", "cpu").context
    assert (unrun.trial_cores, unrun.exclusive, unrun.slot) == ("0-7", None, None)


def test_a_row_names_its_gpu_where_a_host_has_several_kinds(task: Callable[[str, int], Task]) -> None:
    seen = collect()
    assert seen.private is not None
    gpu = Gpu("NVIDIA A100-SXM4-80GB", "8.0", 80 * 2**30, *(None,) * 10)
    private = replace(seen.private, gpu_uuids=("GPU-a", "GPU-b"))
    asked = requests(replace(seen, gpus=(gpu, replace(gpu, name="Tesla T4")), private=private))
    builder = asked.builder(asked.origin("h1", "cpu", task("cuda", 2)))
    assert builder.context.hot["gpu_name"] == "Tesla T4"
    assert builder.rows([]).systems[0]["gpu_name"] == "NVIDIA A100-SXM4-80GB, Tesla T4"
    # An export tells no UUIDs, so that the runner names the GPU that it sees
    builder.runs_on(replace(seen, gpus=(gpu, replace(gpu, name="Tesla T4")), private=None))
    assert builder.context.hot["gpu_name"] == "NVIDIA A100-SXM4-80GB, Tesla T4"
    builder.saw(Environment("task", {}, {"driver_visible_gpu": "Tesla T4"}, "0" * 64))
    assert builder.context.hot["gpu_name"] == "Tesla T4"


def facts(cores: tuple[int, ...] = CORES) -> HostFacts:
    """A machine with two GPUs of two kinds."""
    gpus = (GpuFacts("NVIDIA A100-SXM4-80GB", "8.0", 80 * 2**30), GpuFacts("Tesla T4", "7.5", 16 * 2**30))
    told = ("x86_64", None, gpus, "560.1", None, TOPOLOGY, Isolation.PROCESS, "for a test", None, "/work")
    return HostFacts("here", cores, 2**33, *told)


def planned(tmp_path: Path, project: Path, settings: str, found: HostFacts) -> PlanningHost:
    path = tmp_path / "hostinventory.yaml"
    path.write_text(f"version: 1\nhosts:\n  here: {{connection: local, executor: process, {settings}}}\n")
    known = load_inventory(path)
    environments = KnownEnvironments(("cpu",), Catalogue.load(ProjectFiles(project).catalogue), {})
    return planning_host(found, known.hosts["here"], known, environments, {})


@pytest.mark.parametrize(
    ("settings", "slots", "names"),
    [
        ("exclusive: host", [("GPU-a", CORES)], ["NVIDIA A100-SXM4-80GB"]),
        ('exclusive: host, gpus: ["GPU-b"]', [("GPU-b", CORES)], ["Tesla T4"]),
        ("exclusive: gpu", [("GPU-a", (0, 1, 2, 3)), ("GPU-b", (4, 5, 6, 7))], ["NVIDIA A100-SXM4-80GB", "Tesla T4"]),
        ("exclusive: gpu, gpus: []", [(None, CORES)], []),
    ],
)
def test_a_host_uses_the_gpus_of_the_inventory(
    settings: str, slots: list[tuple[str | None, tuple[int, ...]]], names: list[str], tmp_path: Path, project: Path
) -> None:
    host = planned(tmp_path, project, settings, facts())
    assert [(slot.gpu_uuid, slot.cores) for slot in host.slots] == slots
    assert host.machine is not None
    assert [gpu.name for gpu in host.machine.gpus] == names
    assert (host.machine.gpu_reason is None) == bool(names)


def test_a_gpu_that_a_host_lacks_is_refused_with_the_line(tmp_path: Path, project: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"yaml:3: hosts.here.gpus: gpus names 2, and the host has 0: GPU-a, 1"
    ):
        planned(tmp_path, project, "gpus: [0, 2]", facts())


def test_too_few_cores_for_the_gpus_are_refused(tmp_path: Path, project: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"hosts.here.exclusive: 2 GPUs at once need as many cores"):
        planned(tmp_path, project, "exclusive: gpu", facts((5,)))
