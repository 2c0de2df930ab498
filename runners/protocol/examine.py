"""The third process of a trial: what would disturb the timing if it were done beside it.

Everything here looks at the device: the graph replay, the profiler, utilisation and energy. On a CPU only energy
is there to be read.
"""

import time
from dataclasses import replace
from typing import Optional, Tuple

from runners.backends import make_backend
from runners.backends.base import Backend
from runners.contract import LEGACY, Phases, Protocol, Series, Status, TrialSpec
from runners.contract.catalogue.entries import CUDA
from runners.protocol import timing
from runners.protocol.answer import Answer
from runners.protocol.attempt import Facts, attempted, one_line
from runners.protocol.cache import CacheEntries
from runners.protocol.measure import RING
from runners.protocol.timing import Subject, WarmUp
from runners.workloads import make_workload


def wanted(spec: TrialSpec) -> bool:
    """Whether there is anything to examine."""
    protocol = spec.protocol
    if protocol.procedure == LEGACY:
        return False
    return spec.device == CUDA or protocol.energy_window_ms > 0


def examine(spec: TrialSpec, cached: CacheEntries) -> Answer:
    """Builds and warms up again, then makes each pass that the protocol asks for.

    A pass that fails leaves `<pass>_problem` in the facts; the others go on.
    """
    start = time.perf_counter()
    backend = make_backend(make_workload(spec))
    backend.workload.set_threads(backend.host_threads())
    call = backend.load(backend.build(), cached.artifact.path if backend.has_artifact else None)
    ring = [backend.native(backend.workload.inputs(index)) for index in range(RING)]
    subject = Subject(call, ring, backend.synchronize())
    with backend.execution():
        warm = timing.warm_up(subject, spec.protocol, [timing.time_one(subject, ring[0])[1]])
        series, facts = _passes(backend, subject, warm)
    return Answer(Status.OK, None, Phases(examine_s=time.perf_counter() - start), series, None, None, facts)


def _passes(backend: Backend, subject: Subject, warm: WarmUp) -> Tuple[Tuple[Series, ...], Facts]:
    protocol = backend.spec.protocol
    facts: Facts = {}
    series: Tuple[Series, ...] = ()
    if backend.spec.device == CUDA:
        facts.update(attempted("memory_device", lambda: _device_memory(subject)))
        facts.update(attempted("utilisation", lambda: _utilisation(subject)))
        if protocol.profile_calls:
            facts.update(attempted("profiler", lambda: _profile(subject, protocol)))
        if protocol.graph_budget_ms and backend.capturable:
            taken, problem = _graph(subject, protocol, warm)
            series, facts["graph_problem"] = taken, problem
    if protocol.energy_window_ms:
        facts.update(attempted("energy", lambda: _energy(backend, subject)))
    return series, facts


def _graph(subject: Subject, protocol: Protocol, warm: WarmUp) -> Tuple[Tuple[Series, ...], Optional[str]]:
    from runners.backends.cuda_graphs import capture

    try:
        captured = capture(subject.call, subject.ring[0])
        # The copy of the inputs is no part of the floor
        replayed = replace(subject, call=lambda *_: captured.graph.replay())
        series = timing.time_pipelined(replayed, protocol, warm.last_ns, "graph", protocol.graph_budget_ms)
    except Exception as error:  # noqa: BLE001 - many models cannot be recorded, in as many ways
        return (), one_line(error)
    return (series,), None


def _profile(subject: Subject, protocol: Protocol) -> Facts:
    from runners.examination.profiler import profile

    return profile(subject.call, subject.ring, subject.synchronize, protocol.profile_calls)


def _device_memory(subject: Subject) -> Facts:
    from runners.examination.memory import device_memory

    return device_memory(subject.call, subject.ring, subject.synchronize)


def _utilisation(subject: Subject) -> Facts:
    from runners.examination.clocks import ClockSampler
    from runners.examination.gpu import gpu_of_torch
    from runners.examination.utilisation import measure_utilisation

    with ClockSampler(str(gpu_of_torch().uuid)) as sampler:
        facts = measure_utilisation(subject.call, subject.ring, subject.synchronize)
    return dict(facts, **sampler.facts())


def _energy(backend: Backend, subject: Subject) -> Facts:
    from runners.examination.energy import counter_for, measure_energy

    window_ms = backend.spec.protocol.energy_window_ms
    return measure_energy(subject.call, subject.ring, subject.synchronize, counter_for(backend.spec.device), window_ms)
