"""The second process of a trial: a clean one in which everything is measured."""

import gc
import time
from dataclasses import replace
from typing import Any, Sequence, Tuple

from runners.backends import make_backend
from runners.backends.base import Backend
from runners.contract import Phases, Protocol, Series, Status, TrialSpec
from runners.protocol.answer import Answer
from runners.protocol.cache import CacheEntries
from runners.protocol.prepare import load_artifact_facts, load_reference
from runners.protocol.timing import WarmUp, extended, median_ns, time_one, time_pipelined, time_sync, warm_up
from runners.protocol.verify import INPUTS, Check, Reference, check
from runners.workloads import make_workload
from runners.workloads.base import Call

_RING = 8


def measure(spec: TrialSpec, cached: CacheEntries) -> Answer:
    """Builds, verifies, warms up, times and verifies again."""
    backend = make_backend(make_workload(spec))
    workload = backend.workload
    workload.set_threads(backend.host_threads())
    start = time.perf_counter()
    model = backend.build()
    built = time.perf_counter()
    call = backend.load(model, cached.artifact.path if backend.has_artifact else None)
    loaded = time.perf_counter()
    reference = load_reference(workload, cached.reference)
    facts = dict(reference.facts if model is None else workload.facts(model))
    if backend.has_artifact:
        facts.update(load_artifact_facts(workload.arithmetic, cached.artifact))
    facts.update(backend.facts())
    ring = [backend.native(workload.inputs(index)) for index in range(_RING)]
    with backend.execution():
        answer = _verify_and_time(backend, call, ring, reference)
    phases = replace(answer.phases, build_s=None if model is None else built - start, load_s=loaded - built)
    return replace(answer, phases=phases, facts=facts)


def _verify_and_time(backend: Backend, call: Call, ring: Sequence[Any], reference: Reference) -> Answer:
    protocol = backend.spec.protocol
    first = [time_one(call, inputs) for inputs in ring[:INPUTS]]
    samples = [sample for _, sample in first]
    before = _compare(backend, [result for result, _ in first], reference, after_timing=False)
    phases = Phases(first_call_s=samples[0][0] / 1e9)
    if before.problem is not None:
        return Answer(
            Status.WRONG_OUTPUT,
            "before timing: " + before.problem,
            phases,
            verification=before.verification,
        )
    # Calls after the first are warm-up calls that were looked at
    warm = warm_up(call, ring, protocol, samples[1:])
    series, results = _timed(call, ring, protocol, warm)
    phases = replace(phases, warmup_s=warm.seconds)
    after = _compare(backend, results, reference, after_timing=True)
    status = Status.OK if after.problem is None else Status.WRONG_OUTPUT
    reason = None if after.problem is None else "after timing: " + after.problem
    # A latency of wrong answers is worth nothing
    kept = series if after.problem is None else ()
    return Answer(status, reason, phases, kept, warm.steady, after.verification)


def _compare(backend: Backend, results: Sequence[Any], reference: Reference, after_timing: bool) -> Check:
    outputs = [backend.outputs(result) for result in results]
    return check(backend.workload.arithmetic, backend.spec.dtype, outputs, reference, after_timing)


def _timed(
    call: Call, ring: Sequence[Any], protocol: Protocol, warm: WarmUp
) -> Tuple[Tuple[Series, ...], Sequence[Any]]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        sync = time_sync(call, ring, protocol, INPUTS, warm.last_ns)
        pipelined = time_pipelined(call, ring, protocol, median_ns(sync) if sync.durations_ns else warm.last_ns)
        # What is verified after timing is timed, too: a slow call is too dear to be made for nothing
        last = [time_one(call, inputs) for inputs in ring[:INPUTS]]
    finally:
        gc.enable()
    sync = extended(sync, [sample for _, sample in last])
    return (warm.series, sync, pipelined), [result for result, _ in last]
