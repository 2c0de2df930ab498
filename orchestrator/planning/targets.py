"""The key `targets` of a sweep: which hosts take part, and which of them stand for each other."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from orchestrator.config import ANY, EACH_GPU_MODEL, Sweep
from orchestrator.planning.model import PlanningHost


def choose_hosts(
    sweep: Sweep, hosts: Sequence[PlanningHost], able: Callable[[PlanningHost], int]
) -> tuple[tuple[PlanningHost, ...], tuple[str, ...]]:
    """The hosts that take part, and a line about each of the others.

    Where one host of several is enough, it is the one on which most of the sweep can run, the first of equals.

    Args:
        sweep: the parameter space.
        hosts: those that may take part.
        able: how many trials of the sweep can run on a host.
    """
    reasons = {host.name: _unwanted(sweep, host) for host in hosts}
    by_place: dict[str, list[PlanningHost]] = {}
    for host in hosts:
        if reasons[host.name] is None:
            by_place.setdefault(place(sweep, host), []).append(host)
    enough = "measured, and targets are any" if sweep.targets == ANY else "measured, and has the same model of GPU"
    for members in by_place.values():
        best = max(members, key=able)
        reasons |= {host.name: f"{best.name} is {enough}" for host in members if host is not best}
    return (
        tuple(host for host in hosts if reasons[host.name] is None),
        tuple(f"{name}: {reason}" for name, reason in reasons.items() if reason is not None),
    )


def place(sweep: Sweep, host: PlanningHost) -> str:
    """What a sweep's targets see in a host: hosts of one place stand for each other, and one of them is measured."""
    if sweep.targets == ANY:
        return ANY
    # A model alone says nothing of a host with several: all of them, whatever their order.
    return ", ".join(_gpu_models(host)) if sweep.targets == EACH_GPU_MODEL else host.name


def _unwanted(sweep: Sweep, host: PlanningHost) -> str | None:
    if isinstance(sweep.targets, dict):
        labels = {**host.labels, **(host.machine.labels() if host.machine else {})}
        missing = [
            f"label {name} is {labels.get(name, 'not set')}, not {value}"
            for name, value in sorted(sweep.targets.items())
            if not _matches(labels.get(name), value)
        ]
        return "; ".join(missing) or None
    if sweep.targets == EACH_GPU_MODEL and not _gpu_models(host):
        return f"it has no GPU, and targets are {EACH_GPU_MODEL}"
    return None


def _matches(label: str | None, wanted: str) -> bool:
    """Whether a label is the one that is wanted, which may be a pattern; upper and lower case are alike."""
    return label is not None and fnmatchcase(label.lower(), wanted.lower())


def _gpu_models(host: PlanningHost) -> list[str]:
    return list(host.machine.gpu_models) if host.machine else []
