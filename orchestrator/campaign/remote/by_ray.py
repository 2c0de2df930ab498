"""Hosts that are nodes of somebody else's Ray cluster: asked and made ready through Ray, without SSH and agents."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from orchestrator.campaign.files import ProjectFiles
from orchestrator.campaign.preparing.environments import expand, known_pins
from orchestrator.campaign.preparing.hosts import free_cores, with_machine
from orchestrator.campaign.remote.by_ray_ready import Given, made_ready
from orchestrator.campaign.remote.looking import Seen, listed
from orchestrator.campaign.remote.on_node import NodeFacts, NodeQuestion, Recipes, look_here
from orchestrator.campaign.remote.preparation import Prepared
from orchestrator.config import WORK_DIRECTORY, Host
from orchestrator.environments import Catalogue, read_built_images
from orchestrator.errors import InfrastructureError, NoUsableHostError
from orchestrator.hosts.check import unmet
from orchestrator.hosts.cluster_info import ClusterInfo, node_of
from orchestrator.hosts.external_cluster import ExternalCluster
from orchestrator.hosts.labels import SLOT
from orchestrator.planning import Isolation, Plan, PlanningHost, needed_environments, slots_at_once
from orchestrator.scheduling import Scheduler, SchedulingHost

_ANSWER_S = 120.0
"""For the first answer Ray brings our code to a node, and starts a process there."""

Say = Callable[[str], None]
Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class RayHosts:
    """Hosts of a campaign that are nodes of a joined cluster."""

    def __init__(
        self,
        hosts: Mapping[str, Host],
        cluster: ClusterInfo,
        external: ExternalCluster,
        inventory: Path,
        files: ProjectFiles,
        scheduler: Scheduler,
        say: Say,
    ) -> None:
        """Starts the scheduler; leave it with `stop`.

        Args:
            hosts: by name, each with a node.
            cluster: as it was seen.
            external: the same, to be joined.
            inventory: where they come from, for errors.
            files: where the catalogue is.
            scheduler: of the cluster.
            say: told about choices and long steps.
        """
        self._hosts = hosts
        self._cluster = cluster
        self._external = external
        self._inventory = inventory
        self._files = files
        self._scheduler = scheduler
        self._say = say
        self._recipes = recipes(files)
        self._facts: dict[str, NodeFacts] = {}
        self._absent = scheduler.start([SchedulingHost(name, {}) for name in hosts])

    def look(self, environments: Sequence[str]) -> Seen:
        """What the hosts are. Nothing is changed there.

        Args:
            environments: names from the catalogue, or `any-suitable`.

        Raises:
            ConfigurationError: a host keeps all its cores.
            NoUsableHostError: no host can be used; says why for each.
        """
        left_out = dict(self._absent)
        self._refuse_other_versions(left_out)
        entries = expand(environments, Catalogue.load(self._files.catalogue))
        questions = {
            name: NodeQuestion(name, host, work_of(host), [entry.name for entry in entries], self._recipes)
            for name, host in self._hosts.items()
            if name not in left_out
        }
        self._facts = self._ask(look_here, questions, _ANSWER_S, left_out)
        planned = []
        for name, facts in self._facts.items():
            wrong = _unexpected(self._hosts[name], facts)
            if wrong is not None:
                left_out[name] = wrong
            else:
                planned.append(self._planning(name, facts, environments))
        if not planned:
            raise NoUsableHostError(f"no host can be used: {listed(left_out)}")
        return Seen(tuple(planned), left_out)

    def prepare(self, hosts: Mapping[str, PlanningHost], planned: Plan) -> Prepared:
        """Gives hosts what their trials need. A host that cannot take it is left out.

        Args:
            hosts: of `look`, by name.
            planned: what is to run on them.

        Raises:
            ConfigurationError: an image of this machine is not the recorded one.
            InfrastructureError: an image cannot be built on this machine.
        """
        failed: dict[str, str] = {}
        given = {
            name: Given(hosts[name], self._facts[name], work_of(self._hosts[name]), tuple(sorted(environments)))
            for name, environments in needed_environments(planned).items()
        }
        for one in given.values():
            self._refuse_too_few_slots(one.planning, planned, failed)
        ready = made_ready(given, self._files, self._recipes, self._ask, failed, self._say)
        return Prepared(ready, failed)

    def stop(self) -> None:
        """Leaves the cluster."""
        self._scheduler.stop()

    def _planning(self, name: str, facts: NodeFacts, environments: Sequence[str]) -> PlanningHost:
        catalogue, host = Catalogue.load(self._files.catalogue), self._hosts[name]
        entries = expand(environments, catalogue)
        reason = facts.reason
        if facts.isolation is Isolation.PROCESS and facts.niceness:
            reason += f"; at nice {facts.niceness}"
            self._say(
                f"{name}: Ray's processes, and so trials without containers, run at nice {facts.niceness} there: start "
                "Ray with RAY_worker_niceness=0"
            )
        planning = PlanningHost(
            name,
            host.labels,
            free_cores(name, host, facts.cores, self._inventory),
            known_pins(environments, entries, facts.isolation, reason, read_built_images(self._files.catalogue)),
            facts.unavailable,
            demands={entry.name: entry.demands for entry in entries},
        )
        return with_machine(planning, host, facts.fingerprint, facts.memory_bytes, self._inventory)

    def _refuse_too_few_slots(self, host: PlanningHost, planned: Plan, failed: dict[str, str]) -> None:
        tasks = [one.task for one in planned.tasks if one.host == host.name]
        at_once = slots_at_once(host.slots, tasks) if host.slots else 1
        node = node_of(host.name, self._cluster)
        if node.slots < at_once:
            failed[host.name] = (
                f"with `exclusive: gpu` {at_once} trials run at once, and its node {node.machine} has {SLOT} "
                f"{node.slots:.0f}; start Ray there with --resources='{{\"{SLOT}\": {at_once}}}'"
            )

    def _refuse_other_versions(self, left_out: dict[str, str]) -> None:
        for name in self._hosts:
            try:
                if name not in left_out:
                    self._external.refuse_other_packages(name, _ANSWER_S)
                    self._external.refuse_unheard(name, _ANSWER_S)
            except InfrastructureError as error:
                left_out[name] = str(error)

    def _ask(
        self,
        question: Callable[[Asked], Answered],
        of: Mapping[str, Asked],
        timeout_s: float,
        failed: dict[str, str],
    ) -> dict[str, Answered]:
        """The answers that came, in the order of the hosts; those that gave none get into `failed`."""
        answers: dict[str, Answered] = {}
        answered = self._scheduler.ask(question, of, timeout_s) if of else {}
        for name in of:
            answer = answered[name]
            if isinstance(answer, InfrastructureError):
                failed[name] = str(answer)
            else:
                answers[name] = answer
        return answers


def recipes(files: ProjectFiles) -> Recipes:
    """The catalogue of this project and its locks."""
    catalogue = Catalogue.load(files.catalogue)
    paths = [catalogue.path, *(entry.lock_path for entry in catalogue.entries.values() if entry.lock_path.is_file())]
    root = catalogue.path.parent.parent
    return Recipes({str(path.relative_to(root)): path.read_bytes() for path in paths})


def work_of(host: Host) -> str:
    """Where a node keeps our files."""
    return host.work_directory or WORK_DIRECTORY


def _unexpected(host: Host, facts: NodeFacts) -> str | None:
    seen = facts.fingerprint
    names = [gpu.name or "" for gpu in seen.gpus]
    wrong = unmet(host.expect, names, seen.gpu_driver_version, seen.cpu.model_name, seen.memory.total_bytes)
    return f"{'; '.join(wrong)}: mend the host, or correct `expect:`" if wrong else None
