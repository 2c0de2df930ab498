"""Looks at hosts: each within its time, all at once."""

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from orchestrator.config import WORK_DIRECTORY, Connection, ExecutorChoice, Host, HostState
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.checking.clock import Skew, measure_skew
from orchestrator.hosts.checking.deadline import Deadline
from orchestrator.hosts.checking.engine import OLDEST_ENGINE, OLDEST_PODMAN, EngineReading, read_engine
from orchestrator.hosts.checking.judging import judge
from orchestrator.hosts.checking.reading import EngineSocket, HostReading, parse
from orchestrator.hosts.checking.report import Check, Finding, HostReport, Level, Requirements
from orchestrator.hosts.checking.script import SCRIPT, arguments
from orchestrator.hosts.connection import Connections, HostConnectionError, for_each

PROBE_TIMEOUT_S = 60.0

_ENGINE_ROOTS = ("/var/lib/docker", "/var/lib/containers/storage")
_SKIPPED = Finding(Level.NONE, "-")


def check_hosts(
    hosts: Mapping[str, Host], connections: Connections, wanted: Requirements, timeout_s: float = PROBE_TIMEOUT_S
) -> list[HostReport]:
    """Looks at every host, several at a time, and says what is wrong with each. Nothing is changed anywhere.

    Args:
        hosts: by name.
        connections: that know them and their jumps.
        wanted: what they are compared with.
        timeout_s: for each host.
    """
    return for_each(hosts, lambda name: check_host(name, hosts[name], connections, wanted, timeout_s), connections)


def check_host(
    name: str, host: Host, connections: Connections, wanted: Requirements, timeout_s: float = PROBE_TIMEOUT_S
) -> HostReport:
    """Looks at one host; see `check_hosts`."""
    deadline = Deadline(timeout_s)
    is_active = host.state is HostState.ACTIVE
    work = work_directory(host)
    try:
        reading = read_host(name, host, connections, deadline)
    except InfrastructureError as error:
        problem = error.problem if isinstance(error, HostConnectionError) else str(error)
        reached = Finding(Level.FAILURE, "no", problem)
        return HostReport(name, is_active, dict.fromkeys(Check, _SKIPPED) | {Check.SSH: reached})
    engine, engine_finding = _engine(name, host, connections, reading, wanted, deadline)
    if engine is not None and engine.root is not None and engine.root not in reading.free_bytes:
        reading = _with_disk_of(engine.root, name, host, connections, reading, deadline)
    skew, skew_finding = _skew(name, host, connections, deadline)
    findings = {Check.SSH: _reached(host, reading), Check.ENGINE: engine_finding}
    findings |= judge(host, reading, engine, skew, wanted, work)
    if skew_finding is not None:
        findings[Check.CLOCK] = skew_finding
    return HostReport(name, is_active, findings, reading, engine, skew)


def work_directory(host: Host) -> str:
    """Where a host keeps our files."""
    here = host.connection is Connection.LOCAL
    return host.work_directory or (str(Path.cwd()) if here else WORK_DIRECTORY)


def read_host(
    name: str, host: Host, connections: Connections, deadline: Deadline, directories: tuple[str, ...] = ()
) -> HostReading:
    """What the script sees on a host.

    Raises:
        HostConnectionError: it was not reached.
        InfrastructureError: its shell is none.
    """
    wanted = dict.fromkeys([*_ENGINE_ROOTS, work_directory(host), *directories])
    argv = arguments(host.engine, list(wanted))
    if host.connection is Connection.SSH:
        return parse(connections.run(name, argv, deadline.left_s(), stdin=SCRIPT).stdout)
    try:
        done = subprocess.run(
            argv, input=SCRIPT, text=True, capture_output=True, timeout=deadline.left_s(), errors="replace", check=False
        )
    except subprocess.TimeoutExpired:
        raise InfrastructureError(f"this machine told nothing about itself within {deadline.limit_s:g} s") from None
    return parse(done.stdout)


def _reached(host: Host, reading: HostReading) -> Finding:
    if reading.system != "Linux":
        return Finding(Level.FAILURE, reading.system, f"it runs {reading.system}, but trials need Linux")
    return Finding(Level.NONE, "here") if host.connection is Connection.LOCAL else Finding(Level.OK, "ok")


def _engine(
    name: str,
    host: Host,
    connections: Connections,
    reading: HostReading,
    wanted: Requirements,
    deadline: Deadline,
) -> tuple[EngineReading | None, Finding]:
    if host.connection is Connection.LOCAL:
        return _local_engine(host, reading, wanted, deadline)
    socket = reading.socket
    problem = socket_problem(host, reading, socket)
    if problem is not None or socket is None:
        return None, Finding(Level.FAILURE, "no", problem)
    try:
        with connections.forward_engine(name, deadline.left_s(), socket.path) as forward:
            try:
                found = read_engine(forward.address, wanted.images, bool(reading.gpus), deadline)
            except InfrastructureError as error:
                problem = refusal(socket) if forward.is_refused() else f"the engine failed: {error}"
                return None, Finding(Level.FAILURE, "no", problem)
    except HostConnectionError as error:
        return None, Finding(Level.FAILURE, "no", error.problem)
    return found, version_finding(found, host)


def _local_engine(
    host: Host, reading: HostReading, wanted: Requirements, deadline: Deadline
) -> tuple[EngineReading | None, Finding]:
    if host.executor is ExecutorChoice.PROCESS:
        return None, Finding(Level.NONE, "not used")
    try:
        found = read_engine(host.engine, wanted.images, bool(reading.gpus), deadline)
    except InfrastructureError as error:
        if host.executor is ExecutorChoice.DOCKER:
            return None, Finding(Level.FAILURE, "no", f"{error}; or write `executor: auto`")
        return None, Finding(Level.WARNING, "no", f"{error}; until then trials run in virtual environments")
    return found, version_finding(found, host)


def socket_problem(host: Host, reading: HostReading, socket: EngineSocket | None) -> str | None:
    """Why the engine of a host cannot be used, as far as its socket tells; None if it may answer."""
    is_podman = host.engine == "podman"
    if socket is None:
        places = " or ".join(one.path for one in reading.sockets)
        start = "`systemctl enable --now podman.socket`" if is_podman else "`sudo systemctl enable --now docker`"
        return f"no engine: there is no socket {places}. Install {host.engine or 'docker'} there, or start it: {start}"
    if socket.state == "denied":
        mend = (
            "name its own socket as `engine: unix:///path`"
            if is_podman
            else f"`sudo usermod -aG docker {reading.user}`"
        )
        return f"permission denied: {reading.user} may not use {socket.path}: {mend} there, then log in anew"
    return None


def refusal(socket: EngineSocket) -> str:
    """Why nobody answered behind a socket that is there and that we may use."""
    if socket.state == "silent":
        return f"the engine is down: nobody answers behind {socket.path}; `sudo systemctl start docker` there"
    return (
        f"its sshd does not forward to {socket.path}: allow it there with `AllowStreamLocalForwarding yes` in "
        "/etc/ssh/sshd_config, and no DisableForwarding"
    )


def version_finding(engine: EngineReading, host: Host) -> Finding:
    """Whether an engine that answers is new enough, and can carry an agent where the host needs one."""
    shown = f"{'podman ' if engine.is_podman else ''}{engine.version.partition('+')[0]}"
    if not engine.is_too_old:
        problem = engine.network_problem if host.connection is Connection.SSH else None
        return Finding(Level.OK, shown) if problem is None else Finding(Level.FAILURE, shown, problem)
    oldest = ".".join(map(str, OLDEST_PODMAN if engine.is_podman else OLDEST_ENGINE))
    return Finding(Level.FAILURE, shown, f"the engine's version {engine.version} is too old: install {oldest} or newer")


def _with_disk_of(
    root: str, name: str, host: Host, connections: Connections, reading: HostReading, deadline: Deadline
) -> HostReading:
    """The reading with the free space of a directory that was not known before."""
    try:
        again = read_host(name, host, connections, deadline, (root,))
    except InfrastructureError:
        # it was reached a moment ago; that nothing is known about this disk stands in the table
        return reading
    return replace(reading, free_bytes=again.free_bytes)


def _skew(name: str, host: Host, connections: Connections, deadline: Deadline) -> tuple[Skew | None, Finding | None]:
    if host.connection is Connection.LOCAL:
        return None, None
    try:
        skew = measure_skew(connections, name, deadline.left_s())
    except HostConnectionError as error:
        return None, Finding(Level.WARNING, "?", f"its clock could not be read: {error.problem}")
    return skew, None if skew is not None else Finding(
        Level.WARNING, "?", "it has no `date +%s`, so its clock is unknown"
    )
