"""The processes of one trial: prepare, measure, examine; the twins of its dispatch floor are measured alike."""

import shutil
import tempfile
import time
from dataclasses import replace
from functools import partial
from typing import Callable, Tuple

from runners.backends import make_backend
from runners.contract import LEGACY, Phases, Status, Task, Trial, TrialSpec, WorkloadSpec
from runners.contract.catalogue.entries import CPU
from runners.protocol.answer import Answer, merge_phases
from runners.protocol.cache import CacheEntries, entries
from runners.protocol.examine import examine, wanted
from runners.protocol.measure import measure
from runners.protocol.prepare import missing, prepare
from runners.supervision.floor import Floors
from runners.supervision.interrupts import Interrupts
from runners.supervision.process import Ended, run_child
from runners.supervision.verdict import judge
from runners.workloads import make_workload
from runners.workloads.base import Workload

REFERENCE_ROWS = 16
"""Examples of a batch that are verified: float64 of a large batch would take longer than all of the measurement."""


class TrialProcesses:
    """Starts the processes of the trials of one task, each in its turn."""

    def __init__(self, task: Task, cache: str, source: str, interrupts: Interrupts) -> None:
        self._task = task
        self._cache = cache
        self._source = source
        self._interrupts = interrupts
        self._floors = Floors()

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
            answer = self._floors.extended(
                answer, trial, lambda spec: self._prepare_and_measure(trial, spec, deadline)[0]
            )
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


def _without_batch(spec: TrialSpec) -> Tuple[WorkloadSpec, str, str, int]:
    return replace(spec.workload, batch=0), spec.dtype, spec.device, spec.seed
