"""Which GPU, cores and memory a task gets on its host, and what the inventory has to do with it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.campaign import ProjectFiles
from orchestrator.campaign.driving.task_tracker import Origins
from orchestrator.campaign.pins import KnownEnvironments, planning_host
from orchestrator.campaign.provision import ReadyHost
from orchestrator.campaign.reproduce.targets import limited
from orchestrator.campaign.seats import part_of, seated
from orchestrator.config import Exclusive, load_inventory
from orchestrator.environments import Catalogue
from orchestrator.errors import ConfigurationError
from orchestrator.execution import DockerSettings
from orchestrator.hosts import HostFacts
from orchestrator.planning import EnvironmentPin, GpuFacts, Isolation, PlanningHost, make_slots
from runners.contract import Task, Trial
from runners.system import GpuPlace, NumaNode, Topology, collect
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


def test_slots_share_cores_and_memory_and_have_a_gpu_each(task: Callable[[str, int], Task]) -> None:
    shared = host(Exclusive.GPU)
    first, second, third = (seated(shared, task("cuda", number)) for number in (1, 2, 3))
    assert isinstance(first, DockerSettings)
    assert isinstance(second, DockerSettings)
    assert (first.gpu_uuid, first.cores, first.memory_bytes) == ("GPU-a", (0, 1, 2, 3), 500)
    assert (second.gpu_uuid, second.cores, second.memory_bytes) == ("GPU-b", (4, 5, 6, 7), 500)
    assert third == first
    assert part_of(shared.planning, task("cuda", 2)) == "GPU-b"


def test_an_exclusive_host_gives_its_first_gpu_and_everything_else(task: Callable[[str, int], Task]) -> None:
    whole = host(Exclusive.HOST)
    for number in (1, 2):
        given = seated(whole, task("cuda", number))
        assert isinstance(given, DockerSettings)
        assert (given.gpu_uuid, given.cores, given.memory_bytes) == ("GPU-a", CORES, 1000)
        assert part_of(whole.planning, task("cuda", number)) is None


def test_trials_of_processors_have_all_and_no_gpu(task: Callable[[str, int], Task]) -> None:
    shared = host(Exclusive.GPU)
    assert seated(shared, task("cpu", 2)) == shared.executions["cpu"]
    assert part_of(shared.planning, task("cpu", 2)) is None


def test_rows_tell_the_cores_and_the_memory_of_the_slot(task: Callable[[str, int], Task]) -> None:
    origins = Origins("c", {"h1": host(Exclusive.GPU)}, None, collect())
    context = origins.of("h1", "cpu", task("cuda", 2)).context
    assert (context.trial_cores, context.memory_limit_bytes) == ("4-7", 500)
    assert (context.gpu_uuid, context.exclusive, context.slot) == ("GPU-b", "gpu", 1)
    alone = origins.of("h1", "cpu", task("cpu", 2)).context
    assert (alone.trial_cores, alone.gpu_uuid, alone.exclusive, alone.slot) == ("0-7", None, "host", 0)
    unrun = origins.of("h1", "cpu", None).context
    assert (unrun.trial_cores, unrun.exclusive, unrun.slot) == ("0-7", None, None)


def test_a_row_names_its_gpu_where_a_host_has_several_kinds(task: Callable[[str, int], Task]) -> None:
    seen = collect()
    assert seen.private is not None
    gpu = Gpu("NVIDIA A100-SXM4-80GB", "8.0", 80 * 2**30, *(None,) * 10)
    private = replace(seen.private, gpu_uuids=("GPU-a", "GPU-b"))
    mixed = replace(seen, gpus=(gpu, replace(gpu, name="Tesla T4")), private=private)
    origins = Origins("c", {"h1": host(Exclusive.GPU)}, None, mixed)
    builder = origins.builder(origins.of("h1", "cpu", task("cuda", 2)))
    assert builder.context.hot["gpu_name"] == "Tesla T4"
    assert builder.rows([]).systems[0]["gpu_name"] == "NVIDIA A100-SXM4-80GB, Tesla T4"


def test_stored_trials_are_repeated_one_by_one(task: Callable[[str, int], Task]) -> None:
    again = limited(host(Exclusive.GPU), {}, 1)
    given = seated(again, task("cuda", 2))
    assert isinstance(given, DockerSettings)
    assert (given.gpu_uuid, given.cores) == ("GPU-a", CORES)


def facts(cores: tuple[int, ...] = CORES) -> HostFacts:
    """A machine with two GPUs of two kinds."""
    gpus = (
        GpuFacts("NVIDIA A100-SXM4-80GB", "8.0", 80 * 2**30),
        GpuFacts("Tesla T4", "7.5", 16 * 2**30),
    )
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
        (
            "exclusive: gpu",
            [("GPU-a", (0, 1, 2, 3)), ("GPU-b", (4, 5, 6, 7))],
            ["NVIDIA A100-SXM4-80GB", "Tesla T4"],
        ),
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
