"""Slots: which GPU and which cores tasks that run at the same time get."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from orchestrator.config import Exclusive, Sweep
from orchestrator.planning import (
    EnvironmentPin,
    Isolation,
    PlanningHost,
    Slot,
    choose_gpus,
    make_slots,
    plan,
    slot_of,
    slots_at_once,
)
from runners.system import GpuPlace, NumaNode, Topology, cores_text
from runners.system.reading import parse_list
from tests.scripted_campaign import sweep


def gpus(count: int, nodes: Sequence[int | None] = (), mig: bool = False) -> tuple[GpuPlace, ...]:
    placed = [*nodes, *[None] * (count - len(nodes))]
    return tuple(
        GpuPlace(f"GPU-{number:08x}-0000", f"0000:{number:02x}:00.0", node, mig=mig)
        for number, node in enumerate(placed)
    )


def machine(cores: int, nodes: int, threads: int = 1) -> Topology:
    """Cores in equal shares over nodes; second threads are numbered after all the first ones, as Linux does."""
    share = cores // nodes
    first = [range(node * share, (node + 1) * share) for node in range(nodes)]
    return Topology(
        cores=tuple(cores_text(core + cores * thread for thread in range(threads)) for core in range(cores)),
        nodes=tuple(
            NumaNode(node, cores_text(core + cores * thread for core in first[node] for thread in range(threads)))
            for node in range(nodes)
        ),
    )


# 2 sockets of 64 cores and 128 threads, 8 nodes, 8 GPUs near to 4 of the nodes
DGX_A100 = machine(128, 8, threads=2)
DGX_GPUS = gpus(8, [3, 3, 1, 1, 7, 7, 5, 5])


def shown(slots: Sequence[Slot]) -> list[str]:
    return [cores_text(slot.cores) for slot in slots]


def assert_fair(slots: Sequence[Slot], cores: Sequence[int]) -> None:
    used = [core for slot in slots for core in slot.cores]
    assert len(used) == len(set(used)), "a core belongs to two slots"
    assert set(used) <= set(cores)
    assert len({len(slot.cores) for slot in slots}) == 1
    assert [slot.index for slot in slots] == list(range(len(slots)))


@pytest.mark.parametrize("exclusive", Exclusive)
def test_without_two_gpus_that_can_be_told_apart_one_slot_has_all_cores(exclusive: Exclusive) -> None:
    [gpu] = gpus(1, [0])
    assert make_slots(range(1, 8), machine(8, 1), [gpu], exclusive) == (Slot(0, gpu.uuid, tuple(range(1, 8))),)
    for given in ((), (GpuPlace(None, None), GpuPlace(None, None))):
        assert make_slots((0, 1, 2), Topology(), given, exclusive) == (Slot(0, None, (0, 1, 2)),)


def test_two_sockets_with_eight_gpus_get_whole_cores_of_their_own_nodes() -> None:
    slots = make_slots(range(256), DGX_A100, DGX_GPUS, Exclusive.GPU)
    assert_fair(slots, range(256))
    assert [slot.gpu_uuid for slot in slots] == [gpu.uuid for gpu in DGX_GPUS]
    assert shown(slots)[:4] == ["48-55,176-183", "56-63,184-191", "16-23,144-151", "24-31,152-159"]
    for slot, gpu in zip(slots, DGX_GPUS, strict=True):
        assert gpu.numa_node is not None
        assert set(slot.cores) <= parse_list(DGX_A100.nodes[gpu.numa_node].cpus)


HYBRID = Topology(("0-1", "2-3", "4-5", "6-7", *map(str, range(8, 16))), (NumaNode(0, "0-15"),))


@pytest.mark.parametrize(
    ("cores", "topology", "nodes", "expected"),
    [
        (range(7), machine(7, 1), [0, 0], ["0-2", "3-5"]),
        # three GPUs on the first node, one on the second: the smallest share decides
        (range(16), machine(16, 2), [0, 0, 0, 1], ["0-1", "2-3", "4-5", "8-9"]),
        # four cores of two threads, eight of one: cores of one kind
        (range(16), HYBRID, [0, 0], ["0-3", "4-7"]),
        # one thread of each core, where the others are kept from all
        (range(4), machine(4, 1, threads=2), [0, 0], ["0-1", "2-3"]),
        # two cores of the first node are the agent's; their second threads would share the core with it
        (range(2, 32), machine(16, 2, threads=2), [0, 1], ["2-7,18-23", "8-13,24-29"]),
        # all cores of a node are: nobody is near to anything
        (range(8, 16), machine(16, 2), [0, 1], ["8-11", "12-15"]),
        *((range(16), machine(16, 2), nodes, ["0-7", "8-15"]) for nodes in ([None, None], [0, None], [0, 9])),
        ((0, 2, 5, 7, 9), Topology(), [None, None], ["0,2", "5,7"]),
    ],
)
def test_all_slots_have_as_many_whole_cores_near_to_their_gpus_and_what_is_left_over_stays_idle(
    cores: Sequence[int], topology: Topology, nodes: list[int | None], expected: list[str]
) -> None:
    slots = make_slots(cores, topology, gpus(len(nodes), nodes), Exclusive.GPU)
    assert_fair(slots, cores)
    assert shown(slots) == expected


def test_without_a_node_the_processors_near_to_a_gpu_decide() -> None:
    first, other = gpus(2)
    near = [GpuPlace(first.uuid, first.pci_bus_id, None, "8-15"), GpuPlace(other.uuid, other.pci_bus_id, None, "0-7")]
    assert shown(make_slots(range(16), machine(16, 2), near, Exclusive.GPU)) == ["8-15", "0-7"]
    # all processors are near where the kernel does not know
    far = [GpuPlace(gpu.uuid, gpu.pci_bus_id, None, "0-15") for gpu in (first, other)]
    assert shown(make_slots(range(16), machine(16, 2), far, Exclusive.GPU)) == ["0-7", "8-15"]


def test_gpus_are_chosen_by_uuid_pattern_number_and_range() -> None:
    known = gpus(8)
    for patterns, numbers in (
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ([], []),
        (["GPU-00000003-0000", "gpu-00000001*"], [1, 3]),
        (["6", "0-2"], [0, 1, 2, 6]),
    ):
        chosen = choose_gpus(patterns, known)
        assert chosen.gpus == tuple(known[number] for number in numbers)
        assert chosen.problems == ()


def test_gpus_that_are_not_there_or_divided_are_named() -> None:
    [problem] = choose_gpus(["0", "GPU-ff*"], gpus(2)).problems
    assert problem == "gpus names GPU-ff*, and the host has 0: GPU-00000000-0000, 1: GPU-00000001-0000"
    assert choose_gpus(["7-9"], ()).problems == ("gpus names 7-9, and the host has no GPU",)
    known = [*gpus(1), *gpus(2, mig=True)[1:]]
    chosen = choose_gpus(None, known)
    assert (chosen.gpus, chosen.divided, chosen.problems) == ((known[0],), ("GPU-00000001-0000",), ())
    [problem] = choose_gpus(["1"], known).problems
    assert problem.startswith("gpus names 1, which is divided into parts")


SLOTS = make_slots(range(16), machine(16, 2), gpus(2, [0, 1]), Exclusive.GPU)
PINS = {name: EnvironmentPin(name, Isolation.DOCKER, "test", "0" * 64) for name in ("one", "two")}
HOST = PlanningHost("h", {}, tuple(range(16)), PINS, slots=SLOTS, exclusive=Exclusive.GPU)


def wanted(device: str, rounds: int, **more: object) -> Sweep:
    usual = {"device": device, "threads": ("all",), "environments": ("one", "two")}
    return sweep(rounds=rounds, workloads=("bert-base",), backends=("eager",), **(usual | more))


def test_a_round_on_gpus_has_one_slot_for_all_environments_and_one_on_processors_the_whole_host() -> None:
    for device, rounds, expected, threads, at_once in (
        ("cuda", 3, [0, 0, 1, 1, 0, 0], 8, 2),
        ("cpu", 2, [0] * 4, 16, 1),
    ):
        tasks = plan(wanted(device, rounds), [HOST], "c").tasks
        assert [task.slot for task in tasks] == [slot_of(SLOTS, task.task).index for task in tasks] == expected
        assert {trial.spec.threads for task in tasks for trial in task.task.trials} == {threads}
        assert slots_at_once(SLOTS, [task.task for task in tasks]) == at_once


def test_an_estimate_knows_what_a_gpu_costs_and_that_two_take_half_of_it() -> None:
    whole = wanted("cuda", 2, threads=(1,), environments="one")

    def estimate(slots: int = 1, **changes: object) -> float:
        host = replace(HOST, slots=SLOTS[:slots])
        return plan(whole.model_copy(update=changes), [host], "c").estimate_s

    assert estimate(2) < 0.6 * estimate()
    # It builds and warms up again to be examined, in a context of its own, and energy has three windows
    usual = whole.protocol
    longer = replace(usual, warmup_min_ms=usual.warmup_min_ms + 1000)
    assert estimate(protocol=longer) - estimate() == pytest.approx(4.0 * 2)
    assert estimate(protocol=replace(usual, energy_window_ms=2000)) - estimate() == pytest.approx(12.0 * 2)
    assert estimate(device="cpu", protocol=replace(usual, floor_budget_ms=0)) - estimate() < -20
