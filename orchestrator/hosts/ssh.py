"""A host that is reached over SSH."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import PurePosixPath

from orchestrator.config.inventory import WORK_DIRECTORY, ExecutorChoice, Host
from orchestrator.environments import ENGINE_EXCEPTIONS, connect, engine_message
from orchestrator.errors import InfrastructureError
from orchestrator.execution import tar_of
from orchestrator.hosts.access import Answer, Argument, HostFacts
from orchestrator.hosts.calls import decode_answer, encode_call
from orchestrator.hosts.checking.container import Look, Seen, look
from orchestrator.hosts.checking.deadline import Deadline
from orchestrator.hosts.checking.engine import read_engine
from orchestrator.hosts.checking.probing import check_host, read_host, refusal, socket_problem
from orchestrator.hosts.checking.reading import HostReading
from orchestrator.hosts.checking.report import Check, HostReport, Level, Requirements
from orchestrator.hosts.connection import Connections, HostConnectionError
from orchestrator.hosts.engine import EngineAt, mark_name
from orchestrator.hosts.local import CHOSEN, ENGINE_ANSWERS, refuse_outside
from orchestrator.hosts.program import MARK, Program, call_program
from orchestrator.planning import Isolation
from orchestrator.planning.feasibility import GpuFacts

_ANSWER_S = 60.0
_PLACE_S = 600.0
_PROGRAM_AT = "/taxmeter/program.py"
_AGENT_LABEL = "org.taxmeter.agent-recipe-sha256"

# Unpacked beside their places, then moved there one by one.
_PLACE = r"""
set -e
mkdir -p "$1"
there=$(mktemp -d "$1/.placing-XXXXXX")
trap 'rm -rf "$there"' EXIT
tar -xf - -C "$there"
cd "$there"
find . -type d -exec mkdir -p "$1/{}" \;
find . -type f -exec mv -f "{}" "$1/{}" \;
"""


class SshHost:
    """A host over SSH; see `HostAccess`."""

    def __init__(self, name: str, settings: Host, connections: Connections, wanted: Requirements) -> None:
        """Reaches nothing yet.

        Args:
            name: of the host.
            settings: as the inventory has it.
            connections: that know it, and the hosts that it is reached through.
            wanted: what it is compared with, and the images that are recorded as built.
        """
        self.name = name
        self.settings = settings
        self._connections = connections
        self._wanted = wanted
        self._report: HostReport | None = None
        self._reading: HostReading | None = None

    def facts(self) -> HostFacts:
        """See `HostAccess.facts`. What its agent will tell of it is not known yet: there may be no Python."""
        if self._report is None:
            self._report = check_host(self.name, self.settings, self._connections, self._wanted)
            self._reading = self._report.reading
        problem = _problem(self._report)
        if problem is not None or self._report.reading is None:
            raise InfrastructureError(problem or "it told nothing about itself")
        return _facts(self.name, self.settings, self._report.reading)

    def call(self, function: Callable[[Argument], Answer], argument: Argument, timeout_s: float) -> Answer:
        """See `HostAccess.call`.

        It runs in the host's own Python if that is new enough and has what the function imports, else in a container
        of an image that does: without network or rights, and of the host's files it sees none.
        """
        deadline = Deadline(timeout_s)
        program = call_program(function, encode_call(function, argument))
        with _nameless():
            reading = self._read(deadline)
            ran = self._run_in_python(program, reading, deadline)
            why = f"python3 is {reading.python or 'missing'} there" if ran is None else _lacking(ran)
            if ran is None or why is not None:
                ran = self._run_in_container(program, reading, why or "", deadline)
        return decode_answer(function, _answer_of(function.__name__, ran))

    @contextmanager
    def engine(self) -> Iterator[EngineAt]:
        """See `HostAccess.engine`."""
        deadline = Deadline(_ANSWER_S)
        with _nameless(), self._forwarded(self._read(deadline), deadline) as address:
            yield EngineAt(address, self._marked)

    def place(self, files: Mapping[str, bytes], directory: PurePosixPath) -> None:
        """See `HostAccess.place`."""
        for name in files:
            refuse_outside(name)
        with _nameless():
            self._shell(_PLACE, [str(directory)], tar_of(files))

    def slots(self) -> int | None:
        """See `HostAccess.slots`."""
        return None

    def _read(self, deadline: Deadline) -> HostReading:
        if self._reading is None:
            self._reading = read_host(self.name, self.settings, self._connections, deadline)
        return self._reading

    def _run_in_python(self, program: Program, reading: HostReading, deadline: Deadline) -> Seen | None:
        """What a program said in the host's own Python; null if that is too old or missing."""
        if reading.python is None or _version(reading.python) < program.oldest_python:
            return None
        done = self._connections.run(self.name, ["python3", "-"], deadline.left_s(), stdin=program.text)
        return Seen(done.exit_code, done.stdout, done.stderr)

    def _run_in_container(self, program: Program, reading: HostReading, why: str, deadline: Deadline) -> Seen:
        with self._forwarded(reading, deadline, f"{why}, and no container can be started: ") as address:
            image = self._image_for(program, address, deadline)
            if image is None:
                needed = "the agents' image" if program.needs_packages else "one of our images"
                raise InfrastructureError(
                    f"{why}, and {needed} is not there to run the code in: install Python "
                    f"{'.'.join(map(str, program.oldest_python))} or newer there"
                    f"{' with requirements/base.lock' if program.needs_packages else ''}, or bring the image"
                )
            wanted = Look(image, ["python", "-I", _PROGRAM_AT], files={_PROGRAM_AT: program.text.encode()})
            with closing(connect(address, deadline.left_s())) as client:
                try:
                    return look(client, wanted, deadline)
                except ENGINE_EXCEPTIONS as error:
                    message = engine_message(error)
                    raise InfrastructureError(f"{why}, and no container can be started: {message}") from None

    def _image_for(self, program: Program, address: str, deadline: Deadline) -> str | None:
        """The id of an image of the host's engine in which a program runs; null if it has none."""
        if not program.needs_packages:
            present = read_engine(address, self._wanted.images, False, deadline).images
            return next((image.image_id for image in present.values()), None)
        with closing(connect(address, deadline.left_s())) as client:
            found = client.images.list(filters={"label": [_AGENT_LABEL]})
        newest = max(found, key=lambda image: str(image.attrs.get("Created")), default=None)
        return None if newest is None else str(newest.id)

    @contextmanager
    def _forwarded(self, reading: HostReading, deadline: Deadline, before: str = "") -> Iterator[str]:
        """The address of the host's engine on this machine. A problem begins with `before`."""
        problem = socket_problem(self.settings, reading, reading.socket)
        if problem is not None or reading.socket is None:
            raise InfrastructureError(f"{before}{problem}")
        with self._connections.forward_engine(self.name, deadline.left_s(), reading.socket.path) as forward:
            try:
                connect(forward.address, deadline.left_s()).close()
            except InfrastructureError as error:
                reason = refusal(reading.socket) if forward.is_refused() else str(error)
                raise InfrastructureError(f"{before}{reason}") from None
            yield forward.address

    @contextmanager
    def _marked(self, directory: str) -> Iterator[str]:
        """See `EngineAt.marked`."""
        mark = f"{directory}/{mark_name()}"
        self._shell('mkdir -p "$1" && touch "$2"', [directory, mark])
        try:
            yield mark
        finally:
            self._shell('rm -f "$1"', [mark])

    def _shell(self, script: str, arguments: list[str], stdin: bytes = b"") -> None:
        done = self._connections.run(self.name, ["sh", "-c", script, "sh", *arguments], _PLACE_S, stdin=stdin)
        if done.exit_code != 0:
            raise InfrastructureError(f"{arguments[0]} cannot be written: {_last_line(done.stderr, done.exit_code)}")


def _facts(name: str, settings: Host, reading: HostReading) -> HostFacts:
    gpus = tuple(GpuFacts(gpu.name, gpu.compute_capability, gpu.memory_bytes) for gpu in reading.gpus)
    isolation = Isolation.PROCESS if settings.executor is ExecutorChoice.PROCESS else Isolation.DOCKER
    return HostFacts(
        host=name,
        cores=reading.allowed or tuple(range(reading.threads or 1)),
        memory_bytes=reading.memory_bytes,
        architecture=reading.architecture,
        cpu_model=reading.cpu_model,
        gpus=gpus,
        gpu_driver_version=reading.driver_version,
        gpu_reason=None if gpus else reading.gpu_problem or "the host has no NVIDIA GPU",
        topology=reading.topology,
        isolation=isolation,
        isolation_reason=ENGINE_ANSWERS if settings.executor is ExecutorChoice.AUTO else CHOSEN,
        engine=None,
        work_directory=settings.work_directory or WORK_DIRECTORY,
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


def _version(python: str) -> tuple[int, ...]:
    return tuple(map(int, python.split(".")[:2]))


def _lacking(ran: Seen) -> str | None:
    """Which package an interpreter lacks, if that is why a program failed there."""
    last = _last_line(ran.stderr, ran.exit_code)
    return f"its python3 cannot run it ({last})" if "ModuleNotFoundError: No module named" in last else None


def _answer_of(function: str, ran: Seen) -> str:
    line = next((line for line in ran.stdout.splitlines() if line.startswith(MARK)), None)
    if line is None:
        raise InfrastructureError(f"{function} failed there: {_last_line(ran.stderr, ran.exit_code)}")
    return line.removeprefix(MARK)


def _last_line(errors: str, exit_code: int) -> str:
    return (errors.strip().splitlines() or [f"exit code {exit_code} without a message"])[-1]
