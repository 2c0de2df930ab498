"""The processes of a session's trials: prepare, measure in turns, examine; the twins of floors are measured alike."""

import os
import shutil
import signal
import statistics
import tempfile
import uuid
from dataclasses import dataclass, replace
from functools import partial
from typing import Callable, Dict, Optional, Sequence, Set, Tuple

from runners.backends import make_backend
from runners.backends.base import HEADERS
from runners.contract import (
    LEGACY,
    CacheState,
    Interleaving,
    Phases,
    Session,
    Status,
    Task,
    Trial,
    TrialSpec,
    digest,
)
from runners.contract.catalogue.entries import CPU, CUDA
from runners.contract.record import FactValue
from runners.examination.profiler import checked_by_latency
from runners.examination.utilisation import estimated_occupancy
from runners.protocol.answer import Answer, merge_phases
from runners.protocol.cache import PARTIAL, CacheEntries, Entry, entries, seal
from runners.protocol.examine import examine, profile_again, wanted
from runners.protocol.measure import measure
from runners.protocol.prepare import missing, prepare
from runners.supervision.bounds import memory_limit_bytes
from runners.supervision.floor import Floors
from runners.supervision.interrupts import Interrupts
from runners.supervision.process import Ended, run_child
from runners.supervision.room import Room
from runners.supervision.session import AfterTurns, Allowance, Member, SessionRun
from runners.supervision.verdict import judge
from runners.system.gpu_state import read_gpus
from runners.workloads import make_workload
from runners.workloads.base import Workload

REFERENCE_ROWS = 16
"""Examples of a batch that are verified: float64 of a large batch would take longer than all of the measurement."""

_BASELINE = "eager"


@dataclass(frozen=True)
class Outcome:
    """What became of a trial."""

    answer: Answer
    ended: Optional[Ended] = None
    """The end of the process that measured, or failed; null if none ran."""
    session: Optional[Session] = None


class TrialProcesses:
    """Starts the processes of the trials of one task, session by session."""

    def __init__(self, task: Task, cache: str, source: str, interrupts: Interrupts) -> None:
        self._cache = cache
        self._checked: Set[str] = set()
        """Entries that were compared with their manifests: what changes them later is a trial of this task."""
        self._source = source
        self._interrupts = interrupts
        self._floors = Floors()
        self._counts: Dict[str, Dict[str, FactValue]] = {}
        """By digest of a specification what its calls consist of, and the trial that counted."""
        self._largest: Dict[str, int] = {}
        """By what else decides a reference, the largest batch of the task."""
        for trial in task.every_trial:
            kind = _without_batch(trial.spec)
            self._largest[kind] = max(trial.spec.workload.batch, self._largest.get(kind, 0))

    def run(self, trials: Sequence[Trial]) -> Dict[str, Outcome]:
        """All processes of the trials of one session; returns what became of each by its id."""
        outcomes: Dict[str, Outcome] = {}
        allowances = {trial.trial_id: Allowance(trial.timeout_s) for trial in trials}
        if trials[0].spec.protocol.procedure == LEGACY:
            [trial] = trials
            with allowances[trial.trial_id].passing() as deadline:
                outcomes[trial.trial_id] = Outcome(*self._prepare_and_measure(trial, trial.spec, deadline))
        else:
            self._measure_in_turns(trials, allowances, outcomes)
        for trial in trials:
            outcome = outcomes[trial.trial_id]
            if outcome.answer.status is Status.OK:
                with allowances[trial.trial_id].passing() as deadline:
                    completed = self._completed(outcome.answer, trial, deadline)
                outcomes[trial.trial_id] = replace(outcome, answer=completed)
        spent_s = sum(allowance.spent_s for allowance in allowances.values())
        return {name: _with_processes(outcomes[name], own.spent_s, spent_s) for name, own in allowances.items()}

    def _measure_in_turns(
        self, trials: Sequence[Trial], allowances: Dict[str, Allowance], outcomes: Dict[str, Outcome]
    ) -> None:
        """Prepares all trials, then measures them together; alone those for which there was no room."""
        prepared: Dict[str, Phases] = {}
        members: Dict[str, Member] = {}
        for trial in trials:
            name = trial.trial_id
            cached = self._entries(trial.spec)
            with allowances[name].passing() as deadline:
                answer, ended = self._prepared(trial, trial.spec, cached, deadline)
            if ended is not None and answer.status is not Status.OK:
                outcomes[name] = Outcome(answer, ended)
            else:
                prepared[name] = answer.phases
                is_baseline = trial.spec.backend.name == _BASELINE and trial.replicate == 0
                function = partial(measure, trial.spec, cached, is_counted=digest(trial.spec) in self._counts)
                members[name] = Member(function, allowances[name], is_baseline)
        by_name = {trial.trial_id: trial for trial in trials}
        reasons: Dict[str, str] = {}
        for name, outcome in self._session([by_name[name] for name in members], members, None).items():
            if outcome is None:
                reasons[name] = "no room beside the others: %s" % members[name].left_out
            elif members[name].beside and _lacked_memory(outcome):
                what = "out of memory" if outcome.answer.status is Status.OOM else outcome.answer.reason
                reasons[name] = "%s while %d processes were alive" % (what, members[name].beside + 1)
            else:
                outcomes[name] = outcome
        for name, reason in reasons.items():
            again = {name: Member(members[name].function, allowances[name])}
            for outcome in self._session([by_name[name]], again, reason).values():
                assert outcome is not None
                outcomes[name] = outcome
        for name, phases in prepared.items():
            outcome, answer = outcomes[name], outcomes[name].answer
            outcomes[name] = replace(outcome, answer=replace(answer, phases=merge_phases(phases, answer.phases)))

    def _session(
        self, trials: Sequence[Trial], members: Dict[str, Member], reason: Optional[str]
    ) -> Dict[str, Optional[Outcome]]:
        """Runs a session and judges its ends; null for a trial that was left out of it.

        Args:
            trials: in the order in which their processes start.
            members: their processes.
            reason: why this one trial is not with others; null if there is none.
        """
        if not trials:
            return {}
        first = trials[0]
        if first.alone:
            reason = "it or another one of its session ended earlier starts"
        seed = "%d %s" % (first.spec.seed, " ".join(sorted(trial.trial_id for trial in trials)))
        on_gpu = first.spec.device == CUDA
        room = Room(read_gpus if on_gpu else tuple, limit_bytes=memory_limit_bytes())
        started = [members[trial.trial_id] for trial in trials]
        after_turns = AfterTurns.of(first.spec.protocol, on_gpu)
        processes = SessionRun(started, first.spec.protocol, seed, self._interrupts, room, after_turns).run()
        interleaving = Interleaving.TURNS if reason is None else Interleaving.ALONE
        session = Session(uuid.uuid4().hex, interleaving, processes, reason)
        outcomes: Dict[str, Optional[Outcome]] = {}
        for trial, member in zip(trials, started):
            own = session
            if member.paired is not None:
                own = replace(session, interleaving=Interleaving.PAIRS, processes=2, reason=member.paired)
            outcomes[trial.trial_id] = None
            if member.left_out is None:
                answer = self._with_counts(judge(member.ended, trial.timeout_s), trial, trial.spec)
                answer = _later(answer, member.first_cycle)
                outcomes[trial.trial_id] = Outcome(answer, member.ended, own)
        return outcomes

    def _completed(self, answer: Answer, trial: Trial, deadline: float) -> Answer:
        """What was measured, with what is looked at afterwards."""
        if wanted(trial.spec):
            answer = self._with_examination(answer, trial, deadline)
        protocol = trial.spec.protocol
        if trial.spec.device == CPU and protocol.floor_budget_ms and protocol.procedure != LEGACY:
            answer = self._floors.extended(
                answer, trial, lambda spec: self._prepare_and_measure(trial, spec, deadline)[0]
            )
        return answer

    def _prepared(
        self, trial: Trial, spec: TrialSpec, cached: CacheEntries, deadline: float
    ) -> Tuple[Answer, Optional[Ended]]:
        """Makes what the cache lacks; without an end if it lacks nothing."""
        backend = make_backend(make_workload(spec))
        phases = Phases(
            reference_cache=self._state(cached.reference),
            artifact_cache=self._state(cached.artifact) if backend.has_artifact else None,
        )
        if not missing(backend, cached):
            return Answer(Status.OK, phases=phases), None
        answer, ended = self._prepare(trial, spec, cached, deadline)
        return replace(answer, phases=merge_phases(phases, answer.phases)), ended

    def _state(self, entry: Entry) -> CacheState:
        if entry.path in self._checked and entry.exists:
            return CacheState.HIT
        self._checked.add(entry.path)
        return entry.checked()

    def _prepare_and_measure(self, trial: Trial, spec: TrialSpec, deadline: float) -> Tuple[Answer, Ended]:
        """Measures at one stretch, while nothing else of the task lives."""
        cached = self._entries(spec)
        before, failed = self._prepared(trial, spec, cached, deadline)
        if failed is not None and before.status is not Status.OK:
            return before, failed
        function = partial(measure, spec, cached, is_counted=digest(spec) in self._counts)
        answer, ended = self._child(function, trial, deadline)
        answer = self._with_counts(answer, trial, spec)
        return replace(answer, phases=merge_phases(before.phases, answer.phases)), ended

    def _with_counts(self, answer: Answer, trial: Trial, spec: TrialSpec) -> Answer:
        """The answer, with what was counted once for all processes of a specification."""
        if answer.status is not Status.OK:
            return answer
        own: Dict[str, FactValue] = dict(answer.counts, counted_by=trial.trial_id) if answer.counts else {}
        # What could not be counted here is tried again by the next process
        if own and not any(name.endswith("_problem") for name in own):
            self._counts.setdefault(digest(spec), own)
        return replace(answer, facts=dict(answer.facts, **self._counts.get(digest(spec), own)), counts={})

    def _with_examination(self, answer: Answer, trial: Trial, deadline: float) -> Answer:
        """The answer and what the examination adds. What was timed stands, whatever becomes of it."""
        cached = self._entries(trial.spec)
        more, _ = self._child(partial(examine, trial.spec, cached), trial, deadline)
        facts = dict(answer.facts, **more.facts)
        if more.facts.get("profiler_valid") is False:
            # Records are lost by chance, and by a process that has lost some again
            again, _ = self._child(partial(profile_again, trial.spec, cached), trial, deadline)
            if again.facts.get("profiler_valid") is True:
                facts.update(again.facts, profiler_retried=more.facts.get("profiler_problem"))
        durations_ns = [ns for part in answer.series if part.mode == "sync" for ns in part.durations_ns]
        if durations_ns:
            facts.update(checked_by_latency(facts, statistics.median(durations_ns) / 1e9))
        facts.update(estimated_occupancy(facts))
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
        return min(REFERENCE_ROWS, self._largest.get(_without_batch(spec), spec.workload.batch))

    def _prepare(self, trial: Trial, spec: TrialSpec, cached: CacheEntries, deadline: float) -> Tuple[Answer, Ended]:
        workspace = tempfile.mkdtemp(prefix=PARTIAL, dir=self._cache)
        try:
            return self._child(partial(prepare, spec, cached, workspace), trial, deadline)
        finally:
            shutil.rmtree(workspace, ignore_errors=True)
            headers = os.path.join(self._cache, HEADERS)
            if os.path.isdir(headers):
                seal(headers)

    def _child(self, function: Callable[[], Answer], trial: Trial, deadline: float) -> Tuple[Answer, Ended]:
        ended = run_child(function, deadline, self._interrupts)
        return judge(ended, trial.timeout_s), ended


def _with_processes(outcome: Outcome, own_s: float, session_s: float) -> Outcome:
    """The outcome, with what is known of its time only when the session is over.

    Args:
        outcome: of a trial.
        own_s: in which processes of the trial ran.
        session_s: in which any process of the session ran.
    """
    phases = outcome.answer.phases
    process_s = max(0.0, own_s - phases.total_s)
    phases = replace(phases, process_s=process_s, others_s=max(0.0, session_s - own_s))
    return replace(outcome, answer=replace(outcome.answer, phases=phases))


def _later(answer: Answer, cycles: int) -> Answer:
    """The answer of a process whose first turn came some cycles after that of its partner."""
    series = [replace(part, turns=(0,) * cycles + part.turns) if part.turns else part for part in answer.series]
    return replace(answer, series=tuple(series))


def _lacked_memory(outcome: Outcome) -> bool:
    """Whether it may have ended for lack of memory: the kernel does not always count in time whom it killed for it."""
    ended = outcome.ended
    was_killed = ended is not None and ended.stop is None and ended.code == -signal.SIGKILL
    return outcome.answer.status is Status.OOM or was_killed


def _without_batch(spec: TrialSpec) -> str:
    return digest([replace(spec.workload, batch=0), spec.dtype, spec.device, spec.seed])
