"""Whether a machine can serve an environment, and hold a model: pure, from what the machine's fingerprint says.

What is unknown refuses nothing: such a trial runs, and its row says what came of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from runners.contract import TrialSpec
from runners.contract.catalogue import weights_bytes

ANY_SUITABLE = "any-suitable"
"""In a sweep's `environments`: the newest environment of the catalogue that can serve the host and the device."""

GIB = 2**30
# what other systems than Linux call the same processors
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class GpuFacts:
    """One GPU; null where its driver does not say."""

    name: str | None
    compute_capability: str | None
    """Such as `6.1`."""
    memory_bytes: int | None


@dataclass(frozen=True)
class Machine:
    """What decides what a host can run."""

    driver_version: str | None
    gpus: tuple[GpuFacts, ...]
    gpu_reason: str | None
    """Why `gpus` is empty; null if it is not."""
    trial_memory_bytes: int | None
    """The memory limit of a trial."""
    architecture: str | None = None
    """Of its processors, as its kernel calls it."""

    @property
    def gpu_models(self) -> tuple[str, ...]:
        """Each model of its GPUs once, by name."""
        return tuple(sorted({gpu.name or "a GPU without a name" for gpu in self.gpus}))

    def labels(self) -> dict[str, str]:
        """What a sweep's `targets` select by besides the labels of the inventory, as `MACHINE_LABELS` names them.

        Several models of GPU are joined by a comma. What is not there is `none`, what is not known is left out.
        """
        facts = {
            "gpu_model": ", ".join(self.gpu_models) or "none",
            "gpu_count": str(len(self.gpus)),
            "driver": self.driver_version if self.gpus else self.driver_version or "none",
            "architecture": self.architecture,
        }
        return {name: value for name, value in facts.items() if value is not None}


@dataclass(frozen=True)
class Demands:
    """What an environment needs of a host."""

    released: str
    """Year and month of its newest framework, such as `2026-10`."""
    cuda: str | None = None
    """Null for an environment of processors."""
    minimum_driver: str | None = None
    compute_capabilities: tuple[str, ...] = ()
    """Those that it has machine code for; which GPUs run that code, `runs_code_for` says."""
    unresolved: str | None = None
    """Why it has no lock, and so cannot be had anywhere; null if it has one."""
    only_when_named: bool = False
    """`any-suitable` does not stand for it."""
    architecture: str | None = None
    """Of the processors that its files are built for, such as `x86_64`; null if any will do."""


def environment_problem(demands: Demands, machine: Machine | None, device: str) -> str | None:
    """Why an environment cannot serve a device of a machine, in one line; None if nothing is known against it.

    Args:
        demands: of the environment.
        machine: None if nothing is known about it.
        device: `cpu` or `cuda`.
    """
    if demands.unresolved is not None:
        return f"this environment has no lock: {demands.unresolved}"
    foreign = None if machine is None else _architecture_problem(demands, machine)
    if foreign is not None:
        return foreign
    if device != "cuda":
        return None
    if demands.cuda is None:
        return "this environment is made for processors: it has no CUDA, which device cuda needs"
    if machine is None:
        return None
    return _driver_problem(demands, machine) or _gpu_problem(demands, machine)


def newest_suitable(
    demands: Mapping[str, Demands], unavailable: Mapping[str, str], machine: Machine | None, device: str
) -> tuple[str | None, str]:
    """The environment that `any-suitable` stands for on a machine, and why the others are not it.

    Args:
        demands: of each environment, by name.
        unavailable: environments that the machine cannot have for another reason, and that reason.
        machine: None if nothing is known about it.
        device: `cpu` or `cuda`; for `cpu` only environments that are made for processors are taken.

    Returns:
        The name, or None if none is suitable; and the reasons of all that are not, in one line.
    """
    problems: dict[str, list[str]] = {}
    suitable: list[tuple[str, str]] = []
    for name, needs in demands.items():
        problem = unavailable.get(name) or environment_problem(needs, machine, device)
        if problem is None and needs.only_when_named:
            problem = "serves the sweeps that name it"
        if problem is None and device == "cpu" and needs.cuda is not None:
            problem = "made for GPUs; a sweep can name it to run it on a processor"
        if problem is None:
            suitable.append((needs.released, name))
        else:
            problems.setdefault(problem, []).append(name)
    reasons = "; ".join(f"{', '.join(names)}: {problem}" for problem, names in problems.items())
    return (max(suitable)[1] if suitable else None), reasons


def model_problem(spec: TrialSpec, machine: Machine | None) -> str | None:
    """Why the weights of a trial's model alone exceed the memory that it would have, in one line; None if they fit."""
    needed = weights_bytes(spec)
    if needed is None or machine is None:
        return None
    if spec.device == "cuda":
        known = [(gpu.memory_bytes, gpu.name or "the GPU") for gpu in machine.gpus if gpu.memory_bytes is not None]
        memory, owner = max(known, default=(None, ""))
        place = f"{owner} has"
    else:
        memory, place = machine.trial_memory_bytes, "a trial on this host may take"
    if memory is None or needed <= memory:
        return None
    return (
        f"the weights of {spec.workload.name} are {needed / GIB:.1f} GiB in {spec.dtype}, and {place} "
        f"{memory / GIB:.1f} GiB"
    )


def runs_code_for(built: str, capability: str) -> bool:
    """Whether a GPU of one compute capability runs machine code that was built for another.

    It does within a major number, if its minor number is the same or higher: 8.9 runs the code for 8.6, and 8.0 does
    not. docs/environments.md names the source and the code for which this does not hold.
    """
    code, gpu = _numbers(built), _numbers(capability)
    return code[0] == gpu[0] and code <= gpu


def _architecture_problem(demands: Demands, machine: Machine) -> str | None:
    found, needed = machine.architecture, demands.architecture
    if found is None or needed is None or _ARCHITECTURES.get(found.lower(), found.lower()) == needed:
        return None
    return f"this environment is built for {needed} processors, and this host's are {found}"


def _driver_problem(demands: Demands, machine: Machine) -> str | None:
    if not machine.gpus:
        return f"no GPU: {machine.gpu_reason or 'none is known'}"
    found, needed = machine.driver_version, demands.minimum_driver
    if found is None or needed is None or not _is_older(found, needed):
        return None
    return f"driver {found} is older than {needed}, which CUDA {demands.cuda} needs"


def _gpu_problem(demands: Demands, machine: Machine) -> str | None:
    """Refuses if no GPU can be served: which one is the first that a process sees is for CUDA to decide."""
    served = demands.compute_capabilities
    seen = dict.fromkeys((gpu.compute_capability, gpu.name or "a GPU without a name") for gpu in machine.gpus)
    for capability, _ in seen:
        if capability is None or len(_numbers(capability)) < 2:
            return None
        if any(runs_code_for(built, capability) for built in served):
            return None
    told = " and ".join(f"{capability} of {name}" for capability, name in seen)
    return f"compute capability {told} cannot run machine code for {', '.join(served)}"


def _is_older(found: str, needed: str) -> bool:
    """Whether a version is known to be older; a part without a number is unknown, and so is what comes after it."""
    known, wanted = _numbers(found), _numbers(needed)
    if len(known) < len(found.split(".")):
        wanted = wanted[: len(known)]
    return known < wanted


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers with which the parts of a version begin, up to the first part that begins with none."""
    numbers = []
    for part in version.split("."):
        number = re.match(r"\d+", part.strip())
        if number is None:
            break
        numbers.append(int(number[0]))
    return tuple(numbers)
