"""The slots of a host: what runs there at the same time, each with a GPU and processors of its own. Pure."""

import fnmatch
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from orchestrator.config import Exclusive
from runners.contract import Task
from runners.system import GpuPlace, Topology
from runners.system.reading import parse_list

NONE_USED = "trials use none of its GPUs: `gpus:` leaves them out, or they are divided into parts (MIG)"
"""Why a host with GPUs has none."""

_Core = tuple[int, ...]
"""The hardware threads of one physical core, as far as trials may use them."""


@dataclass(frozen=True)
class Slot:
    """A place for one task at a time."""

    index: int
    """0 and up."""
    gpu_uuid: str | None
    """The GPU of its trials; null where there is none, or nobody tells which."""
    cores: tuple[int, ...]
    """Of its trials. Those of two slots of a host are disjoint, and as many."""


@dataclass(frozen=True)
class ChosenGpus:
    """The GPUs that trials may use."""

    gpus: tuple[GpuPlace, ...]
    """In the driver's order."""
    problems: tuple[str, ...]
    """What was asked for and cannot be had, in a line each."""
    divided: tuple[str, ...]
    """UUIDs of those that are divided into parts (MIG), which trials never use."""


class TooFewCoresError(ValueError):
    """There are more GPUs than cores for them; the message says what to do."""


def choose_gpus(patterns: Sequence[str] | None, gpus: Sequence[GpuPlace]) -> ChosenGpus:
    """The GPUs that an inventory's `gpus:` selects, without those that are divided.

    A part of a GPU shares clocks, power and the bus with the other parts, so what is measured on it depends on them.

    Args:
        patterns: UUIDs, patterns of UUIDs, numbers in the driver's order, or ranges of these such as `0-3`; null
            selects all.
        gpus: in the driver's order.
    """
    divided = tuple(gpu.uuid for gpu in gpus if gpu.mig and gpu.uuid is not None)
    problems = []
    for pattern in patterns or ():
        matched = [gpu for number, gpu in enumerate(gpus) if _matches(pattern, number, gpu)]
        if not matched:
            known = ", ".join(f"{number}: {gpu.uuid or 'of unknown UUID'}" for number, gpu in enumerate(gpus))
            problems.append(f"gpus names {pattern}, and the host has {known or 'no GPU'}")
        elif all(gpu.mig for gpu in matched):
            named = ", ".join(str(gpu.uuid) for gpu in matched)
            problems.append(
                f"gpus names {pattern}, which is divided into parts: end that with `nvidia-smi -mig 0 -i {named}`"
            )
    wanted = (
        gpu
        for number, gpu in enumerate(gpus)
        if not gpu.mig and (patterns is None or any(_matches(pattern, number, gpu) for pattern in patterns))
    )
    return ChosenGpus(tuple(wanted), tuple(problems), divided)


def used_of(gpus: Sequence[GpuPlace], exclusive: Exclusive) -> tuple[GpuPlace, ...]:
    """Those of the chosen GPUs on which trials run: all in turn, or the first where the host is taken as a whole."""
    return tuple(gpus) if exclusive is Exclusive.GPU else tuple(gpus[:1])


def make_slots(
    cores: Sequence[int], topology: Topology, gpus: Sequence[GpuPlace], exclusive: Exclusive
) -> tuple[Slot, ...]:
    """The slots of a host; at least one.

    With `exclusive: host`, and where there are not two GPUs that can be told apart, one slot has all cores and the
    first GPU. Else each GPU has a slot. Its cores are physical cores as a whole, taken from the GPU's own NUMA node if
    that is known for every GPU, else from all; all slots have as many, so that a trial means the same on each: the
    node with the smallest share decides, and what is left over stays idle.

    Args:
        cores: the processors that trials may use.
        topology: of the host; what it does not know is taken as a core of its own.
        gpus: those that trials may use.
        exclusive: what runs one task at a time.

    Raises:
        TooFewCoresError: there are fewer cores than GPUs.
    """
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid is not None]
    if exclusive is Exclusive.HOST or len(uuids) < 2 or len(uuids) < len(gpus):
        return (Slot(0, uuids[0] if uuids else None, tuple(cores)),)
    whole = _whole_cores(cores, topology)
    near = _near_cores(whole, topology, gpus)
    pools = near if near is not None and min(_shares(near)) > 0 else [tuple(whole)] * len(gpus)
    share = min(_shares(pools))
    if share == 0:
        raise TooFewCoresError(
            f"{len(gpus)} GPUs at once need as many cores, and trials have {len(whole)} whole ones: name fewer in "
            "`gpus:`, reserve fewer, or write `exclusive: host`"
        )
    taken: Counter[tuple[_Core, ...]] = Counter()
    slots = []
    for index, (gpu, pool) in enumerate(zip(gpus, pools, strict=True)):
        first = taken[pool] * share
        taken[pool] += 1
        own = tuple(sorted(thread for core in pool[first : first + share] for thread in core))
        slots.append(Slot(index, gpu.uuid, own))
    return tuple(slots)


def slot_of(slots: Sequence[Slot], task: Task) -> Slot:
    """The slot that a task runs in.

    A round of a host runs in one slot: what is compared shares a GPU, and the rounds go over all of them. Tasks of
    processors belong to the first slot; whoever runs them gives them the whole host.
    """
    return slots[(task.every_trial[0].round - 1) % len(slots)] if is_of_gpu(task) else slots[0]


def is_of_gpu(task: Task) -> bool:
    """Whether a trial of a task runs on a GPU."""
    return any(trial.spec.device == "cuda" for trial in task.every_trial)


def slots_at_once(slots: Sequence[Slot], tasks: Collection[Task]) -> int:
    """How many tasks of a host may run at the same time: one per slot if all of them run on GPUs, else one.

    Args:
        slots: of the host.
        tasks: all that the campaign has for it.
    """
    return len(slots) if all(is_of_gpu(task) for task in tasks) else 1


def _matches(pattern: str, number: int, gpu: GpuPlace) -> bool:
    span = re.fullmatch(r"(\d+)(?:-(\d+))?", pattern)
    if span is not None:
        return int(span[1]) <= number <= int(span[2] or span[1])
    return gpu.uuid is not None and fnmatch.fnmatchcase(gpu.uuid.lower(), pattern.lower())


def _whole_cores(cores: Sequence[int], topology: Topology) -> list[_Core]:
    """The physical cores, in the order of their first threads, all with as many threads.

    A core of which trials have only a part, because its other thread is the agent's, and one of another kind, as
    hybrid processors have them, would make slots unequal: the most common kind is taken.
    """
    usable = set(cores)
    groups = [tuple(sorted(parse_list(text) & usable)) for text in topology.cores]
    known = {thread for group in groups for thread in group}
    groups = [group for group in groups if group] + [(core,) for core in sorted(usable - known)]
    threads = Counter(thread for group in groups for thread in [len(group)] * len(group))
    usual = max(threads, key=lambda size: (threads[size], size), default=0)
    return sorted(group for group in groups if len(group) == usual)


def _near_cores(whole: Sequence[_Core], topology: Topology, gpus: Sequence[GpuPlace]) -> list[tuple[_Core, ...]] | None:
    """By GPU the cores of its own node; null if one is unknown, or two overlap without being equal."""
    pools = []
    for gpu in gpus:
        cpus = _near_cpus(topology, gpu)
        if cpus is None:
            return None
        pools.append(tuple(core for core in whole if set(core) <= cpus))
    claimed = Counter(core for pool in set(pools) for core in pool)
    return None if any(count > 1 for count in claimed.values()) else pools


def _near_cpus(topology: Topology, gpu: GpuPlace) -> frozenset[int] | None:
    """The node's processors, else those that the kernel calls near to the GPU, unless these are all there are."""
    nodes = {node.number: parse_list(node.cpus) for node in topology.nodes}
    if gpu.numa_node is not None and gpu.numa_node in nodes:
        return nodes[gpu.numa_node]
    near, everything = parse_list(gpu.cpus), frozenset[int]().union(*nodes.values())
    return near if near and near < everything else None


def _shares(pools: Sequence[tuple[_Core, ...]]) -> list[int]:
    """By GPU how many cores it gets of its pool, which it shares with the others of the same pool."""
    wanted = Counter(pools)
    return [len(pool) // wanted[pool] for pool in pools]
