"""What is judged of a host's GPUs: whether containers see them, and whether those are there that trials are to use."""

from collections.abc import Sequence

from orchestrator.config import Host
from orchestrator.hosts.checking.engine import EngineReading
from orchestrator.hosts.checking.reading import HostReading
from orchestrator.hosts.checking.report import Finding, Level
from orchestrator.planning import ChosenGpus, TooFewCoresError, choose_gpus, make_slots, used_of
from runners.system import GpuPlace


def chosen_gpus(host: Host, reading: HostReading) -> ChosenGpus:
    """The GPUs that trials may use there."""
    return choose_gpus(host.gpus, reading.topology.gpus)


def used_gpus(host: Host, reading: HostReading) -> tuple[GpuPlace, ...]:
    """Those of them that trials do use: with `exclusive: host` it is the first."""
    return used_of(chosen_gpus(host, reading).gpus, host.exclusive)


def gpu_finding(host: Host, reading: HostReading, engine: EngineReading | None) -> Finding:
    """One finding for all GPUs: the worst of what is wrong."""
    there = len(reading.gpus)
    chosen = chosen_gpus(host, reading)
    if chosen.problems:
        said = [*chosen.problems, *([reading.gpu_problem] if reading.gpu_problem else [])]
        return Finding(Level.FAILURE, f"{there}", f"{'; '.join(said)}: correct `gpus:`, or mend the host")
    if reading.gpu_problem is not None:
        return Finding(Level.WARNING, f"{there}?", reading.gpu_problem)
    if there == 0:
        return Finding(Level.NONE, "none")
    seen = _seen(there, engine)
    if seen.level is Level.FAILURE:
        return seen
    problem = _cores_problem(host, reading, chosen)
    if problem is not None:
        return Finding(Level.FAILURE, seen.shown, problem)
    return _divided(chosen.divided, seen) if chosen.divided else _used(len(chosen.gpus), there, seen)


def _seen(there: int, engine: EngineReading | None) -> Finding:
    inside = None if engine is None else engine.gpus
    if inside is None:
        return Finding(Level.NONE, f"{there}")
    if inside.image is None:
        return Finding(
            Level.WARNING,
            f"{there}, ? inside",
            "whether containers see the GPUs is not known, because none of our images is there to look from inside: "
            "bring one and check again",
        )
    shown = f"{there}, {inside.count or 0} inside"
    if inside.count == there:
        return Finding(Level.OK, shown)
    if not inside.count:
        said = f" ({inside.problem})" if inside.problem else ""
        mend = (
            "Podman gives GPUs to nobody who asks as one asks Docker; install Docker there for trials of GPUs"
            if engine is not None and engine.is_podman
            else "install NVIDIA's container toolkit there, then `sudo nvidia-ctk runtime configure --runtime=docker` "
            "and restart the engine"
        )
        return Finding(Level.FAILURE, shown, f"containers see none of the {there} GPUs{said}: {mend}")
    return Finding(
        Level.FAILURE,
        shown,
        f"containers see {inside.count} of {there} GPUs: look for NVIDIA_VISIBLE_DEVICES and device limits in the "
        "engine's settings",
    )


def _cores_problem(host: Host, reading: HostReading, chosen: ChosenGpus) -> str | None:
    cores = range(host.reserved_cores, reading.threads or 1)
    try:
        make_slots(cores, reading.topology, chosen.gpus, host.exclusive)
    except TooFewCoresError as error:
        return str(error)
    return None


def _divided(uuids: Sequence[str], seen: Finding) -> Finding:
    return Finding(
        Level.WARNING,
        seen.shown,
        f"{', '.join(uuids)} {'is' if len(uuids) == 1 else 'are'} divided into parts (MIG), which trials do not use: "
        f"`sudo nvidia-smi -mig 0 -i {','.join(uuids)}` makes it whole",
    )


def _used(used: int, there: int, seen: Finding) -> Finding:
    return seen if used == there else Finding(seen.level, f"{seen.shown}, {used} used", seen.problem)
