"""What can be asked for: the names, options and shapes that both sides know without importing a framework.

The orchestrator validates sweeps with it, the runner refuses tasks with it. The code behind a name is found
in the lazy tables of `runners.backends` and `runners.workloads`.
"""

from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

from runners.contract.spec import BackendSpec, OptionValue, TrialSpec, WorkloadSpec

DEVICES = ("cpu",)

_TORCH_DTYPES = ("float32", "float16", "bfloat16")
_MODELS = ("language", "vision")


@dataclass(frozen=True)
class OptionInfo:
    """One option of a backend."""

    allowed: Tuple[OptionValue, ...]
    default: OptionValue


@dataclass(frozen=True)
class BackendInfo:
    """What a backend accepts."""

    options: Dict[str, OptionInfo]
    frameworks: Tuple[str, ...]
    """Distributions that it needs, whose versions decide its results."""
    families: Tuple[str, ...]
    """Families of workloads that it can execute."""
    dtypes: Tuple[str, ...]


@dataclass(frozen=True)
class WorkloadInfo:
    """What a workload needs to be told."""

    family: str
    shape: Dict[str, int]
    """Its shape parameters beside the batch, and their defaults; no other may be given."""
    frameworks: Tuple[str, ...]
    dtypes: Tuple[str, ...]


BACKENDS: Dict[str, BackendInfo] = {
    "eager": BackendInfo(
        options={"attention": OptionInfo(allowed=("sdpa", "eager"), default="sdpa")},
        frameworks=("torch",),
        families=_MODELS,
        dtypes=_TORCH_DTYPES,
    ),
    "torchscript": BackendInfo(
        options={"freeze": OptionInfo(allowed=(True, False), default=True)},
        frameworks=("torch",),
        families=_MODELS,
        dtypes=_TORCH_DTYPES,
    ),
    "onnxruntime": BackendInfo(
        options={
            "exporter": OptionInfo(allowed=("dynamo", "legacy"), default="dynamo"),
            "optimization": OptionInfo(allowed=(0, 1, 2, 3), default=3),
        },
        frameworks=("torch", "onnxruntime", "onnx", "onnxscript"),
        families=_MODELS,
        dtypes=("float32",),
    ),
    "python": BackendInfo(options={}, frameworks=(), families=("synthetic",), dtypes=("float32",)),
}

_SYNTHETIC = (
    "null",
    "crash",
    "exit",
    "hang",
    "memory",
    "print",
    "wrong",
    "turns-wrong",
    "garbage",
    "raise",
    "sleep",
    "kill-supervisor",
    "unsupported",
)


def _language(sequence_length: int) -> WorkloadInfo:
    return WorkloadInfo(
        family="language",
        shape={"sequence_length": sequence_length},
        frameworks=("torch", "transformers"),
        dtypes=_TORCH_DTYPES,
    )


WORKLOADS: Dict[str, WorkloadInfo] = {
    "bert-base": _language(128),
    "distilbert": _language(128),
    "tiny-bert": _language(16),
    "resnet50": WorkloadInfo(
        family="vision",
        shape={"image_size": 224},
        frameworks=("torch", "transformers"),
        dtypes=_TORCH_DTYPES,
    ),
}
WORKLOADS.update(
    {
        "synthetic-" + name: WorkloadInfo(family="synthetic", shape={}, frameworks=(), dtypes=("float32",))
        for name in _SYNTHETIC
    }
)


def resolve_options(backend: BackendSpec) -> Dict[str, OptionValue]:
    """The options of a backend with the defaults filled in."""
    declared = BACKENDS[backend.name].options
    return {name: backend.options.get(name, info.default) for name, info in sorted(declared.items())}


def refusal(spec: TrialSpec) -> Optional[str]:
    """Why no environment whatever could run this trial, in one line; None if one could."""
    problems = _workload_problems(spec.workload) + _backend_problems(spec.backend)
    if problems:
        return problems[0]
    workload, backend = WORKLOADS[spec.workload.name], BACKENDS[spec.backend.name]
    if workload.family not in backend.families:
        fitting = [name for name, info in BACKENDS.items() if workload.family in info.families]
        return "backend %s cannot run workload %s; these can: %s" % (
            spec.backend.name,
            spec.workload.name,
            ", ".join(fitting),
        )
    dtypes = [dtype for dtype in workload.dtypes if dtype in backend.dtypes]
    if spec.dtype not in dtypes:
        return "dtype %s is not served by %s with %s; these are: %s" % (
            spec.dtype,
            spec.workload.name,
            spec.backend.name,
            ", ".join(dtypes),
        )
    if spec.device not in DEVICES:
        return "device %s is unknown; known: %s" % (spec.device, ", ".join(DEVICES))
    return None


def _workload_problems(spec: WorkloadSpec) -> List[str]:
    if spec.name not in WORKLOADS:
        return ["workload %s is unknown; known: %s" % (spec.name, ", ".join(WORKLOADS))]
    needed = WORKLOADS[spec.name].shape
    given = {"sequence_length": spec.sequence_length, "image_size": spec.image_size}
    problems = []
    for parameter, value in given.items():
        if parameter in needed and value is None:
            problems.append("workload %s needs %s" % (spec.name, parameter))
        if parameter not in needed and value is not None:
            problems.append("workload %s has no %s" % (spec.name, parameter))
    return problems


def _backend_problems(spec: BackendSpec) -> List[str]:
    if spec.name not in BACKENDS:
        return ["backend %s is unknown; known: %s" % (spec.name, ", ".join(BACKENDS))]
    declared = BACKENDS[spec.name].options
    problems = []
    for name, value in spec.options.items():
        if name not in declared:
            known = ", ".join(declared) or "none"
            problems.append("backend %s has no option %s; known: %s" % (spec.name, name, known))
        elif not any(value == allowed and type(value) is type(allowed) for allowed in declared[name].allowed):
            known = ", ".join(str(allowed) for allowed in declared[name].allowed)
            problems.append("option %s of backend %s is one of %s, not %r" % (name, spec.name, known, value))
    return problems
