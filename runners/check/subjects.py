"""Trials that checks make and call themselves, in a process that may use the device."""

import contextlib
from dataclasses import dataclass, replace
from typing import Dict, Iterator, Mapping, Optional

from runners.backends import make_backend
from runners.backends.base import Backend
from runners.check.running import Size
from runners.contract import BackendSpec, Protocol, TrialSpec, WorkloadSpec
from runners.contract.spec import OptionValue
from runners.protocol import timing
from runners.protocol.timing import Subject
from runners.workloads import make_workload

RING = 4

PROTOCOL = Protocol(
    warmup_min_ms=200,
    warmup_max_ms=3000,
    sync_budget_ms=300,
    pipelined_budget_ms=300,
    dispatch_budget_ms=200,
    graph_budget_ms=300,
)
"""Short: a check shows that something is so, not how long it takes to the last percent."""

BERT = WorkloadSpec("bert-base", 1, sequence_length=128)
RESNET = WorkloadSpec("resnet50", 1, image_size=224)


@dataclass(frozen=True)
class Ready:
    """A backend that is loaded and warm."""

    backend: Backend
    subject: Subject
    last_ns: float


def spec_of(
    workload: WorkloadSpec,
    dtype: str = "float32",
    backend: str = "eager",
    options: Optional[Mapping[str, OptionValue]] = None,
    protocol: Protocol = PROTOCOL,
) -> TrialSpec:
    """A trial on the GPU."""
    return TrialSpec(workload, BackendSpec(backend, dict(options or {})), dtype, "cuda", 1, 3, protocol)


def sized(workload: WorkloadSpec, size: Size) -> WorkloadSpec:
    """The workload, or what stands for it in a rehearsal."""
    if not size.rehearse:
        return workload
    small: Dict[str, OptionValue] = {"width": 64} if workload.name == "op-gemm" else {"elements": 1 << 10}
    options: Dict[str, OptionValue] = small if workload.name.startswith("op-") else {"size": "shrunk"}
    return replace(workload, options=options)


@contextlib.contextmanager
def ready(spec: TrialSpec) -> Iterator[Ready]:
    """A trial of eager, built and warm; what is called within the block runs as in a trial."""
    backend = make_backend(make_workload(spec))
    backend.workload.set_threads(spec.threads)
    call = backend.load(backend.build(), None)
    ring = [backend.native(backend.workload.inputs(index)) for index in range(RING)]
    subject = Subject(call, ring, backend.synchronize())
    with backend.execution():
        warm = timing.warm_up(subject, spec.protocol, [timing.time_one(subject, ring[0])[1]])
        yield Ready(backend, subject, warm.last_ns)
