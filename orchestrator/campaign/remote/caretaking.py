"""Takes care of a campaign's hosts from outside of its driver: brings lost ones back, or offers others for them."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from orchestrator.campaign.control import ControlFiles, HostPhase
from orchestrator.campaign.files import ProjectFiles
from orchestrator.campaign.order import CampaignOrder
from orchestrator.campaign.remote.preparation import prepare_agents
from orchestrator.config import Host
from orchestrator.config.sweep import Sweep
from orchestrator.environments import BuiltImage, engine_errors
from orchestrator.errors import InfrastructureError, NoUsableHostError
from orchestrator.execution import remove_containers
from orchestrator.hosts.cluster import Cluster, find, host_engine, mend
from orchestrator.hosts.connection import Connections, HostConnectionError
from orchestrator.planning import Plan, PlanningHost, needed_environments, plan

LOOK_S = 1.0
"""Between two looks at what the driver says."""

PAUSE_S = 10.0
"""Between two attempts to bring a host back."""

SUBSTITUTE_S = 30.0
"""That a host must be lost before another one is prepared in its place: most come back sooner."""

_LEAVING_S = 15.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Charge:
    """What is taken care of."""

    order: CampaignOrder
    cluster: Cluster
    hosts: Mapping[str, Host]
    """All of the inventory."""
    spares: Mapping[str, PlanningHost]
    """Hosts that could be used, and that the campaign does without, with the environments as they would have them."""
    images: Mapping[str, BuiltImage]
    """By environment; this machine's engine has them."""
    files: ProjectFiles


@contextmanager
def taking_care(charge: Charge, say: Say) -> Iterator[None]:
    """Takes care while the block lasts, in threads that hold up nothing.

    Args:
        charge: what is taken care of.
        say: told, in a line each, what is done and why it fails; by any thread.
    """
    with Connections(charge.hosts) as connections:
        caretaker = _Caretaker(charge, connections, say)
        caretaker.start()
        try:
            yield
        finally:
            caretaker.leave()


@dataclass
class _Lost:
    """What is known of a host that does not answer."""

    since_s: float
    try_at_s: float
    worker: threading.Thread | None = None
    said: str | None = None
    substitute: str | None = None
    """Who was tried in its place last."""


@dataclass
class _Caretaker:
    charge: Charge
    connections: Connections
    say: Say
    lost: dict[str, _Lost] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    """Spare hosts that were tried."""
    left: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def start(self) -> None:
        self.thread = threading.Thread(target=self._watch, name="caretaker", daemon=True)
        self.thread.start()

    def leave(self) -> None:
        """Returns when nothing is done any more; what is being tried is given up."""
        self.left.set()
        deadline = time.monotonic() + _LEAVING_S
        while (busy := [one for one in self._threads() if one.is_alive()]) and time.monotonic() < deadline:
            # again and again: one that is just between two connections would make a new one
            self.connections.abort()
            busy[0].join(0.2)

    def _threads(self) -> list[threading.Thread]:
        known = list(self.lost.values())  # at once: the watching thread goes on meanwhile
        return [one for one in (self.thread, *(lost.worker for lost in known)) if one is not None]

    def _watch(self) -> None:
        control = ControlFiles(self.charge.files.control)
        while not self.left.wait(LOOK_S):
            state = control.state() if control.is_alive() else None
            lost = {host.name for host in state.hosts if host.phase is HostPhase.LOST} if state is not None else set()
            self._look(lost & self.charge.hosts.keys(), time.monotonic())

    def _look(self, lost: set[str], now_s: float) -> None:
        for name in self.lost.keys() - lost:
            worker = self.lost[name].worker
            if worker is None or not worker.is_alive():
                del self.lost[name]
        for name in sorted(lost):
            known = self.lost.setdefault(name, _Lost(now_s, now_s))
            if now_s >= known.try_at_s and (known.worker is None or not known.worker.is_alive()):
                known.try_at_s = now_s + PAUSE_S
                known.worker = threading.Thread(target=self._care, args=(name, known), name=f"care-{name}", daemon=True)
                known.worker.start()

    def _care(self, name: str, lost: _Lost) -> None:
        problem = self._attempt(lambda: self._bring_back(name))
        if problem is None:
            text = f"{name}: its agent runs"
        else:
            text = f"{name} is lost: {problem}; it is tried again every {PAUSE_S:g} s"
        if text != lost.said and not self.left.is_set():
            lost.said = text
            self.say(text)
        if problem is not None and time.monotonic() - lost.since_s >= SUBSTITUTE_S and lost.substitute is None:
            self._substitute(name, lost)

    def _attempt(self, action: Callable[[], None]) -> str | None:
        """Null, or what went wrong."""
        try:
            action()
        except HostConnectionError as error:
            return error.problem
        except (InfrastructureError, NoUsableHostError) as error:
            return str(error)
        return None

    def _bring_back(self, name: str) -> None:
        charge = self.charge
        with (
            engine_errors("its engine failed"),
            host_engine(name, charge.hosts[name], self.connections) as engine,
        ):
            agent = find(engine.client, charge.cluster.agent_container, charge.cluster.id)
            if agent is None or agent.status != "running":
                # Nobody collects from them any more. Where an agent runs, the driver itself sees to it.
                campaign = charge.order.continuation.campaign_id
                for container in remove_containers(engine.address, campaign):
                    self.say(f"{name}: removed container {container}, whose agent is gone")
        mend(name, charge.hosts, self.connections, charge.files, lambda text: self.say(f"{name}: {text}"))

    def _substitute(self, name: str, lost: _Lost) -> None:
        spare = self._spare_for(name)
        if spare is None:
            return
        lost.substitute = spare
        self.used.add(spare)
        self.say(f"{spare} is made ready in place of {name}")
        problem = self._attempt(lambda: self._offer(spare))
        if problem is not None and not self.left.is_set():
            lost.substitute = None  # there may be another one
            self.say(f"{spare} cannot stand in for {name}: {problem}")

    def _spare_for(self, name: str) -> str | None:
        """A host that stands for the same place, and on which something can run that the lost one was to run."""
        charge, planned = self.charge, self.charge.order.continuation.plan
        if charge.order.sweep is None:
            return None
        wanted = _trials(replace(planned, tasks=tuple(task for task in planned.tasks if task.host == name)))
        for spare, host in charge.spares.items():
            if spare not in self.used and wanted & _trials(self._planned_on(charge.order.sweep, host)):
                return spare
        return None

    def _planned_on(self, sweep: Sweep, host: PlanningHost) -> Plan:
        return plan(sweep, [host], self.charge.order.continuation.campaign_id)

    def _offer(self, spare: str) -> None:
        charge, host = self.charge, self.charge.spares[spare]
        assert charge.order.sweep is not None
        needed = needed_environments(self._planned_on(charge.order.sweep, host))[spare]
        images = {name: charge.images[name] for name in needed if name in charge.images}

        def say(text: str) -> None:
            self.say(text if text.startswith(spare) else f"{spare}: {text}")

        cluster = mend(spare, charge.hosts, self.connections, charge.files, say)
        prepared = prepare_agents([host], charge.hosts, cluster, self.connections, {spare: images}, charge.files, say)
        if spare in prepared.left_out:
            raise InfrastructureError(prepared.left_out[spare])
        for ready in prepared.hosts:
            ControlFiles(charge.files.control).offer(ready)


def _trials(planned: Plan) -> set[str]:
    return {trial.trial_id for task in planned.tasks for trial in task.task.trials}
