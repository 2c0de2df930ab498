"""What can be asked for: the names, options and shapes that both sides know without importing a framework.

The orchestrator validates sweeps with it, the runner refuses tasks with it. The code behind a name is found
in the lazy tables of `runners.backends` and `runners.workloads`.
"""

from typing import Dict, List, Mapping, Optional

from runners.contract.catalogue import language, micro_ops, own, roofs, speech, synthetic, vision
from runners.contract.catalogue.backends import BACKENDS
from runners.contract.catalogue.entries import DEVICES, BackendInfo, Choice, IntegerRange, OptionInfo, WorkloadInfo
from runners.contract.spec import PROCEDURES, BackendSpec, OptionValue, TrialSpec, WorkloadSpec

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}

WORKLOADS: Dict[str, WorkloadInfo] = {
    **language.WORKLOADS,
    **vision.WORKLOADS,
    **speech.WORKLOADS,
    **micro_ops.WORKLOADS,
    **roofs.WORKLOADS,
    **synthetic.WORKLOADS,
}


def workload_info(workload: WorkloadSpec) -> WorkloadInfo:
    """The entry of a workload, or what stands for it where the workload has its own file.

    Raises:
        KeyError: neither is there.
        ModuleError: the file says nothing of the kind.
    """
    return WORKLOADS[workload.name] if workload.source is None else own.info(workload)


def resolve_options(backend: BackendSpec) -> Dict[str, OptionValue]:
    """The options of a backend with the defaults filled in."""
    return _resolved(BACKENDS[backend.name].options, backend.options)


def resolve_workload_options(workload: WorkloadSpec) -> Dict[str, OptionValue]:
    """The options of a workload with the defaults filled in."""
    return _resolved(workload_info(workload).options, workload.options)


def refusal(spec: TrialSpec) -> Optional[str]:
    """Why no environment whatever could run this trial, in one line; None if one could."""
    problems = _workload_problems(spec.workload) + _backend_problems(spec.backend)
    if problems:
        return problems[0]
    workload, backend = workload_info(spec.workload), BACKENDS[spec.backend.name]
    if workload.family not in backend.families:
        fitting = [name for name, info in BACKENDS.items() if workload.family in info.families]
        return "backend %s cannot run workload %s; these can: %s" % (
            spec.backend.name,
            spec.workload.name,
            ", ".join(fitting),
        )
    for what, value, left, right in (
        ("dtype", spec.dtype, workload.dtypes, backend.dtypes),
        ("device", spec.device, workload.devices, backend.devices),
    ):
        served = [backend for backend in left if backend in right]
        if value not in served:
            return "%s %s is not served by %s with %s; served: %s" % (
                what,
                value,
                spec.workload.name,
                spec.backend.name,
                ", ".join(served) or "none",
            )
    if spec.protocol.procedure not in PROCEDURES:
        return "procedure %s is unknown; known: %s" % (spec.protocol.procedure, ", ".join(PROCEDURES))
    return None


def weights_bytes(spec: TrialSpec) -> Optional[int]:
    """What the weights of a trial's model take in its dtype; None for what is no model, or is one shrunk."""
    options = resolve_workload_options(spec.workload)
    parameters = workload_info(spec.workload).parameters
    if parameters is None or options.get("size") == "shrunk":
        return None
    return (parameters if isinstance(parameters, int) else parameters(options)) * _BYTES[spec.dtype]


def moved_bytes(workload: WorkloadSpec, dtype: str) -> Optional[int]:
    """What one call of the triad reads and writes, as STREAM counts it; None for all other workloads, of which it is
    not known."""
    if workload.name != roofs.TRIAD:
        return None
    elements = int(resolve_workload_options(workload)["elements"])
    return roofs.TRIAD_ARRAYS * workload.batch * elements * _BYTES[dtype]


def _resolved(declared: Mapping[str, OptionInfo], given: Mapping[str, OptionValue]) -> Dict[str, OptionValue]:
    return {name: given.get(name, info.default) for name, info in sorted(declared.items())}


def _workload_problems(spec: WorkloadSpec) -> List[str]:
    if spec.source is not None:
        return list(filter(None, [own.problem(spec, tuple(WORKLOADS))]))
    if spec.name not in WORKLOADS:
        return ["workload %s is unknown; known: %s" % (spec.name, ", ".join(WORKLOADS))]
    info = WORKLOADS[spec.name]
    problems = []
    for parameter in ("sequence_length", "image_size"):
        needed, given = getattr(info, parameter), getattr(spec, parameter)
        if needed is not None and given is None:
            problems.append("workload %s needs %s" % (spec.name, parameter))
        if needed is None and given is not None:
            problems.append("workload %s has no %s" % (spec.name, parameter))
    problems += _option_problems("workload " + spec.name, info.options, spec.options)
    if not problems and info.problem is not None:
        problems += filter(None, [info.problem(spec)])
    return problems


def _backend_problems(spec: BackendSpec) -> List[str]:
    if spec.name not in BACKENDS:
        return ["backend %s is unknown; known: %s" % (spec.name, ", ".join(BACKENDS))]
    return _option_problems("backend " + spec.name, BACKENDS[spec.name].options, spec.options)


def _option_problems(owner: str, declared: Mapping[str, OptionInfo], given: Mapping[str, OptionValue]) -> List[str]:
    problems = []
    for name, value in given.items():
        if name not in declared:
            problems.append("%s has no option %s; known: %s" % (owner, name, ", ".join(declared) or "none"))
        elif not declared[name].accepts(value):
            problems.append("option %s of %s is %s, not %r" % (name, owner, declared[name].expected(), value))
    return problems
