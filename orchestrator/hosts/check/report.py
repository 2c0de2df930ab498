"""The check of one host: looked at, asked, its clock compared, and judged. Nothing is changed there."""

import os
import re
import select
import time
from collections.abc import Callable
from dataclasses import replace

from orchestrator.config import ExecutorChoice, Host, HostState
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.access import HostAccess, Way
from orchestrator.hosts.check.engine import OLDEST_ENGINE, OLDEST_PODMAN, EngineFacts, Requirements
from orchestrator.hosts.check.findings import Check, Finding, HostReport, Level, Skew, judge
from orchestrator.hosts.check.preflight import EngineSocket, Preflight
from orchestrator.hosts.connection import Connections, Deadline, HostConnectionError, end

ENGINE_ROOTS = ("/var/lib/docker", "/var/lib/containers/storage")

_EXCHANGES = 5
_CLOCK = ["sh", "-c", "while read -r _; do date +taxmeter-clock:%s.%N; done"]
# a login shell may have printed something before
_TIME = re.compile(rb"taxmeter-clock:(.*)\n")
_SKIPPED = Finding(Level.NONE, "-")


def check_host(host: HostAccess, wanted: Requirements, timeout_s: float) -> HostReport:
    """Looks at a host and says what is wrong with it. Nothing is changed there.

    Args:
        host: how it is asked.
        wanted: what it is compared with.
        timeout_s: for all of it.
    """
    deadline, settings = Deadline(timeout_s), host.settings
    is_active = settings.state is HostState.ACTIVE
    directories = (*ENGINE_ROOTS, host.work_directory)
    try:
        seen = host.preflight(deadline, directories)
    except InfrastructureError as error:
        reached = Finding(Level.FAILURE, "no", str(error))
        return HostReport(host.name, is_active, dict.fromkeys(Check, _SKIPPED) | {Check.SSH: reached})
    engine, engine_finding = _engine(host, seen, wanted, deadline)
    if engine is not None and engine.root is not None and engine.root not in seen.free_bytes:
        seen = _with_disk_of(engine.root, host, seen, deadline)
    skew, clock_problem = None, None
    if host.way is not Way.HERE:
        try:
            skew = host.skew(deadline)
            clock_problem = "it has no `date +%s`, so its clock is unknown" if skew is None else None
        except InfrastructureError as error:
            clock_problem = f"its clock could not be read: {error}"
    reached = Finding(Level.NONE if host.way is Way.HERE else Level.OK, host.way.value)
    if seen.system != "Linux":
        reached = Finding(Level.FAILURE, seen.system, f"it runs {seen.system}, but trials need Linux")
    findings = {Check.SSH: reached, Check.ENGINE: engine_finding}
    # the files of this machine's own trials are the project's, wherever that is
    own_directory = host.work_directory if host.way is Way.SSH else None
    findings |= judge(settings, seen, engine, skew, wanted, host.work_directory, own_directory)
    if clock_problem is not None:
        findings[Check.CLOCK] = Finding(Level.WARNING, "?", clock_problem)
    return HostReport(host.name, is_active, findings, seen, engine, skew)


def _engine(
    host: HostAccess, seen: Preflight, wanted: Requirements, deadline: Deadline
) -> tuple[EngineFacts | None, Finding]:
    """Hosts that get agents need an engine; on others trials can do without, unless the inventory says otherwise."""
    executor, has_agent = host.settings.executor, host.way is Way.SSH
    if host.settings.python is not None or (not has_agent and executor is ExecutorChoice.PROCESS):
        return None, Finding(Level.NONE, "not used")
    try:
        found = host.engine_facts(seen, wanted.images, bool(seen.gpus), deadline)
    except InfrastructureError as error:
        if has_agent:
            return None, Finding(Level.FAILURE, "no", str(error))
        if executor is ExecutorChoice.DOCKER:
            return None, Finding(Level.FAILURE, "no", f"{error}; or write `executor: auto`")
        return None, Finding(Level.WARNING, "no", f"{error}; until then trials run in virtual environments")
    return found, version_finding(found, has_agent)


def version_finding(engine: EngineFacts, has_agent: bool) -> Finding:
    """Whether an engine that answers is new enough, and can carry an agent where the host gets one."""
    shown = f"{'podman ' if engine.is_podman else ''}{engine.version.partition('+')[0]}"
    if not engine.is_too_old:
        problem = engine.network_problem if has_agent else None
        return Finding(Level.OK, shown) if problem is None else Finding(Level.FAILURE, shown, problem)
    oldest = ".".join(map(str, OLDEST_PODMAN if engine.is_podman else OLDEST_ENGINE))
    return Finding(Level.FAILURE, shown, f"the engine's version {engine.version} is too old: install {oldest} or newer")


def socket_problem(settings: Host, seen: Preflight) -> str | None:
    """Why the engine of a host cannot be used, as far as its socket tells; None if it may answer."""
    is_podman, socket = settings.engine == "podman", seen.socket
    if socket is None:
        places = " or ".join(socket.path for socket in seen.sockets)
        start = "`systemctl enable --now podman.socket`" if is_podman else "`sudo systemctl enable --now docker`"
        engine = settings.engine or "docker"
        return f"no engine: there is no socket {places}. Install {engine} there, or start it: {start}"
    if socket.state == "denied":
        mend = (
            "name its own socket as `engine: unix:///path`" if is_podman else f"`sudo usermod -aG docker {seen.user}`"
        )
        return f"permission denied: {seen.user} may not use {socket.path}: {mend} there, then log in anew"
    return None


def refusal(socket: EngineSocket) -> str:
    """Why nobody answered behind a socket that is there and that we may use."""
    if socket.state == "silent":
        return f"the engine is down: nobody answers behind {socket.path}; `sudo systemctl start docker` there"
    return (
        f"its sshd does not forward to {socket.path}: allow it there with `AllowStreamLocalForwarding yes` in "
        "/etc/ssh/sshd_config, and no DisableForwarding"
    )


def _with_disk_of(root: str, host: HostAccess, seen: Preflight, deadline: Deadline) -> Preflight:
    """What was seen, with the free space of a directory that was not known before."""
    try:
        again = host.preflight(deadline, (*ENGINE_ROOTS, host.work_directory, root))
    except InfrastructureError:
        # it was reached a moment ago; that nothing is known about this disk stands in the table
        return seen
    return replace(seen, free_bytes=again.free_bytes)


def measure_skew_of(ask: Callable[[], str]) -> Skew | None:
    """The skew as the quickest of some questions tells it; null if none tells it.

    Args:
        ask: a host for its time, in seconds since 1970.
    """
    found = []
    for _ in range(_EXCHANGES):
        asked = time.time()
        answer = ask()
        found.append(skew_of(asked, answer, time.time()))
    return min((skew for skew in found if skew is not None), key=lambda skew: skew.uncertainty_s, default=None)


def skew_of(asked: float, answered: str, received: float) -> Skew | None:
    """What one question tells; all in seconds since 1970, by this machine's clock but for the answer.

    Wherever in between the host looked at its clock, the middle is wrong by at most half of the time.
    """
    match = re.match(r"(\d+)(\.\d+)?", answered)
    if match is None:
        return None
    # a date without fractions: any moment of that second
    said, resolution = (float(match[0]), 0.0) if match[2] is not None else (float(match[0]) + 0.5, 0.5)
    return Skew(said - (asked + received) / 2, (received - asked) / 2 + resolution)


def measure_skew(connections: Connections, name: str, timeout_s: float) -> Skew | None:
    """Asks a host over one connection of SSH; null if it does not tell.

    Raises:
        HostConnectionError: the connection ended, or the time was up.
    """
    deadline = time.monotonic() + timeout_s
    process, said = connections.start(name, _CLOCK), b""

    def ask() -> str:
        nonlocal said
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        while (time_there := _TIME.search(said)) is None:
            readable, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise HostConnectionError(name, f"no answer about its time within {timeout_s:g} s")
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                return ""
            said += piece
        said = said[time_there.end() :]
        return time_there[1].decode("ascii", "replace")

    try:
        return measure_skew_of(ask)
    except BrokenPipeError:
        raise HostConnectionError(name, "the connection ended while it was asked for its time") from None
    finally:
        end(process)


def clock_here(_: None) -> str:
    """The time of this machine, as an answer."""
    return f"{time.time():.6f}"
