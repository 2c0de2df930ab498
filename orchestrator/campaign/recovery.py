"""Recovery of a campaign's hosts from outside of its driver: brings lost ones back, or offers others for them."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from orchestrator.campaign.control import ControlFiles, HostPhase
from orchestrator.campaign.provision import Images, provision
from orchestrator.campaign.resume import CampaignRequest
from orchestrator.config import Host, Inventory
from orchestrator.errors import InfrastructureError, NoUsableHostError, Say
from orchestrator.files import ProjectFiles
from orchestrator.hosts import Hosts
from orchestrator.hosts.pins import KnownEnvironments, planning_host
from orchestrator.planning import PlanningHost, needed_environments, plan

LOOK_S: Final = 1.0
"""Between two looks at what the driver says."""

PAUSE_S: Final = 10.0
"""Between two attempts to bring a host back."""

SUBSTITUTE_S: Final = 30.0
"""That a host must be lost before another one is prepared in its place: most come back sooner."""

_LEAVING_S: Final = 15.0


@dataclass(frozen=True)
class Spares:
    """What stands by."""

    hosts: Mapping[str, PlanningHost]
    """Hosts that could be used and that the campaign does without, with the environments as they would have them."""
    settings: Mapping[str, Host]
    """What the inventory says of all hosts."""
    inventory: Inventory
    images: Images
    known: KnownEnvironments


@contextmanager
def recovering(order: CampaignRequest, hosts: Hosts, spares: Spares, files: ProjectFiles, say: Say) -> Iterator[None]:
    """Brings lost hosts back while the block lasts, in threads that hold up nothing.

    Args:
        order: of the campaign.
        hosts: how they are reached.
        spares: what can take the place of a host that stays lost.
        files: in which the driver says how its hosts are.
        say: told, in a line each, what is done and why it fails; by any thread.
    """
    recovery = _Recovery(order, hosts, spares, ControlFiles(files.control), say)
    recovery.in_thread("recovery", recovery.watch)
    try:
        yield
    finally:
        recovery.leave()


@dataclass
class _Recovery:
    order: CampaignRequest
    hosts: Hosts
    spares: Spares
    control: ControlFiles
    say: Say
    lost: set[str] = field(default_factory=set)
    """Hosts that do not answer now, as the driver says."""
    used: set[str] = field(default_factory=set)
    """Spare hosts that were tried."""
    left: threading.Event = field(default_factory=threading.Event)
    threads: dict[str, threading.Thread] = field(default_factory=dict)
    """One that watches, and one for each host that is or was lost."""

    def leave(self) -> None:
        """Returns when nothing is done any more; what is being tried is given up."""
        self.left.set()
        deadline = time.monotonic() + _LEAVING_S
        # a list at once: the watching thread goes on meanwhile
        while (busy := [t for t in list(self.threads.values()) if t.is_alive()]) and time.monotonic() < deadline:
            # again and again: one that is just between two connections would make a new one
            self.hosts.abort()
            busy[0].join(0.2)

    def in_thread(self, name: str, do: Callable[[], None]) -> None:
        thread = self.threads[name] = threading.Thread(target=do, name=name, daemon=True)
        thread.start()

    def watch(self) -> None:
        while not self.left.wait(LOOK_S):
            state = self.control.state() if self.control.is_alive() else None
            lost = {host.name for host in state.hosts if host.phase is HostPhase.LOST} if state is not None else set()
            self.lost = lost & self.spares.settings.keys()
            for host in sorted(self.lost):
                thread = self.threads.get(f"recover-{host}")
                if thread is None or not thread.is_alive():
                    self.in_thread(f"recover-{host}", partial(self._recover, host))

    def _recover(self, name: str) -> None:
        """Tries again and again, as long as the host is lost."""
        since_s, said, substitute = time.monotonic(), "", None
        while name in self.lost and not self.left.is_set():
            problem = self._attempt(lambda: self._bring_back(name))
            if problem is None:
                text = f"{name}: its agent runs"
            else:
                text = f"{name} is lost: {problem}; it is tried again every {PAUSE_S:g} s"
            if text != said and not self.left.is_set():
                said = text
                self.say(text)
            if problem is not None and time.monotonic() - since_s >= SUBSTITUTE_S and substitute is None:
                substitute = self._substitute(name)
            self.left.wait(PAUSE_S)

    def _attempt(self, action: Callable[[], None]) -> str | None:
        """Null, or what went wrong."""
        try:
            action()
        except (InfrastructureError, NoUsableHostError) as error:
            return str(error)
        return None

    def _bring_back(self, name: str) -> None:
        self.hosts.mend(name, lambda text: self.say(f"{name}: {text}"), self.order.continuation.campaign_id)

    def _substitute(self, name: str) -> str | None:
        """The host that was made ready in place of another; null if there is none, or not yet."""
        spare = self._spare_for(name)
        if spare is None:
            return None
        self.used.add(spare)
        self.say(f"{spare} is made ready in place of {name}")
        problem = self._attempt(lambda: self._offer(spare))
        if problem is None:
            return spare
        if not self.left.is_set():
            self.say(f"{spare} cannot stand in for {name}: {problem}")
        return None

    def _spare_for(self, name: str) -> str | None:
        """A host that stands for the same place, and on which something can run that the lost one was to run."""
        tasks = self.order.continuation.plan.tasks
        wanted = {trial.trial_id for planned in tasks if planned.host == name for trial in planned.task.trials}
        return next((spare for spare in self.spares.hosts if wanted & self._trials_on(spare)), None)

    def _trials_on(self, spare: str) -> set[str]:
        if spare in self.used or self.order.sweep is None:
            return set()
        planned = plan(self.order.sweep, [self.spares.hosts[spare]], self.order.continuation.campaign_id)
        return {trial.trial_id for task in planned.tasks for trial in task.task.trials}

    def _offer(self, spare: str) -> None:
        assert self.order.sweep is not None
        host, spares = self.spares.hosts[spare], self.spares
        needed = needed_environments(plan(self.order.sweep, [host], self.order.continuation.campaign_id))

        def say(text: str) -> None:
            self.say(text if text.startswith(spare) else f"{spare}: {text}")

        facts = self.hosts.mend(spare, say)
        settings = spares.settings[spare]
        planning = planning_host(facts, settings, spares.inventory, spares.known, host.unavailable)
        ready, problems = provision(
            self.hosts, {spare: planning}, {spare: facts}, needed, spares.images, spares.known.catalogue, say
        )
        if problems:
            raise InfrastructureError(problems[spare])
        self.control.offer(ready[0])
