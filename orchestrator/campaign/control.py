"""A running campaign as other processes see and steer it, through files in the project.

The driver holds the project's campaign and says how it goes; others read that, ask it to stop or to drain, and offer
hosts. Nothing of this is needed to go on with a campaign: that is in the store.

    control = ControlFiles(files.control)
    with control.driving():                    # the driver, around all of the campaign
        control.publish(state)                 # on changes, and as a sign of life
        for request in control.take_requests(): ...
        for host in control.take_offers(): ...

    control.state(), control.is_alive()        # anybody else, in this machine or in the head's container
    control.request(Request(RequestKind.DRAIN, ("h2",)))

Each file is written whole and then named, so that nobody sees a half, and only its owner can write or read it.
"""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

from orchestrator.boundary import adapter_of, validated
from orchestrator.campaign.provision import ReadyHost
from orchestrator.errors import ForeignDataError, NoUsableHostError
from orchestrator.files import ProjectFiles, held_at_once, is_locked, read_private, write_private
from orchestrator.hosts import Hosts, SweepUnderWayError


class HostPhase(Enum):
    """How a host of a running campaign is."""

    READY = "ready"
    """It takes tasks, and has none now."""
    RUNNING = "running"
    LOST = "lost"
    """It does not answer; its tasks wait for it."""
    DRAINED = "drained"
    """It takes no new tasks, because somebody asked for that; what runs there ends by itself."""
    GIVEN_UP = "given-up"
    """It was lost for too long, or failed too often: what is left there is not measured by this run."""
    DONE = "done"
    """Nothing is left for it."""


_WORKING: Final = (HostPhase.READY, HostPhase.RUNNING)
_TRIALS_BEFORE_TRUST: Final = 5
"""After so many, their pace says something."""


class CampaignPhase(Enum):
    """How a campaign is."""

    RUNNING = "running"
    DRAINING = "draining"
    """No host takes new tasks; what runs ends by itself."""
    STOPPING = "stopping"
    """What runs is being ended."""
    ENDED = "ended"
    """The driver has said its last word: finished, drained, or stopped."""


@dataclass(frozen=True)
class HostProgress:
    """One host of a running campaign."""

    name: str
    phase: HostPhase
    since_ns: int
    """When the phase began, in nanoseconds since 1970."""
    reason: str | None = None
    """Why it is in this phase, where that is not plain: of lost, drained and given-up."""
    task_id: str | None = None
    trial: str | None = None
    """What runs there now, in a few words: workload, backend, batch, round."""
    done: int = 0
    """Trials of this host with a final row, those that were in the store before included."""
    left: int = 0
    """Trials of this host without one."""
    failed: int = 0
    """Of those done by this run: whose status says that something went wrong."""


@dataclass(frozen=True)
class CampaignProgressState:
    """A running campaign, as its driver last saw it."""

    campaign_id: str
    sweep: str
    started_at_ns: int
    """When this run of it began, in nanoseconds since 1970."""
    beat_at_ns: int
    """When this was written."""
    phase: CampaignPhase
    hosts: tuple[HostProgress, ...]
    done: int
    """Trials with a final row, those that were in the store before this run included."""
    left: int
    """Trials without one."""
    failed: int
    """Of those done by this run: whose status says that something went wrong."""
    pid: int
    """Of the driver, in its own container if it has one: to tell runs apart, no proof of life."""
    place: str
    """`this machine`, or the container of the cluster's head."""
    results: str
    """The store's directory, absolute."""
    already_done: int = 0
    """Of `done`, those that were in the store before this run."""
    estimate_s: float | None = None
    """What the plan expected for what was left as this run began, in seconds; null if unknown."""

    def left_s(self, now_ns: int) -> float | None:
        """Seconds until the last host that works is done, by the pace of each so far; null if nothing can be said."""
        elapsed_s = max(0.0, (now_ns - self.started_at_ns) / 1e9)
        working = [host for host in self.hosts if host.phase in _WORKING and host.left]
        paces = [(host.left, host.done) for host in working]
        if self.already_done and working:
            # It is not told which host did what before this run: all have one pace.
            paces = [(sum(host.left for host in working), self.done - self.already_done)]
        guesses = [left_s(left, done, elapsed_s, self.estimate_s) for left, done in paces]
        known = [guess for guess in guesses if guess is not None]
        return max(known, default=None) if len(known) == len(guesses) else None


def left_s(left: int, done: int, elapsed_s: float, estimate_s: float | None) -> float | None:
    """Seconds until a host is done; null if nothing can be said.

    The first trials compile what later rounds find: their pace says little of the rest, which the plan knows better.
    So the pace counts by the share that is done, and what the plan expected by the share that is left.
    """
    expected_s = None if estimate_s is None else max(0.0, estimate_s - elapsed_s)
    if done < _TRIALS_BEFORE_TRUST:
        return expected_s
    paced_s = left * elapsed_s / done
    return paced_s if expected_s is None else (left * expected_s + done * paced_s) / (left + done)


class RequestKind(Enum):
    """What a driver can be asked."""

    STOP = "stop"
    """As Ctrl-C there: what runs is ended, what is recorded stays."""
    DRAIN = "drain"
    """No new tasks for some hosts, or for all."""


@dataclass(frozen=True)
class Request:
    """What somebody asks of the driver."""

    kind: RequestKind
    hosts: tuple[str, ...] = ()
    """The hosts that are meant, by name; none means all. Of a stop always none."""


_REFUSED: Final = ".refused"

Value = TypeVar("Value")


@dataclass(frozen=True)
class ControlFiles:
    """The directory of a project in which its one running campaign is seen and steered."""

    directory: Path

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Makes this process the driver: `is_alive` is true until it leaves, however it ends.

        What was asked of an earlier driver and what was said by it are forgotten.

        Raises:
            NoUsableHostError: another campaign of this project is driven.
        """
        for directory in (self.directory, self._requests, self._offers):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not held_at_once(descriptor):
                running = self.state()
                name = "another campaign" if running is None else f"campaign {running.campaign_id}"
                raise NoUsableHostError(f"{name} of this project is running; `taxmeter sweep status` shows it")
            for old in (*self._requests.iterdir(), *self._offers.iterdir()):
                old.unlink(missing_ok=True)
            self._state.unlink(missing_ok=True)
            yield
        finally:
            os.close(descriptor)

    def publish(self, state: CampaignProgressState) -> None:
        """Says how the campaign is, in place of what was said before. Its driver alone does."""
        write_private(self._state, adapter_of(CampaignProgressState).dump_json(state))

    def state(self) -> CampaignProgressState | None:
        """What a driver said last, whether it lives or not; null if none ever did, or one of another version."""
        try:
            return validated(CampaignProgressState, read_private(self._state), str(self._state))
        except (FileNotFoundError, ForeignDataError):
            return None

    def is_alive(self) -> bool:
        """Whether a driver runs: the kernel knows, across containers and however a driver ends."""
        return is_locked(self._lock)

    def request(self, request: Request) -> None:
        """Asks the driver that runs. Whether one does is for the caller to know; one that comes later is not asked."""
        self._drop(self._requests, adapter_of(Request).dump_json(request))

    def take_requests(self) -> list[Request]:
        """What was asked since, oldest first, each once.

        A file that is no request is kept beside, as `*.refused`: a stray one must not end a campaign.
        """
        return self._take(self._requests, Request)

    def offer(self, host: ReadyHost) -> None:
        """Offers the driver a host that is ready and part of its cluster, in place of one that is lost."""
        self._drop(self._offers, adapter_of(ReadyHost).dump_json(host))

    def take_offers(self) -> list[ReadyHost]:
        """The hosts offered since, oldest first, each once. What somebody else may have written is kept beside."""
        return self._take(self._offers, ReadyHost)

    def refused(self) -> list[Path]:
        """Files that were there to be taken and could not be."""
        return [path for where in (self._requests, self._offers) for path in sorted(where.glob(f"*{_REFUSED}"))]

    @property
    def _state(self) -> Path:
        return self.directory / "state.json"

    @property
    def _lock(self) -> Path:
        return self.directory / "driver.lock"

    @property
    def _requests(self) -> Path:
        return self.directory / "requests"

    @property
    def _offers(self) -> Path:
        return self.directory / "offers"

    def _take(self, directory: Path, kind: type[Value]) -> list[Value]:
        taken = []
        for path in self._waiting(directory):
            try:
                taken.append(validated(kind, read_private(path), str(path)))
                path.unlink()
            except ForeignDataError:
                path.rename(path.with_name(path.name + _REFUSED))
        return taken

    def _waiting(self, directory: Path) -> list[Path]:
        """By age: their names begin with the time. Those that are not whole yet begin with a dot."""
        # Not `glob`: it leaves a directory open where an interrupt comes at the wrong moment.
        found = (path for path in directory.iterdir() if path.name[0].isdigit() and path.suffix == ".json")
        return sorted(found)

    def _drop(self, directory: Path, data: bytes) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # in the order in which they were dropped, also if the clock is set back meanwhile
        last = max((int(path.name.partition("-")[0]) for path in self._waiting(directory)), default=0)
        write_private(directory / f"{max(last + 1, time.time_ns()):020}-{secrets.token_hex(4)}.json", data)


@contextmanager
def undisturbed(hosts: Hosts) -> Iterator[None]:
    """Keeps other sweeps off the project, and off this machine if it is measured.

    Raises:
        NoUsableHostError: another sweep runs; says which campaign, and how long it takes.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(hosts.undisturbed())
        except SweepUnderWayError as error:
            campaign = "" if error.holder is None else _campaign_text(Path(error.holder.project), time.time_ns())
            raise NoUsableHostError(f"{error}{campaign}; wait for it") from None
        yield


def _campaign_text(project: Path, now_ns: int) -> str:
    """The campaign of a project that runs, with its time left; empty if it is not to be known."""
    control = ControlFiles(ProjectFiles(project).control)
    try:
        # the path is what some user says
        is_ours = control.directory.stat().st_uid == os.geteuid()
        state = control.state() if is_ours and control.is_alive() else None
    except OSError:
        return ""
    if state is None or state.phase is CampaignPhase.ENDED:
        return ""
    left_s = state.left_s(now_ns)
    return f", campaign {state.campaign_id}" + (
        "" if left_s is None else f", about {max(1, round(left_s / 60))} min left"
    )
