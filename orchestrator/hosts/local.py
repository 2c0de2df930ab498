"""This machine as a host."""

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orchestrator.config import ExecutorChoice, Host, local_engine
from orchestrator.environments import engine_problem
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.access import HostAccess, HostFacts, SystemDescription, Way
from orchestrator.hosts.calls import Answer, Argument, decode_answer, encode_call, perform
from orchestrator.hosts.check.clock import Skew
from orchestrator.hosts.check.engine import EngineFacts, EngineQuestion, WantedImage, engine_facts
from orchestrator.hosts.check.preflight import Preflight, PreflightQuestion, preflight_here
from orchestrator.hosts.connection import Deadline
from orchestrator.hosts.engine import HostEngine, directly, send_to
from orchestrator.planning import GpuFacts, Isolation
from runners.system import Fingerprint, SystemRoot, Topology, collect, describe_system

CHOSEN = "chosen in the inventory"
"""Why an isolation was taken that the inventory names."""
ENGINE_ANSWERS = "a Docker engine answers"


class CalledHost(HostAccess):
    """A host on which all that is asked runs as functions of ours."""

    where: str
    """As it is told to people."""

    def describe(self, timeout_s: float) -> SystemDescription:
        python = ".".join(map(str, sys.version_info[:3]))
        document = self.call(describe_system, SystemRoot(), timeout_s)
        return SystemDescription(f"{self.where}, by Python {python}", document)

    def preflight(self, deadline: Deadline, directories: tuple[str, ...]) -> Preflight:
        limit_s = deadline.left_s()
        return self.call(preflight_here, PreflightQuestion(self.settings.engine, directories, limit_s), limit_s)

    def engine_facts(
        self, _: Preflight, wanted: Mapping[str, WantedImage], with_gpus: bool, deadline: Deadline, /
    ) -> EngineFacts:
        limit_s = deadline.left_s()
        question = EngineQuestion(local_engine(self.settings.engine), wanted, with_gpus, limit_s)
        return self.call(engine_facts, question, limit_s)


class LocalHost(CalledHost):
    """The machine on which the command runs; see `HostAccess`."""

    way = Way.HERE
    where = "on this machine"

    def read_facts(self) -> HostFacts:
        return facts_here(FactsQuestion(self.name, self.settings, self.work_directory))

    def call(self, function: Callable[[Argument], Answer], argument: Argument, timeout_s: float) -> Answer:
        """See `HostAccess.call`. It runs in this process; one that takes too long is left to itself."""
        answers: queue.SimpleQueue[str | Exception] = queue.SimpleQueue()
        text = encode_call(function, argument)

        def run() -> None:
            try:
                answers.put(perform(text))
            except Exception as error:  # noqa: BLE001 - raised again below, in the thread that asked
                answers.put(error)

        threading.Thread(target=run, name=f"call {function.__name__}", daemon=True).start()
        try:
            answer = answers.get(timeout=timeout_s)
        except queue.Empty:
            raise InfrastructureError(f"it gave no answer within {timeout_s:g} s") from None
        if isinstance(answer, Exception):
            raise InfrastructureError(f"{function.__name__} failed: {type(answer).__name__}: {answer}") from answer
        return decode_answer(function, answer)

    @contextmanager
    def engine(self) -> Iterator[HostEngine]:
        address = local_engine(self.settings.engine)
        problem = engine_problem(address)
        if problem is not None:
            raise InfrastructureError(problem)
        yield HostEngine(address, directly, send_to(address))

    def skew(self, _: Deadline, /) -> Skew | None:
        return None


@dataclass(frozen=True)
class FactsQuestion:
    """What a process on a host is asked about it."""

    name: str
    settings: Host
    work_directory: str


def facts_here(question: FactsQuestion) -> HostFacts:
    """What the machine of this process is, as a host. Nothing is changed."""
    settings = question.settings
    engine = local_engine(settings.engine)
    isolation, reason = choose_isolation(settings.executor, engine)
    seen = fingerprint_here()
    known = [size for size in (seen.memory.total_bytes, seen.limits.memory_bytes) if size is not None]
    if not known:
        raise InfrastructureError("the size of its memory cannot be read from /proc/meminfo")
    names = [gpu.name or "" for gpu in seen.gpus]
    wrong = settings.expect.unmet(names, seen.gpu_driver_version, seen.cpu.model_name, seen.memory.total_bytes)
    if wrong:
        raise InfrastructureError(f"{'; '.join(wrong)}: mend the host, or correct `expect:`")
    return HostFacts(
        host=question.name,
        cores=tuple(sorted(os.sched_getaffinity(0))),
        memory_bytes=min(known),
        architecture=seen.kernel.architecture,
        cpu_model=seen.cpu.model_name,
        gpus=tuple(GpuFacts(gpu.name, gpu.compute_capability, gpu.memory_bytes) for gpu in seen.gpus),
        gpu_driver_version=seen.gpu_driver_version,
        gpu_reason=seen.gpu_reason,
        topology=(seen.private.topology if seen.private is not None else None) or Topology(),
        isolation=isolation,
        isolation_reason=reason,
        engine=engine,
        work_directory=question.work_directory,
        niceness=os.getpriority(os.PRIO_PROCESS, 0),
        fingerprint=seen,
    )


@cache
def fingerprint_here() -> Fingerprint:
    """The fingerprint of this machine, read once for each process: it is what does not change."""
    return collect()


def choose_isolation(executor: ExecutorChoice, engine: str | None) -> tuple[Isolation, str]:
    """The isolation for this machine, and why."""
    if executor is ExecutorChoice.PROCESS:
        return Isolation.PROCESS, CHOSEN
    problem = engine_problem(engine)
    if problem is None:
        return Isolation.DOCKER, CHOSEN if executor is ExecutorChoice.DOCKER else ENGINE_ANSWERS
    if executor is ExecutorChoice.DOCKER:
        raise InfrastructureError(f"executor is docker, but {problem}; start it, or write `executor: auto`")
    return Isolation.PROCESS, problem


def refuse_directory(directory: Path) -> None:
    """Refuses a work directory that this process cannot use."""
    try:
        nearest = next(path for path in (directory, *directory.parents) if path.exists())
        usable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    except PermissionError:  # it is below a directory that is closed for us
        usable = False
    if not usable:
        raise InfrastructureError(
            f"its processes may not write into {directory}: give them the directory, or name another one as "
            "`work_directory:`"
        )
