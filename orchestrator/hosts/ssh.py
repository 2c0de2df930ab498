"""A host that is reached over SSH."""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

from orchestrator.config import WORK_DIRECTORY, ExecutorChoice, Host
from orchestrator.environments import ENGINE_EXCEPTIONS, connect, engine_errors
from orchestrator.errors import InfrastructureError
from orchestrator.execution.process import FITNESS, SYSTEM_PATH
from orchestrator.files import tar_of
from orchestrator.hosts.access import (
    PLACE_S,
    HostAccess,
    HostFacts,
    Interpreter,
    SystemDescription,
    Way,
    refuse_outside,
)
from orchestrator.hosts.calls import Answer, Argument, Program, answer_of_program, call_program
from orchestrator.hosts.check.clock import Skew, measure_skew
from orchestrator.hosts.check.engine import (
    ContainerCommand,
    EngineFacts,
    EngineQuestion,
    Requirements,
    WantedImage,
    engine_facts,
    images_on,
    refusal,
    run_in_container,
)
from orchestrator.hosts.check.findings import (
    CHECK_TIMEOUT_S,
    Check,
    Finding,
    HostReport,
    Level,
    failure,
    fine,
    socket_problem,
)
from orchestrator.hosts.check.preflight import ENGINE_ROOTS, SCRIPT, Preflight, PreflightQuestion, parse
from orchestrator.hosts.cluster.plan import LABEL_RECIPE
from orchestrator.hosts.connection import CommandOutput, Connections, Deadline, HostConnectionError
from orchestrator.hosts.engine import ForwardedEngine, directly, mark_name, send_to
from orchestrator.hosts.local import CHOSEN, ENGINE_ANSWERS
from orchestrator.planning import GpuFacts, Isolation
from runners.system import SystemRoot, describe_system, fingerprint_of_system, observe_versions

_ANSWER_S = 60.0
_PROGRAM_AT = "/taxmeter/program.py"
_HOST_AT = "/host"

# Unpacked beside their places, then moved there one by one.
_PLACE = r"""
set -e
mkdir -p "$1"
there=$(mktemp -d "$1/.placing-XXXXXX")
trap 'rm -rf "$there"' EXIT
tar -xf - -C "$there"
cd "$there"
# with \; find would end well whatever became of them
find . -type d -exec sh -c 'for name; do mkdir -p "$0/$name" || exit 1; done' "$1" {} +
find . -type f -exec sh -c 'for name; do mv -f "$name" "$0/$name" || exit 1; done' "$1" {} +
"""
_OTHER_DIRECTORY = "or name another one as `work_directory:`"
_MENDS = {os.strerror(full): f"make room there, {_OTHER_DIRECTORY}" for full in (errno.ENOSPC, errno.EDQUOT)} | {
    os.strerror(errno.EACCES): f"give its user the directory, {_OTHER_DIRECTORY}"
}


class SshHost(HostAccess):
    """A host over SSH; see `HostAccess`."""

    way = Way.SSH

    def __init__(
        self,
        name: str,
        settings: Host,
        connections: Connections,
        wanted: Callable[[], Requirements],
        state: Path = Path(),
    ) -> None:
        """Reaches nothing yet.

        Args:
            state: of the project, below which a relay listens if it has no engine.
        """
        super().__init__(name, settings, WORK_DIRECTORY)
        self._connections = connections
        self._wanted = wanted
        self._relay = socket_of(state)
        self._seen: Preflight | None = None

    def read_facts(self) -> HostFacts:
        """See `HostAccess.read_facts`. What its agent will tell of it is not known yet: there may be no Python."""
        report = self.check(self._wanted(), CHECK_TIMEOUT_S)
        problem = _problem(report)
        if problem is not None or report.preflight is None:
            raise InfrastructureError(problem or "it told nothing about itself")
        facts = _facts(self.name, self.settings, report.preflight, self.work_directory)
        return facts if self.settings.python is None else self._in_interpreter(facts, self.settings.python)

    def call(self, function: Callable[[Argument], Answer], argument: Argument, timeout_s: float) -> Answer:
        """See `HostAccess.call`.

        It runs in the host's own Python if that is new enough and has what the function imports, else in a container
        of an image that does: without network or rights, and of the host's files it sees none.
        """
        deadline = Deadline(timeout_s)
        program = call_program(function, argument)
        with _nameless():
            output = self._run_in_python(program, deadline)
            if isinstance(output, str):
                output, _ = self._run_in_container(program, output, deadline, ContainerCommand("", []))
        return _answer(function, output, f"{function.__name__} failed there")

    @contextmanager
    def engine(self) -> Iterator[ForwardedEngine]:
        deadline = Deadline(_ANSWER_S)
        with _nameless(), self._forwarded(self._look(deadline), deadline) as address:
            yield ForwardedEngine(address, directly, send_to(address), self._marked)

    def place(self, files: Mapping[str, bytes], directory: PurePosixPath) -> None:
        """See `HostAccess.place`. A shell is enough for it."""
        with _nameless():
            self.send_files(files, directory)

    def send_files(self, files: Mapping[str, bytes], directory: PurePosixPath) -> None:
        """The same for who waits for hosts.

        Raises:
            HostConnectionError: the host was not reached.
            InfrastructureError: as of `place`.
        """
        refuse_outside(files)
        self._shell(_PLACE, [str(directory)], tar_of(files))

    def check(self, wanted: Requirements, timeout_s: float) -> HostReport:
        report = super().check(wanted, timeout_s)
        if self.settings.python is None or report.preflight is None:
            return report
        findings = {**report.findings, Check.ENGINE: self._interpreter_finding(self.settings.python, timeout_s)}
        return replace(report, findings=findings)

    def describe(self, timeout_s: float) -> SystemDescription:
        deadline = Deadline(timeout_s)
        with _nameless():
            seen = self._look(deadline)
            output = self._run_in_python(call_program(describe_system, SystemRoot()), deadline)
            own = f"the host's own Python {seen.python}"
            read = f"over SSH, by {self.settings.python or own}"
            if isinstance(output, str):
                output, read = self._describe_in_container(seen, output, deadline)
        return SystemDescription(read, _answer(describe_system, output, "the fingerprint could not be read"))

    def preflight(self, deadline: Deadline, directories: tuple[str, ...]) -> Preflight:
        question = PreflightQuestion(self.settings.engine, directories, deadline.left_s())
        with _nameless():
            output = self._connections.run(self.name, question.command, question.limit_s, stdin=SCRIPT)
        self._seen = parse(output.stdout)
        return self._seen

    def engine_facts(
        self, seen: Preflight, wanted: Mapping[str, WantedImage], with_gpus: bool, deadline: Deadline, /
    ) -> EngineFacts:
        with _nameless(), self._forwarded(seen, deadline) as address:
            try:
                return engine_facts(EngineQuestion(address, wanted, with_gpus, deadline.left_s()))
            except InfrastructureError as error:
                raise InfrastructureError(f"the engine failed: {error}") from error

    def skew(self, deadline: Deadline, /) -> Skew | None:
        with _nameless():
            return measure_skew(self._connections, self.name, deadline.left_s())

    def _interpreter_finding(self, python: str, timeout_s: float) -> Finding:
        try:
            version = self._ask_interpreter(observe_versions, timeout_s)["python"]
            path = f"{PurePosixPath(python).parent}:{SYSTEM_PATH}"
            with _nameless():
                done = self._connections.run(
                    self.name, ["sh", "-c", FITNESS, "sh", self.work_directory, path], timeout_s
                )
        except InfrastructureError as error:
            return failure("no python", f"{python}: {error}; correct `python:`, or install it there")
        if done.exit_code == 0:
            return fine(f"python {version}")
        return failure(f"python {version}", done.last_line)

    def _in_interpreter(self, facts: HostFacts, python: str) -> HostFacts:
        """What the interpreter that the inventory names tells of itself, and of the host as trials will see it."""
        fingerprint = self._ask_interpreter(fingerprint_of_system, _ANSWER_S)
        versions = self._ask_interpreter(observe_versions, _ANSWER_S)
        sizes = [size for size in (facts.memory_bytes, fingerprint.limits.memory_bytes) if size is not None]
        return replace(
            facts,
            memory_bytes=min(sizes, default=None),
            isolation=Isolation.PROCESS,
            isolation_reason=f"the inventory names {python} there",
            fingerprint=fingerprint,
            interpreter=Interpreter(python, versions, self._relay),
        )

    def _ask_interpreter(self, function: Callable[[SystemRoot], Answer], timeout_s: float) -> Answer:
        """Runs a function of `runners.system` in the interpreter that the inventory names."""
        with _nameless():
            output = self._run_in_python(call_program(function, SystemRoot()), Deadline(timeout_s))
        assert isinstance(output, CommandOutput)
        return _answer(function, output, "it does not run our code")

    def _look(self, deadline: Deadline) -> Preflight:
        return self._seen or self.preflight(deadline, (*ENGINE_ROOTS, self.work_directory))

    def _run_in_python(self, program: Program, deadline: Deadline) -> CommandOutput | str:
        """What a program said in the host's own Python, or the one that is named; or why it cannot run in it."""
        argv = ["python3", "-"]
        if self.settings.python is not None:
            argv = [self.settings.python, "-I", "-"]
        else:
            python = self._look(deadline).python
            if python is None or tuple(map(int, python.split(".")[:2])) < program.oldest_python:
                return f"python3 is {python or 'missing'} there"
        output = self._connections.run(self.name, argv, deadline.left_s(), stdin=program.text)
        if program.needs_packages and "ModuleNotFoundError: No module named" in output.last_line:
            return f"its python3 cannot run it ({output.last_line})"
        return output

    def _describe_in_container(self, seen: Preflight, why: str, deadline: Deadline) -> tuple[CommandOutput, str]:
        """From a container that sees the host's own /proc and /sys; and how that was read, for people."""
        release = self._connections.run(self.name, ["cat", "/etc/os-release"], deadline.left_s()).stdout
        program = call_program(describe_system, SystemRoot(_HOST_AT, seen.host_name))
        files = {f"{_HOST_AT}/etc/os-release": release.encode()}
        like = ContainerCommand("", [], bool(seen.gpus), files, _HOST_AT)
        return self._run_in_container(program, why, deadline, like)

    def _run_in_container(
        self, program: Program, why: str, deadline: Deadline, like: ContainerCommand
    ) -> tuple[CommandOutput, str]:
        """What a program said in a container, and what that means for it. `why` not without one."""
        before = f"{why}, and no container can be started"
        with self._forwarded(self._look(deadline), deadline, f"{before}: ") as address:
            image, name = self._image_for(program, address, why, deadline)
            files = {**like.files, _PROGRAM_AT: program.text.encode()}
            command = replace(like, image=image, command=["python", "-I", _PROGRAM_AT], files=files)
            blind = ""
            with closing(connect(address, deadline.left_s())) as client, engine_errors(before):
                try:
                    output = run_in_container(client, command, deadline)
                except ENGINE_EXCEPTIONS:
                    if not command.gpus:
                        raise
                    output = run_in_container(client, replace(command, gpus=False), deadline)
                    blind = ", GPUs unknown, because containers do not see them"
        limits = "C library unknown, limits are the container's"
        return output, f"in a container of the image {name} ({why}): {limits}{blind}"

    def _image_for(self, program: Program, address: str, why: str, deadline: Deadline) -> tuple[str, str]:
        """The id and the name of an image of the host's engine in which a program runs."""
        oldest = ".".join(map(str, program.oldest_python))
        if not program.needs_packages:
            present = images_on(address, self._wanted().images, deadline)
            if not present:
                raise InfrastructureError(
                    f"{why}, and none of our images is there to run the code in: install python3 {oldest} or newer "
                    "there, or bring an image"
                )
            name, image = next(iter(present.items()))
            return image.image_id, name
        with closing(connect(address, deadline.left_s())) as client, engine_errors("its engine failed"):
            found = client.images.list(filters={"label": [LABEL_RECIPE]})
        newest = max(found, key=lambda image: str(image.attrs.get("Created")), default=None)
        if newest is None:
            raise InfrastructureError(
                f"{why}, and the agents' image is not there to run the code in: install python3 {oldest} with "
                "requirements/base.lock there, or bring the cluster up"
            )
        return str(newest.id), "of the agents"

    @contextmanager
    def _forwarded(self, seen: Preflight, deadline: Deadline, before: str = "") -> Iterator[str]:
        """The address of the host's engine on this machine. A problem begins with `before`."""
        if self.settings.python is not None:
            raise InfrastructureError(f"{before}the inventory names {self.settings.python} there in place of an engine")
        problem = socket_problem(self.settings, seen)
        if problem is not None or seen.socket is None:
            raise InfrastructureError(f"{before}{problem}")
        with self._connections.forward_engine(self.name, deadline.left_s(), seen.socket.path) as forward:
            try:
                connect(forward.address, deadline.left_s(_ANSWER_S)).close()
            except InfrastructureError as error:
                reason = refusal(seen.socket) if forward.is_refused() else f"the engine failed: {error}"
                raise InfrastructureError(f"{before}{reason}") from None
            yield forward.address

    @contextmanager
    def _marked(self, directory: str) -> Iterator[str]:
        """See `ForwardedEngine.marked`."""
        mark = f"{directory}/{mark_name()}"
        self._shell('mkdir -p "$1" && touch "$2"', [directory, mark])
        try:
            yield mark
        finally:
            self._shell('rm -f "$1"', [mark])

    def _shell(self, script: str, arguments: list[str], stdin: bytes = b"") -> None:
        argv = ["sh", "-c", f"LC_ALL=C; export LC_ALL; {script}", "sh", *arguments]
        done = self._connections.run(self.name, argv, PLACE_S, stdin=stdin)
        if done.exit_code != 0:
            # the reason need not be what is said last: tar goes on
            known = (f"{reason}: {mend}" for reason, mend in _MENDS.items() if reason in done.stderr)
            why = next(known, done.last_line)
            raise InfrastructureError(f"{arguments[0]} cannot be written: {why}")


def socket_of(state: Path) -> Path:
    """Where a project's relay listens."""
    return state.resolve() / "relay" / "socket"


def _facts(name: str, settings: Host, seen: Preflight, work_directory: str) -> HostFacts:
    gpus = tuple(GpuFacts(gpu.name, gpu.compute_capability, gpu.memory_bytes) for gpu in seen.gpus)
    isolation = Isolation.PROCESS if settings.executor is ExecutorChoice.PROCESS else Isolation.DOCKER
    return HostFacts(
        host=name,
        cores=seen.allowed or tuple(range(seen.threads or 1)),
        memory_bytes=seen.memory_bytes,
        architecture=seen.architecture,
        cpu_model=seen.cpu_model,
        gpus=gpus,
        gpu_driver_version=seen.driver_version,
        gpu_reason=None if gpus else seen.gpu_problem or "the host has no NVIDIA GPU",
        topology=seen.topology,
        isolation=isolation,
        isolation_reason=ENGINE_ANSWERS if settings.executor is ExecutorChoice.AUTO else CHOSEN,
        engine=None,
        work_directory=work_directory,
    )


def _problem(report: HostReport) -> str | None:
    """The first of what makes a host unusable. Images do not: they are built and sent before the first trial."""
    for check, finding in report.findings.items():
        if finding.level is Level.FAILURE and check is not Check.IMAGES:
            return finding.problem if check is Check.SSH else f"{check.value}: {finding.problem}"
    return None


@contextmanager
def _nameless() -> Iterator[None]:
    """Errors of connections without the name of the host: whoever reports them says which host it is."""
    try:
        yield
    except HostConnectionError as error:
        raise InfrastructureError(error.problem) from error


def _answer(function: Callable[..., Answer], output: CommandOutput, problem: str) -> Answer:
    answer = answer_of_program(function, output.stdout)
    if answer is None:
        raise InfrastructureError(f"{problem}: {output.last_line}")
    return answer
