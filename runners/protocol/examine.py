"""The third process of a trial: what would disturb the timing if it were done beside it.

Everything here looks at the device: energy, utilisation, memory, the graph replay and the profiler. On a CPU only
energy is there to be read. The profiler comes last: what it attaches to the driver stays, and slows down what follows
by 10 to 20 % (pytorch#144455). A profile that lost records is made again, in a fresh process.
"""

import contextlib
import statistics
import time
from dataclasses import dataclass, replace
from typing import Callable, Iterator, Optional, Tuple

from runners.backends import make_backend
from runners.backends.base import Backend
from runners.contract import LEGACY, Phases, Protocol, Series, Status, TrialSpec
from runners.contract.catalogue.entries import CUDA
from runners.examination.gpu_clock import gpu_clock
from runners.examination.profiler import other_work
from runners.protocol import timing
from runners.protocol.answer import Answer
from runners.protocol.attempt import Facts, attempted, one_line
from runners.protocol.cache import CacheEntries
from runners.protocol.measure import RING
from runners.protocol.timing import Subject, WarmUp
from runners.workloads import make_workload

_WAITS = 100

Replay = Callable[[], None]
"""Runs a recorded call once more."""


@dataclass(frozen=True)
class _Ready:
    """A trial that is built and warm."""

    backend: Backend
    subject: Subject
    warm: WarmUp


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
    before_bytes = _used(spec)
    with _warm(spec, cached) as ready:
        series, facts = _passes(ready, before_bytes)
    return Answer(Status.OK, None, Phases(examine_s=time.perf_counter() - start), series, None, None, facts)


def profile_again(spec: TrialSpec, cached: CacheEntries) -> Answer:
    """The profiler's pass alone, for a trace that was not valid."""
    with _warm(spec, cached) as ready:
        return Answer(Status.OK, facts=attempted("profiler", lambda: _profile(ready)))


@contextlib.contextmanager
def _warm(spec: TrialSpec, cached: CacheEntries) -> Iterator[_Ready]:
    backend = make_backend(make_workload(spec))
    backend.workload.set_threads(backend.host_threads())
    call = backend.load(backend.build(), cached.artifact.path if backend.has_artifact else None)
    ring = [backend.native(backend.workload.inputs(index)) for index in range(RING)]
    with backend.execution(), gpu_clock(spec.device == CUDA) as clock:
        subject = Subject(call, ring, backend.synchronize(), clock)
        yield _Ready(backend, subject, timing.warm_up(subject, spec.protocol, [timing.time_one(subject, ring[0])[1]]))


def _used(spec: TrialSpec) -> Optional[int]:
    from runners.examination.memory import device_used

    return device_used() if spec.device == CUDA else None


def _passes(ready: _Ready, before_bytes: Optional[int]) -> Tuple[Tuple[Series, ...], Facts]:
    backend, subject = ready.backend, ready.subject
    protocol, on_gpu = backend.spec.protocol, backend.spec.device == CUDA
    facts: Facts = {}
    series: Tuple[Series, ...] = ()
    replay: Optional[Replay] = None
    if on_gpu:
        facts.update(attempted("memory_device", lambda: _device_memory(ready, before_bytes)))
    if protocol.energy_window_ms:
        facts.update(attempted("energy", lambda: _energy(backend, subject)))
    if on_gpu:
        facts.update(attempted("utilisation", lambda: _utilisation(subject)))
        facts.update(attempted("synchronize", lambda: _cost_of_waiting(subject)))
        if protocol.graph_budget_ms and backend.capturable:
            series, replay, facts["graph_problem"] = _graph(subject, protocol, ready.warm)
            facts.update({} if subject.clock is None else subject.clock.facts())
        if protocol.profile_calls:
            facts.update(attempted("profiler", lambda: _profile(ready, replay)))
            problem = other_work(facts)
            if series and problem is not None:
                series, facts["graph_problem"] = (), problem
    return series, facts


def _cost_of_waiting(subject: Subject) -> Facts:
    """`synchronize_s`: what a wait for an idle device takes, which is in every call that is timed alone."""
    assert subject.synchronize is not None
    subject.synchronize()
    idle = replace(subject, call=lambda *_: None)
    return {"synchronize_s": statistics.median(timing.time_one(idle, ())[1][0] for _ in range(_WAITS)) / 1e9}


def _graph(
    subject: Subject, protocol: Protocol, warm: WarmUp
) -> Tuple[Tuple[Series, ...], Optional[Replay], Optional[str]]:
    from runners.backends.cuda_graphs import capture

    try:
        captured = capture(subject.call, subject.ring[0])
        # The copy of the inputs is no part of the floor
        replayed = replace(subject, call=lambda *_: captured.graph.replay())
        series = timing.time_pipelined(replayed, protocol, warm.last_ns, "graph", protocol.graph_budget_ms)
    except Exception as error:  # noqa: BLE001 - many models cannot be recorded, in as many ways
        return (), None, one_line(error)
    return (series,), lambda: captured.graph.replay(), None


def _profile(ready: _Ready, replay: Optional[Replay] = None) -> Facts:
    from runners.examination.profiler import profile

    backend, subject = ready.backend, ready.subject
    # As it is timed for dispatch, so that the waits that are counted are its own
    dispatched = backend.dispatched(subject.call)
    # A compiled module may have a length, or refuse to tell it: it is neither true nor false
    called = subject.call if dispatched is None else dispatched
    facts = profile(called, subject.ring, subject.synchronize, backend.spec.protocol.profile_calls, replay)
    if dispatched is not None:
        return facts
    return dict(facts, dispatch_problem="every call of this backend waits for the device")


def _device_memory(ready: _Ready, before_bytes: Optional[int]) -> Facts:
    from runners.examination.memory import device_memory

    subject = ready.subject
    return device_memory(
        subject.call, subject.ring, subject.synchronize, before_bytes, ready.backend.allocates_by_torch
    )


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
