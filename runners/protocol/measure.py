"""The second process of a trial: a clean one in which everything is timed."""

import gc
from dataclasses import replace
from typing import Any, List, Optional, Sequence, Tuple

from runners.backends import make_backend
from runners.backends.base import Backend
from runners.contract import LEGACY, Phases, Series, Status, TrialSpec
from runners.contract.catalogue.entries import CUDA
from runners.examination.counts import operation_facts
from runners.examination.gpu_clock import gpu_clock
from runners.examination.memory import host_memory
from runners.protocol import timing
from runners.protocol.answer import Answer
from runners.protocol.attempt import Facts, attempted
from runners.protocol.cache import CacheEntries
from runners.protocol.prepare import load_artifact_facts, load_reference
from runners.protocol.stopwatch import Stopwatch
from runners.protocol.timing import Sample, Subject, WarmUp, time_one
from runners.protocol.turns import Turns
from runners.protocol.verify import INPUTS, Check, Reference, check
from runners.workloads import make_workload

RING = 8
"""Distinct inputs that calls get in turn."""

Outputs = Tuple[Any, ...]


def measure(spec: TrialSpec, cached: CacheEntries, turns: Optional[Turns] = None, is_counted: bool = False) -> Answer:
    """Builds, verifies, warms up, times, verifies again and counts.

    Args:
        spec: the trial.
        cached: its reference and artifact.
        turns: in which single calls are timed; by default at one stretch.
        is_counted: whether it is known what its calls consist of.
    """
    backend = make_backend(make_workload(spec))
    workload = backend.workload
    workload.set_threads(backend.host_threads())
    watch = Stopwatch()
    with watch.phase("build_s"):
        model = backend.build()
    with watch.phase("load_s"):
        call = backend.load(model, cached.artifact.path if backend.has_artifact else None)
    with watch.phase("verify_s"):
        reference = load_reference(workload, cached.reference)
    with watch.phase("facts_s"):
        facts = _known(backend, model, cached, reference)
    with watch.phase("inputs_s"):
        ring = [backend.native(workload.inputs(index)) for index in range(RING)]
    with backend.execution(), gpu_clock(spec.device == CUDA) as clock:
        subject = Subject(call, ring, backend.synchronize(), clock)
        answer = _verify_and_time(backend, subject, reference, turns, watch)
        if answer.status is Status.OK:
            with watch.phase("facts_s"):
                # First: what counts leaves behind is no memory of the trial
                facts.update(_examined(backend, subject))
                answer = replace(answer, counts={} if is_counted else _counted(backend, subject))
        facts.update({} if clock is None else clock.facts())
    phases = watch.phases()
    return replace(
        answer,
        phases=replace(phases, build_s=None) if model is None else phases,
        facts=dict(facts, **answer.facts),
    )


def _known(backend: Backend, model: Any, cached: CacheEntries, reference: Reference) -> Facts:
    workload = backend.workload
    facts = dict(reference.facts)
    if model is not None:
        facts.update(workload.facts(model))
    if backend.has_artifact:
        facts.update(load_artifact_facts(workload.arithmetic, cached.artifact))
    facts.update(workload.numerics())
    facts.update(backend.facts())
    return facts


def _verify_and_time(
    backend: Backend, subject: Subject, reference: Reference, turns: Optional[Turns], watch: Stopwatch
) -> Answer:
    with watch.phase("verify_s"):
        outputs, samples = _verified_calls(backend, subject)
        before = _compare(backend, outputs, reference, after_timing=False)
    first_s = samples[0][0] / 1e9
    watch.add("first_call_s", first_s)
    watch.add("verify_s", -first_s)
    if before.problem is not None:
        return Answer(Status.WRONG_OUTPUT, "before timing: " + before.problem, verification=before.verification)
    # Calls after the first are warm-up calls that were looked at
    with watch.phase("warmup_s"):
        warm = _warm_up(backend, subject, samples[1:])
    series, outputs = _timed(backend, subject, warm, turns, watch)
    with watch.phase("verify_s"):
        after = _compare(backend, outputs, reference, after_timing=True)
    if after.problem is not None:
        # A latency of wrong answers is worth nothing
        reason = "after timing: " + after.problem
        return Answer(Status.WRONG_OUTPUT, reason, steady=warm.steady, verification=after.verification)
    return Answer(Status.OK, None, Phases(), series, warm.steady, after.verification)


def _verified_calls(backend: Backend, subject: Subject) -> Tuple[List[Outputs], List[Sample]]:
    outputs, samples = [], []
    for inputs in subject.ring[:INPUTS]:
        result, sample = time_one(subject, inputs)
        samples.append(sample)
        # At once: the next call may write into the same memory
        outputs.append(backend.outputs(result))
    return outputs, samples


def _compare(backend: Backend, outputs: Sequence[Outputs], reference: Reference, after_timing: bool) -> Check:
    arithmetic, dtype = backend.workload.arithmetic, backend.spec.dtype
    return check(arithmetic, dtype, outputs, reference, after_timing, backend.tolerance)


def _warm_up(backend: Backend, subject: Subject, samples: Sequence[Sample]) -> WarmUp:
    protocol = backend.spec.protocol
    if protocol.procedure == LEGACY:
        return timing.warm_up_fixed(subject, protocol.legacy_warmups, samples)
    return timing.warm_up(subject, protocol, samples)


def _timed(
    backend: Backend, subject: Subject, warm: WarmUp, turns: Optional[Turns], watch: Stopwatch
) -> Tuple[Tuple[Series, ...], List[Outputs]]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with watch.phase("timed_s"):
            series = _series(backend, subject, warm, turns)
        if turns is not None:
            watch.add("timed_s", -turns.waited_s)
        with watch.phase("verify_s"):
            outputs, _ = _verified_calls(backend, subject)
    finally:
        gc.enable()
    return (warm.series, *series), outputs


def _series(backend: Backend, subject: Subject, warm: WarmUp, turns: Optional[Turns]) -> List[Series]:
    protocol = backend.spec.protocol
    if protocol.procedure == LEGACY:
        return [timing.time_passes(subject, protocol.legacy_passes)]
    if turns is None:
        series = [timing.time_sync(subject, protocol, warm.last_ns)]
    else:
        series = [timing.time_turns(subject, protocol, turns, warm.last_ns)]
    expected_ns = timing.median_ns(series[0]) if series[0].durations_ns else warm.last_ns
    if protocol.pipelined_budget_ms:
        series.append(timing.time_pipelined(subject, protocol, expected_ns))
    dispatched = backend.dispatched(subject.call)
    if subject.synchronize is not None and protocol.dispatch_budget_ms and dispatched is not None:
        series.append(timing.time_dispatch(replace(subject, call=dispatched), protocol, expected_ns))
    return series


def _examined(backend: Backend, subject: Subject) -> Facts:
    facts = attempted("memory", lambda: host_memory(subject.call, subject.ring))
    facts.update(attempted("backend", backend.examined))
    return facts


def _counted(backend: Backend, subject: Subject) -> Facts:
    call, inputs = subject.call, subject.ring[0]
    facts = attempted("operations", lambda: operation_facts(backend.operations(call, inputs)))
    facts.update(attempted("counts", lambda: backend.counted(call, inputs)))
    return facts
