"""One task from its first line to its last."""

import contextlib
import gc
import json
import os
import time
from dataclasses import dataclass, field, replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from runners.backends.base import CACHE_VARIABLE
from runners.contract import (
    CONTRACT_VERSION,
    EXIT_CANNOT_RECORD,
    Begin,
    ContractError,
    End,
    Environment,
    GuardResult,
    Line,
    Status,
    Task,
    TaskFiles,
    Trial,
    TrialRecord,
    TrialSpec,
    decode,
    encode_line,
    sessions_of,
)
from runners.contract.catalogue import refusal
from runners.contract.catalogue.entries import CUDA
from runners.contract.record import FactValue
from runners.protocol.answer import Answer
from runners.protocol.cache import used
from runners.statistics.allocation import Allocator
from runners.supervision import kernel, preload
from runners.supervision.bounds import limit_time_of_this_process
from runners.supervision.guarding import Guarding, Verdict, guarding_for
from runners.supervision.interrupts import Interrupted, Interrupts
from runners.supervision.source import source_digest
from runners.supervision.trial import Outcome, TrialProcesses
from runners.system import environment

EXIT_BAD_TASK = 65
EXIT_NO_CHILDREN = 70


def run_task(directory: str) -> int:
    """Runs every trial of a task directory and returns the exit code of the process."""
    files = TaskFiles(directory)
    try:
        task = read_task(files.task)
    except (ContractError, OSError) as error:
        print("%s: %s" % (files.task, error), flush=True)
        return EXIT_BAD_TASK
    limit_time_of_this_process()
    interrupts = Interrupts()
    interrupts.install()
    kernel.become_subreaper()
    # Modules make no garbage to speak of, and looking for it takes a fifth of the time in which they are imported
    gc.disable()
    preload.import_all(preload.modules_of(task.every_trial))
    gc.freeze()
    gc.enable()
    try:
        on_gpu = any(trial.spec.device == CUDA for trial in task.every_trial)
        facts = preload.facts_of_child(interrupts, on_gpu)
        if facts is None:
            print("a forked child cannot compute with two threads: no trial can be run here", flush=True)
            return EXIT_NO_CHILDREN
        cache = os.environ.get(CACHE_VARIABLE) or os.path.join(files.directory, "cache")
        with used(cache):
            Supervisor(task, files, interrupts, cache).run(facts)
    except Interrupted as interruption:
        print(interruption, flush=True)
        return interruption.exit_code
    except RecordingError as error:
        with contextlib.suppress(OSError):  # the log may be on the same disk
            os.write(1, ("%s\n" % error).encode("utf-8", "backslashreplace"))
        return EXIT_CANNOT_RECORD
    return 0


def read_task(path: str) -> Task:
    """Reads and checks a task.

    Raises:
        ContractError: it is no task, or one of another version.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        data = file.read()
    try:
        document = json.loads(data.decode("utf-8"))
    except ValueError as error:
        raise ContractError("not a JSON document: %s" % error) from None
    version = document.get("contract_version") if isinstance(document, dict) else None
    if version != CONTRACT_VERSION:
        raise ContractError("contract version %r, this runner speaks %d" % (version, CONTRACT_VERSION))
    return decode(Task, document, "task")


class RecordingError(Exception):
    """A line of the records cannot be written."""


def _conditions() -> Dict[str, FactValue]:
    from runners.system import conditions

    return conditions.read()


@dataclass(frozen=True)
class _Surroundings:
    """What was seen around the trials of a session; all of them have it in their records."""

    before: Dict[str, FactValue] = field(default_factory=_conditions)
    after: Dict[str, FactValue] = field(default_factory=_conditions)
    guards: Tuple[GuardResult, ...] = ()


class Supervisor:
    """Runs the trials of one task, session by session, and writes its lines."""

    def __init__(self, task: Task, files: TaskFiles, interrupts: Interrupts, cache: str) -> None:
        self._task = task
        self._files = files
        self._interrupts = interrupts
        self._source = source_digest()
        self._guardings: Dict[str, Guarding] = {}
        self._processes = TrialProcesses(task, cache, self._source, interrupts)

    def run(self, facts: Dict[str, FactValue]) -> None:
        """Writes the environment, a record for each trial, those of further sessions if there are any, and the end.

        Args:
            facts: of the environment as it is loaded.

        Raises:
            Interrupted: the supervisor has to end; the running trials have no record.
            RecordingError: the same, because the disk takes no line more.
        """
        self._write(Environment(self._task.task_id, environment.observe_versions(), facts, self._source))
        start = time.monotonic()
        allocation = self._task.allocation
        allocator = None if allocation is None else Allocator(allocation)
        count = 0
        for session in sessions_of(self._task.trials):
            count += self._run_session(session, allocator, {})
        while allocator is not None:
            pairs = allocator.next_session(time.monotonic() - start)
            if not pairs:
                break
            originals = {trial.trial_id: original.trial_id for trial, original in pairs}
            count += self._run_session([trial for trial, _ in pairs], allocator, originals)
        self._write(End(self._task.task_id, count))

    def _run_session(
        self, session: Sequence[Trial], allocator: Optional[Allocator], originals: Mapping[str, str]
    ) -> int:
        """Runs what of a session can run; returns the number of records.

        Args:
            session: its trials.
            allocator: learns what they say.
            originals: by id of a repetition the trial that it repeats.
        """
        start = time.monotonic()
        runnable: List[Trial] = []
        for trial in session:
            reason = refusal(trial.spec) or _too_few_cores(trial.spec)
            if reason is None:
                runnable.append(trial)
            else:
                answer = Answer(Status.UNSUPPORTED, reason)
                self._record(trial, self._begin([trial], originals), Outcome(answer), _Surroundings())
        records = self._session(runnable, originals) if runnable else []
        if allocator is not None:
            allocator.saw(session, records, time.monotonic() - start)
        return len(session)

    def _session(self, trials: Sequence[Trial], originals: Mapping[str, str]) -> List[TrialRecord]:
        """Runs the trials of one session, between one look of the guards and the next."""
        guarding = self._guarding(trials[0].spec.device)
        # Before they begin: what they wait is no part of their time, and nothing of them is lost meanwhile
        seen = guarding.before()
        begun = self._begin(trials, originals)
        before = _conditions()
        outcomes: Dict[str, Outcome] = {}
        if seen.problem is not None:
            refused = Outcome(Answer(Status.INFRASTRUCTURE_ERROR, seen.problem))
            outcomes = {trial.trial_id: refused for trial in trials}
        else:
            guarding.start()
            outcomes = self._processes.run(trials)
            after = guarding.after()
            outcomes = {name: _disturbed(outcome, after.problem) for name, outcome in outcomes.items()}
            seen = Verdict(seen.results + after.results)
        around = _Surroundings(before, _conditions(), seen.results)
        return [self._record(trial, begun, outcomes[trial.trial_id], around) for trial in trials]

    def _guarding(self, device: str) -> Guarding:
        """The guards of a device's sessions, which know what they saw around the last one."""
        if device not in self._guardings:
            self._guardings[device] = guarding_for(self._task.guards, device, self._interrupts.pause)
        return self._guardings[device]

    def _begin(self, trials: Sequence[Trial], originals: Mapping[str, str]) -> int:
        """Writes that trials begin; returns when, in nanoseconds since the epoch."""
        started = time.time_ns()
        for trial in trials:
            original = originals.get(trial.trial_id)
            round_number = None if original is None else trial.round
            self._write(Begin(trial.trial_id, trial.attempt, started, original, round_number))
        return started

    def _record(self, trial: Trial, started: int, outcome: Outcome, around: "_Surroundings") -> TrialRecord:
        answer, ended, finished = outcome.answer, outcome.ended, time.time_ns()
        seconds = (finished - started) / 1e9
        record = TrialRecord(
            trial_id=trial.trial_id,
            attempt=trial.attempt,
            status=answer.status,
            reason=answer.reason,
            started_at_ns=started,
            finished_at_ns=finished,
            phases=replace(answer.phases, session_s=max(0.0, seconds - answer.phases.total_s)),
            series=answer.series,
            session=outcome.session,
            steady=answer.steady,
            verification=answer.verification,
            facts=answer.facts,
            conditions_before=around.before,
            conditions_after=around.after,
            guards=around.guards,
            usage=ended.usage if ended else None,
            exit_code=ended.code if ended else None,
            log_tail=ended.log_tail if ended and answer.status is not Status.OK else "",
        )
        self._write(record)
        print("%s %s %.1f s %s" % (trial.trial_id, record.status.value, seconds, record.reason or ""), flush=True)
        return record

    def _write(self, line: Line) -> None:
        try:
            self._append(encode_line(line), is_awaited=isinstance(line, TrialRecord))
        except OSError as error:
            raise RecordingError("%s: %s" % (self._files.records, error)) from error

    def _append(self, data: bytes, is_awaited: bool) -> None:
        # Opened for each line: a child must never hold the descriptor
        descriptor = os.open(self._files.records, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError("a line was written in part")
            if is_awaited:
                os.fdatasync(descriptor)  # between two trials: nothing is measured meanwhile
        finally:
            os.close(descriptor)


def _too_few_cores(spec: TrialSpec) -> Optional[str]:
    cores = len(os.sched_getaffinity(0))
    if spec.threads > cores:
        return "%d threads on the %d cores that this process may use" % (spec.threads, cores)
    return None


def _disturbed(outcome: Outcome, problem: Optional[str]) -> Outcome:
    """What becomes of a trial if a guard says that what it measured does not count."""
    if outcome.answer.status is not Status.OK or problem is None:
        return outcome
    # Its samples stay: they show what a neighbour does
    return replace(outcome, answer=replace(outcome.answer, status=Status.INFRASTRUCTURE_ERROR, reason=problem))
