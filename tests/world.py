"""The truth of the made-up lab: what every configuration takes, without noise.

On a GPU `T_pipelined = max(o, a + c · batch)`: o is what the framework takes to start all operators, which the
processor, the backend and the depth decide; a is what that many kernels take when there is next to nothing to compute;
c is the arithmetic of an example at the GPU's speed. On a CPU the two add up. Effects of known size can be injected.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from runners.contract import BackendSpec, Protocol, Status, TrialSpec, WorkloadSpec, digest
from runners.contract.catalogue import (
    WORKLOADS,
    moved_bytes,
    refusal,
    resolve_options,
    resolve_workload_options,
    weights_bytes,
)
from tests.machines import GIB, System

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
BACKENDS = ("eager", "torchscript", "onnxruntime", "cuda_graphs")
PROTOCOL = Protocol(warmup_min_ms=1000, sync_budget_ms=1500, pipelined_budget_ms=1500)


@dataclass(frozen=True)
class Model:
    """What decides the latency of a workload."""

    operations: int
    """That eager dispatches per call."""
    gflop: float
    """Per example of the default size, in 10^9 operations."""
    use: float = 1.0
    """How well its kernels use the device, against those of BERT."""


MODELS = {
    "bert-base": Model(290, 22.35),
    "distilbert": Model(146, 11.17),
    "funnel-small": Model(655, 12.96, 0.8),
    "squeezebert": Model(345, 14.9, 0.85),
    "mobilebert": Model(480, 10.6, 0.75),
    "resnet50": Model(175, 8.18, 0.7),
}
REACHED = 0.8
"""What the best code reaches of the peaks of arithmetic and memory; models reach half of the former."""
SPEEDS = {"eager": 1.0, "torchscript": 1.7, "onnxruntime": 4.1, "cuda_graphs": 60.0}
"""How many times less the host has to do than in eager, by backend."""
FUSION = {"eager": 1.0, "torchscript": 0.98, "onnxruntime": 0.93, "cuda_graphs": 1.0}
"""Time of the kernels against eager's."""


@dataclass(frozen=True)
class Effect:
    """A known change of what some configurations take."""

    factor: float
    part: str = "both"
    """`dispatch`, `busy` or `both`."""
    where: Mapping[str, object] = field(default_factory=dict)
    """`host`, `workload`, `backend`, `dtype`, `batch`, `driver` or an option; a tuple stands for any of its values."""


@dataclass(frozen=True)
class Times:
    """Seconds per call."""

    dispatch_s: float
    busy_s: float
    """Of the kernels; on a CPU of the arithmetic."""
    sync_s: float
    pipelined_s: float


@dataclass(frozen=True)
class Failure:
    """How a configuration ends that does not run."""

    status: Status
    reason: str


def spec(
    workload: str, batch: int, backend: str = "eager", dtype: str = "float16", device: str = "cuda", **more: object
) -> TrialSpec:
    """A configuration as planning would write it. Of `more`, sizes and options of the workload are taken."""
    info = WORKLOADS[workload]
    sizes = {
        name: more.pop(name, None) or getattr(info, name)
        for name in ("sequence_length", "image_size")
        if getattr(info, name) is not None
    }
    bare = WorkloadSpec(workload, batch, **sizes, options=more)  # type: ignore[arg-type]
    full = WorkloadSpec(workload, batch, **sizes, options=resolve_workload_options(bare))  # type: ignore[arg-type]
    options = resolve_options(BackendSpec(backend, {}))
    return TrialSpec(full, BackendSpec(backend, options), dtype, device, 8 if device == "cpu" else 4, 2023, PROTOCOL)


def design(system: System) -> tuple[TrialSpec, ...]:
    """All that the lab measures on a system: what the paper's figures 1, 3, 4, 6 to 9 and table 1 need."""
    points = (one for one in _points(system) if system.is_gpu or one.dtype == "float32")
    return tuple({digest(one): one for one in points}.values())


def roofs(system: System) -> tuple[TrialSpec, ...]:
    """What its roofs are measured with."""
    dtypes = ("float16", "float32") if system.is_gpu else ("float32",)
    products = (
        spec("op-gemm", 1, "eager", dtype, system.device, width=width) for width in (512, 8192) for dtype in dtypes
    )
    return (*products, *(spec("op-triad", 1, "eager", dtype, system.device) for dtype in dtypes))


def _points(system: System) -> Iterator[TrialSpec]:
    device, half = system.device, "float16" if system.is_gpu else "float32"
    for name, backend, dtype, batch in itertools.product(
        ("bert-base", "resnet50"), BACKENDS, ("float16", "float32"), BATCHES
    ):
        yield spec(name, batch, backend, dtype, device)
    others = ("distilbert", "funnel-small", "squeezebert", "mobilebert")
    for name, backend, batch in itertools.product(others, BACKENDS, (1, 8, 64, 128)):
        yield spec(name, batch, backend, half, device)
    for layers, batch in itertools.product((3, 6, 12, 24), (1, 4, 16, 64)):
        yield spec("bert", batch, "eager", half, device, layers=layers)
    for hidden_size, batch in itertools.product((384, 768, 1536, 3072), (1, 4, 16, 64)):
        yield spec("bert", batch, "eager", half, device, hidden_size=hidden_size)
    yield spec("bert", 1, "eager", half, device, sequence_length=512)
    for length in (8, 32, 512):
        yield spec("bert-base", 1, "eager", half, device, sequence_length=length)


def model_of(workload: WorkloadSpec) -> Model:
    """What decides the latency of a workload with these options."""
    if workload.name == "op-triad":
        return Model(1, 0.0)
    if workload.name == "op-gemm":
        return Model(1, 2 * int(workload.options["width"]) ** 3 / 1e9, REACHED / 0.5)
    if workload.name != "bert":
        return MODELS[workload.name]
    layers, width = (int(workload.options[name]) for name in ("layers", "hidden_size"))
    tokens = 128
    macs = layers * tokens * (4 * width * width + 8 * width * width + 2 * tokens * width)
    return Model(2 + 24 * layers, 2 * macs / 1e9)


def flops(workload: WorkloadSpec) -> int:
    """Operations of one example."""
    length = (workload.sequence_length or 128) / 128
    return int(model_of(workload).gflop * 1e9 * length)


def times(system: System, one: TrialSpec, effects: Sequence[Effect] = ()) -> Times:
    """What a configuration takes, exactly."""
    model, backend = model_of(one.workload), one.backend.name
    dispatch_s = model.operations * system.dispatch_us * 1e-6 / SPEEDS[backend]
    # Half of the printed peak is what large matrices reach.
    per_example_s = flops(one.workload) / (system.tflops[one.dtype] * 0.5e12 * model.use) * FUSION[backend]
    moved = moved_bytes(replace(one.workload, batch=1), one.dtype)
    if moved is not None:
        per_example_s = moved / (system.gb_per_s * 1e9 * REACHED)
    least_s = model.operations * system.kernel_us * 1e-6 * FUSION[backend] if system.is_gpu else 0.0
    busy_s = least_s + per_example_s * one.workload.batch
    dispatch_s *= _factor("dispatch", system, one, effects)
    busy_s *= _factor("busy", system, one, effects)
    if not system.is_gpu:
        return Times(dispatch_s, busy_s, dispatch_s + busy_s, dispatch_s + busy_s)
    pipelined_s = max(dispatch_s, busy_s)
    return Times(dispatch_s, busy_s, pipelined_s + 30e-6 + 0.05 * min(dispatch_s, busy_s), pipelined_s)


def transition_batch(system: System, one: TrialSpec, effects: Sequence[Effect] = ()) -> float:
    """The batch at which dispatch and kernels take equally long; the batch of the given configuration is ignored."""
    first, second = (times(system, _with_batch(one, batch), effects) for batch in (1, 2))
    per_example_s = second.busy_s - first.busy_s
    return 1 + (first.dispatch_s - first.busy_s) / per_example_s


def failure(system: System, one: TrialSpec) -> Failure | None:
    """Why a configuration does not run; null if it does."""
    refused = refusal(one)
    if refused is not None:
        return Failure(Status.SKIPPED, refused)
    if (one.workload.name, one.backend.name) == ("funnel-small", "torchscript"):
        return Failure(
            Status.UNSUPPORTED, "torchscript: the trace of funnel-small does not give what it was traced from"
        )
    if (one.workload.name, one.backend.name, one.workload.batch) == ("mobilebert", "onnxruntime", 8):
        return Failure(Status.WRONG_OUTPUT, "relative L2 error 0.031 is above 0.005, five times eager's own")
    memory = system.fingerprint.gpus[0].memory_bytes if system.fingerprint.gpus else None
    needed = needed_bytes(one)
    if memory is not None and needed > memory:
        return Failure(Status.OOM, f"CUDA out of memory: {needed / GIB:.1f} GiB of {memory / GIB:.1f} GiB")
    return None


def needed_bytes(one: TrialSpec) -> int:
    """Device memory of a configuration: weights, and activations that grow with the arithmetic."""
    width = 2 if one.dtype == "float16" else 4
    activations = flops(one.workload) * one.workload.batch // 1000 * width
    return (weights_bytes(one) or 0) + activations


def _factor(part: str, system: System, one: TrialSpec, effects: Sequence[Effect]) -> float:
    facts = {
        "host": system.host,
        "driver": system.fingerprint.gpu_driver_version,
        "workload": one.workload.name,
        "batch": one.workload.batch,
        "backend": one.backend.name,
        "dtype": one.dtype,
        **one.workload.options,
    }
    factor = 1.0
    for effect in effects:
        matches = (
            facts.get(name) in wanted if isinstance(wanted, tuple) else facts.get(name) == wanted
            for name, wanted in effect.where.items()
        )
        if effect.part in (part, "both") and all(matches):
            factor *= effect.factor
    return factor


def _with_batch(one: TrialSpec, batch: int) -> TrialSpec:
    options = dict(one.workload.options)
    sizes = {
        name: value for name in ("sequence_length", "image_size") if (value := getattr(one.workload, name)) is not None
    }
    return spec(one.workload.name, batch, one.backend.name, one.dtype, one.device, **sizes, **options)
