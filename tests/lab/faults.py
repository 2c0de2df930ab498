"""What can be done to a cluster, its hosts and its driver, and what mends it again: a fault returns its cure, if it needs one.

Lab hosts share the clock of this machine's kernel, so it is set back in the driver alone: what Python imports first in its
container makes `time.time` and `time.time_ns`, not `datetime.now`, differ by what a file tells.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docker import DockerClient
from docker.errors import APIError

from orchestrator.errors import InfrastructureError
from orchestrator.execution.docker import LABEL
from orchestrator.hosts.cluster.commands import run_in
from orchestrator.hosts.cluster.lifecycle import load
from orchestrator.store.storage.layout import SEGMENT, Layout
from tests.lab.host import LabHost
from tests.lab.workshop import Workshop

Cure = Callable[[], None]

SIGNAL_WORKER = """
for process in /proc/[0-9]*; do
  case $(tr '\\0' ' ' <$process/cmdline) in
    ray::IDLE*) ;;
    ray::*) kill -s $1 ${process#/proc/} && echo signalled ;;
  esac
done 2>/dev/null
"""
RUNNERS = """
for process in /proc/[0-9]*; do
  read -r name <$process/comm
  case $name in
    python*) case $(tr '\\0' ' ' <$process/cmdline) in
      *' -m runners '*) echo ${process#/proc/} $(grep PPid: $process/status) ;;
    esac ;;
  esac
done 2>/dev/null
true
"""
"""Prints a process and its parent for each process of a runner on the host."""

INSTALL = """
import pathlib, sys, sysconfig
place = pathlib.Path(sysconfig.get_path("purelib"))
(place / "set_clock.py").write_text(sys.argv[1])
(place / "set_clock.pth").write_text("import set_clock")
"""
CLOCK = """
import pathlib, time
now_ns = time.time_ns

def set_ns():
    try:
        return now_ns() + 10**9 * int(pathlib.Path({added!r}).read_text() or 0)
    except FileNotFoundError:
        return now_ns()

time.time_ns, time.time = set_ns, lambda: set_ns() / 1e9
"""


class MissedError(Exception):
    """There is nothing that the fault could hit."""


@dataclass(frozen=True)
class Target:
    """What a fault may strike."""

    workshop: Workshop
    host: LabHost
    chance: random.Random
    command: int
    """The process of the command that runs the sweep."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    strike: Callable[[Target], Cure | None]
    longest_s: float = 0.0
    """Until its cure comes."""
    of_a_host: bool = True
    """Else it is one of the driver or its machine."""
    weight: float = 3.0
    """How often it comes: what ends a run costs it half a minute in which nothing is measured."""


def signal_worker(workshop: Workshop, host: LabHost, name: str) -> bool:
    """Signals the process of Ray that runs the task on the host; false where there is none any more."""
    with host.engine() as engine:
        agent = engine.containers.get(workshop.cluster().agent_container)
        return "signalled" in run_in(agent, ["sh", "-c", SIGNAL_WORKER, "sh", name]).stdout


def kill_agent(workshop: Workshop, host: LabHost) -> None:
    with host.engine() as engine:
        engine.containers.get(workshop.cluster().agent_container).kill()


def runners_on(host: LabHost) -> Mapping[int, int]:
    """The processes of runners, supervisors and trials, with their parents."""
    lines = (line.split() for line in host.sh(RUNNERS).splitlines())
    return {int(process): int(parent) for process, _, parent in lines}


def _trial(target: Target) -> None:
    found = runners_on(target.host)
    _kill_there(target, [process for process, parent in found.items() if parent in found])


def _supervisor(target: Target) -> None:
    found = runners_on(target.host)
    _kill_there(target, [process for process, parent in found.items() if parent not in found])


def _kill_there(target: Target, processes: list[int]) -> None:
    if not processes:
        raise MissedError
    target.host.sh(f"kill -KILL {target.chance.choice(processes)} || true")


def _container(target: Target) -> None:
    with target.host.engine() as engine:
        found = engine.containers.list(filters={"label": LABEL}, ignore_removed=True)
        if not found:
            raise MissedError
        found[0].kill()


def _worker(target: Target) -> None:
    if not signal_worker(target.workshop, target.host, "KILL"):
        raise MissedError


def _worker_frozen(target: Target) -> Cure:
    if not signal_worker(target.workshop, target.host, "STOP"):
        raise MissedError
    return lambda: _ignored(lambda: signal_worker(target.workshop, target.host, "CONT"))


def _raylet(target: Target) -> None:
    with target.host.engine() as engine:
        agent = engine.containers.get(target.workshop.cluster().agent_container)
        if run_in(agent, ["sh", "-c", "kill -KILL $(pidof raylet)"]).exit_code:
            raise MissedError


def _driver(target: Target) -> int:
    try:
        return target.workshop.driver_process()
    except ValueError:
        raise MissedError from None


def _driver_killed(target: Target) -> None:
    os.kill(_driver(target), signal.SIGKILL)


def _driver_frozen(target: Target) -> Cure:
    process = _driver(target)
    os.kill(process, signal.SIGSTOP)

    def thaw() -> None:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)

    return thaw


def _then(act: Callable[[], object], cure: Cure) -> Cure:
    act()
    return cure


def _disk(target: Target) -> Cure:
    """The ballast takes all room of the results; it is removed again."""
    ballast = target.workshop.results / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(2**20)):
            continue
    return ballast.unlink


def _clock(target: Target) -> Cure:
    added = clock_of(target.workshop)
    added.write_text(str(-target.chance.randint(10, 6 * 3600)))
    return added.unlink


def _journal(target: Target) -> None:
    """A driver dies in the middle of a write: what it had not acknowledged yet is there in part.

    What was acknowledged is on the disk: no crash takes that away, so nothing of it is cut.
    """
    segments = list(Layout(target.workshop.results).journal.glob(f"*{SEGMENT}"))
    if not segments:
        raise MissedError
    _driver_killed(target)
    time.sleep(0.5)
    data = segments[0].read_bytes()
    whole = data[-target.chance.randint(9, max(10, len(data) // 2)) :]
    with segments[0].open("ab") as segment:
        segment.write(whole[: target.chance.randint(1, len(whole) - 1)])


FAULTS: Final[Mapping[str, Fault]] = {
    "trial killed": Fault(_trial),
    "supervisor killed": Fault(_supervisor),
    "container killed": Fault(_container),
    "agent killed": Fault(lambda target: kill_agent(target.workshop, target.host)),
    "worker killed": Fault(_worker),
    "worker frozen": Fault(_worker_frozen, 20),
    "raylet killed": Fault(_raylet),
    "engine killed": Fault(lambda target: target.host.kill_engine()),
    "host switched off": Fault(lambda target: _then(target.host.kill, target.host.start), 10),
    "host frozen": Fault(lambda target: _then(target.host.pause, target.host.unpause), 40),
    "network cut": Fault(lambda target: _then(target.host.disconnect, target.host.connect), 40),
    "driver killed": Fault(_driver_killed, of_a_host=False, weight=1),
    "driver frozen": Fault(_driver_frozen, 20, of_a_host=False),
    "command killed": Fault(lambda target: os.kill(target.command, signal.SIGKILL), of_a_host=False, weight=1),
    "head killed": Fault(lambda target: target.workshop.remove_head(), of_a_host=False, weight=1),
    "disk full": Fault(_disk, 20, of_a_host=False),
    "clock set back": Fault(_clock, 20, of_a_host=False),
    "journal torn": Fault(_journal, of_a_host=False, weight=1),
}


def clock_of(workshop: Workshop) -> Path:
    """The file with the seconds that the clock of drivers goes fast."""
    return workshop.files.root / "clock"


def give_clock(workshop: Workshop, client: DockerClient, known: set[str]) -> None:
    """Lets the clock of the drivers be set that will run in the head, if it is a new one.

    Args:
        workshop: whose cluster.
        client: of this machine's engine.
        known: ids of the containers of heads that have such a clock.
    """
    cluster = load(workshop.files)
    if cluster is None:
        return
    with suppress(APIError):  # it has just ended
        head = client.containers.get(cluster.head_container)
        program = ["python", "-c", INSTALL, CLOCK.format(added=str(clock_of(workshop)))]
        if head.id not in known and not run_in(head, program).exit_code:
            known.add(str(head.id))


def _ignored(action: Callable[[], object]) -> None:
    """What was to be mended may be gone by now."""
    with suppress(InfrastructureError):
        action()
