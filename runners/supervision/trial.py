"""The processes of one trial: prepare, measure, examine, and the dispatch floor of its structure."""

import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Callable, Dict, Optional, Tuple

from runners.backends import make_backend
from runners.contract import LEGACY, Phases, Series, Status, Task, Trial, TrialSpec, WorkloadSpec, digest
from runners.contract.catalogue.entries import CPU
from runners.contract.record import FactValue
from runners.protocol.answer import Answer, merge_phases
from runners.protocol.cache import CacheEntries, entries
from runners.protocol.examine import examine, wanted
from runners.protocol.measure import measure
from runners.protocol.prepare import missing, prepare
from runners.supervision.interrupts import Interrupts
from runners.supervision.process import Ended, run_child
from runners.supervision.verdict import judge
from runners.workloads import make_workload
from runners.workloads.base import Unsupported, Workload

REFERENCE_ROWS = 16
"""Examples of a batch that are verified: float64 of a large batch would take longer than all of the measurement."""

_FLOOR_WARMUP_MS = 100


@dataclass(frozen=True)
class Floor:
    """What became of the shrunk twin of a trial."""

    series: Optional[Series]
    operations: FactValue
    problem: Optional[str]
    measured_by: str
    """The trial that measured it; others of the same structure share it."""


class TrialProcesses:
    """Starts the processes of the trials of one task, each in its turn."""

    def __init__(self, task: Task, cache: str, source: str, interrupts: Interrupts) -> None:
        self._task = task
        self._cache = cache
        self._source = source
        self._interrupts = interrupts
        self._floors: Dict[str, Floor] = {}

    def run(self, trial: Trial) -> Tuple[Answer, Ended]:
        """All processes of a trial; the second value is the end of the one that measured, or failed."""
        deadline = time.monotonic() + trial.timeout_s
        answer, ended = self._prepare_and_measure(trial, trial.spec, deadline)
        if answer.status is not Status.OK:
            return answer, ended
        if wanted(trial.spec):
            answer = self._with_examination(answer, trial, deadline)
        protocol = trial.spec.protocol
        if trial.spec.device == CPU and protocol.floor_budget_ms and protocol.procedure != LEGACY:
            answer = self._with_floor(answer, trial, deadline)
        return answer, ended

    def _prepare_and_measure(self, trial: Trial, spec: TrialSpec, deadline: float) -> Tuple[Answer, Ended]:
        cached = self._entries(spec)
        backend = make_backend(make_workload(spec))
        phases = Phases(artifact_cached=cached.artifact.exists if backend.has_artifact else None)
        if missing(backend, cached):
            answer, ended = self._prepare(trial, spec, cached, deadline)
            phases = merge_phases(phases, answer.phases)
            if answer.status is not Status.OK:
                return replace(answer, phases=phases), ended
        answer, ended = self._child(partial(measure, spec, cached), trial, deadline)
        return replace(answer, phases=merge_phases(phases, answer.phases)), ended

    def _with_examination(self, answer: Answer, trial: Trial, deadline: float) -> Answer:
        """The answer and what the examination adds. What was timed stands, whatever becomes of it."""
        more, _ = self._child(partial(examine, trial.spec, self._entries(trial.spec)), trial, deadline)
        facts = dict(answer.facts, **more.facts)
        if more.status is not Status.OK:
            facts["examination_problem"] = "%s: %s" % (more.status.value, more.reason)
        phases = merge_phases(answer.phases, more.phases)
        return replace(answer, phases=phases, series=answer.series + more.series, facts=facts)

    def _with_floor(self, answer: Answer, trial: Trial, deadline: float) -> Answer:
        start = time.monotonic()
        try:
            spec = floor_spec(trial.spec)
        except Unsupported as reason:
            return replace(answer, facts=dict(answer.facts, floor_valid=None, floor_problem=str(reason)))
        key = digest(spec)
        fresh = key not in self._floors
        if fresh:
            self._floors[key] = self._floor(trial, spec, deadline)
        floor = self._floors[key]
        facts = dict(answer.facts, **floor_facts(floor, answer.facts.get("operations")))
        phases = replace(answer.phases, floor_s=time.monotonic() - start if fresh else None)
        series = answer.series if floor.series is None else (*answer.series, floor.series)
        return replace(answer, phases=phases, series=series, facts=facts)

    def _floor(self, trial: Trial, spec: TrialSpec, deadline: float) -> Floor:
        answer, _ = self._prepare_and_measure(trial, spec, deadline)
        if answer.status is not Status.OK:
            return Floor(None, None, "%s: %s" % (answer.status.value, answer.reason), trial.trial_id)
        [sync] = [series for series in answer.series if series.mode == "sync"]
        return Floor(replace(sync, mode="floor"), answer.facts.get("operations"), None, trial.trial_id)

    def _entries(self, spec: TrialSpec) -> CacheEntries:
        backend = make_backend(make_workload(spec))
        return entries(self._cache, backend, self._source, self._reference_batch(backend.workload))

    def _reference_batch(self, workload: Workload) -> int:
        """The largest batch of this task that differs from the trial in nothing else that decides the reference."""
        spec = workload.spec
        if not workload.rows_are_independent:
            return spec.workload.batch
        mine = _without_batch(spec)
        batches = [t.spec.workload.batch for t in self._task.trials if _without_batch(t.spec) == mine]
        return min(REFERENCE_ROWS, max(batches, default=spec.workload.batch))

    def _prepare(self, trial: Trial, spec: TrialSpec, cached: CacheEntries, deadline: float) -> Tuple[Answer, Ended]:
        workspace = tempfile.mkdtemp(prefix=".partial-", dir=self._cache)
        try:
            return self._child(partial(prepare, spec, cached, workspace), trial, deadline)
        finally:
            shutil.rmtree(workspace, ignore_errors=True)

    def _child(self, function: Callable[[], Answer], trial: Trial, deadline: float) -> Tuple[Answer, Ended]:
        ended = run_child(function, deadline, self._interrupts)
        return judge(ended, trial.timeout_s), ended


def floor_spec(spec: TrialSpec) -> TrialSpec:
    """The trial that measures the dispatch floor: the shrunk twin, single calls, and nothing beside them.

    Raises:
        Unsupported: the workload has no such twin.
    """
    protocol = spec.protocol
    small = replace(
        protocol,
        warmup_min_ms=min(_FLOOR_WARMUP_MS, protocol.warmup_min_ms),
        sync_budget_ms=protocol.floor_budget_ms,
        # A single block: only lone calls count
        pipelined_budget_ms=1,
        pipelined_min_samples=1,
        pipelined_block_ms=1,
        floor_budget_ms=0,
        energy_window_ms=0,
    )
    return replace(spec, workload=make_workload(spec).shrunk(), protocol=small)


def floor_facts(floor: Floor, operations: FactValue) -> Dict[str, FactValue]:
    """What the row says about the floor. It holds only if the twin dispatches as many operations as the trial."""
    problem, valid = floor.problem, None
    if problem is None and (operations is None or floor.operations is None):
        problem = "the operations of this backend cannot be counted, so that the twin's structure is not proven"
    elif problem is None:
        valid = operations == floor.operations
        if not valid:
            problem = "the twin dispatches %s operations, the trial %s" % (floor.operations, operations)
    return {
        "floor_operations": floor.operations,
        "floor_valid": valid,
        "floor_problem": problem,
        "floor_measured_by": floor.measured_by,
    }


def _without_batch(spec: TrialSpec) -> Tuple[WorkloadSpec, str, str, int]:
    return replace(spec.workload, batch=0), spec.dtype, spec.device, spec.seed
