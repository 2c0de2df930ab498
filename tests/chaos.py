"""A night of faults in minutes: sweeps on a lab of three hosts, and every few seconds a random fault.

python -m tests.chaos --seed 1 --minutes 15        prints what was done and what came of it; exit code 1 if not all is well

Each trial that was planned must be in the store once, `ok` or with a reason; nothing that the store had may be lost;
no container, process, file, port or network may be left.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from docker import DockerClient
from docker.errors import APIError, NotFound

from orchestrator.campaign.stored_plan import StoredPlan
from orchestrator.environments import connect, engine_address
from orchestrator.errors import ExitCode, TaxmeterError
from orchestrator.hosts.cluster import ensure_agent_image
from orchestrator.hosts.cluster.lifecycle import load
from orchestrator.hosts.cluster.plan import LABEL as CLUSTER_LABEL
from orchestrator.hosts.cluster.reach import listened_here
from orchestrator.hosts.lock import LOCKS
from orchestrator.store import Store
from runners.contract import Status
from tests.conftest import image_of  # sets the directory of the locks, too
from tests.lab.faults import FAULTS, Cure, MissedError, Target, give_clock
from tests.lab.host import LabHost
from tests.lab.image import PROJECT
from tests.lab.lab import Lab
from tests.lab.objects import LABEL, find_objects
from tests.lab.workshop import HOSTS, Workshop
from tests.project import sweep_text
from tests.recording import processes_naming

DISK: Final = "48m"
"""Of the results: a fault fills it."""
PAUSE_S: Final = (4.0, 12.0)
"""Between two faults."""
ROUNDS, BATCHES = 10, (1, 2)
CALM_RUNS: Final = 6
"""So often a sweep may need its command once there are no faults any more."""
CALM_S: Final = 600.0
"""Within that each of them ends."""
MAY_END: Final = {ExitCode.OK, ExitCode.TRIALS_FAILED, ExitCode.NO_USABLE_HOST, -9, 128 + 9}
"""The last two where the command or the driver was killed."""
Key = tuple[str, int]


@dataclass
class Night:
    """What happened so far."""

    workshop: Workshop
    client: DockerClient
    chance: random.Random
    ends_s: float
    log: Path
    with_clock: set[str] = field(default_factory=set)
    struck: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    """By sweep, how often its command was started."""
    acknowledged: set[Key] = field(default_factory=set)
    defects: list[str] = field(default_factory=list)
    active: list[tuple[float, str, str | None, Cure]] = field(default_factory=list)
    """When each cure is due, of which fault, on which host."""
    next_s: float = 0.0
    clusters: dict[str, int] = field(default_factory=dict)
    """The first port of each that was there, by its id."""

    @property
    def is_calm(self) -> bool:
        return time.monotonic() > self.ends_s

    def sweep(self, number: int) -> None:
        """Has one sweep measured, whatever it takes."""
        name = f"chaos-{number}"
        batches = ", ".join(map(str, BATCHES))
        text = sweep_text(
            name, f"{{name: synthetic-sleep, batch: [{batches}]}}", "[python]", rounds=ROUNDS, turn_ms=400
        )
        calm_runs = 0
        while (left := self.unfinished(name)) and calm_runs < CALM_RUNS:
            calm_runs += self.is_calm
            self.runs[name] += 1
            self.run(name, text)
        if left:
            self.defects.append(f"{name}: {left} trials are not measured after {self.runs[name]} runs")

    def run(self, name: str, text: str) -> None:
        command = self.workshop.start(self.log, *self.workshop.sweep(text))
        since_s = time.monotonic()
        while command.poll() is None:
            cluster = load(self.workshop.files)
            if cluster is not None:
                self.clusters[cluster.id] = cluster.first_port
            give_clock(self.workshop, self.client, self.with_clock)
            self.cure(everything=self.is_calm)
            if not self.is_calm and time.monotonic() > self.next_s:
                self.strike(command.pid)
                self.next_s = time.monotonic() + self.chance.uniform(*PAUSE_S)
            if self.is_calm and time.monotonic() - max(since_s, self.ends_s) > CALM_S:
                self.defects.append(f"{name}: its command hangs: {self.log.read_text()[-3000:]}")
                command.kill()
                command.wait()
            self.acknowledged |= stored(self.workshop)
            time.sleep(0.3)
        said = self.log.read_text()
        print(f"{self.clock()} {name}, run {self.runs[name]}, exit code {command.returncode}: {said.splitlines()[-1:]}")
        if command.returncode not in MAY_END or "Traceback" in said:
            self.defects.append(f"{name} ended with {command.returncode}: {said[-6000:]}")

    def strike(self, command: int) -> None:
        """One fault, of those that can come now."""
        troubled = {host for _, _, host, _ in self.active}
        hosts = [host for host in self.workshop.lab.hosts() if host.name not in troubled]
        under_way = {kind for _, kind, _, _ in self.active}
        kind = self.chance.choice(
            [name for name, fault in FAULTS.items() if name not in under_way and (hosts or not fault.of_a_host)]
        )
        fault, host = FAULTS[kind], self.chance.choice(hosts or self.workshop.lab.hosts())
        place = host.name if fault.of_a_host else None
        try:
            cure = fault.strike(Target(self.workshop, host, self.chance, command))
        except (MissedError, TaxmeterError, APIError, NotFound, AssertionError, ProcessLookupError, OSError) as problem:
            self.missed[kind] += 1
            print(f"{self.clock()} missed: {kind} {place or ''} {problem!r}"[:150])
            return
        self.struck[kind] += 1
        print(f"{self.clock()} {kind} {place or ''}", flush=True)
        if cure is not None:
            due_s = time.monotonic() + self.chance.uniform(2, fault.longest_s)
            self.active.append((due_s, kind, place, cure))

    def cure(self, *, everything: bool = False) -> None:
        """Mends what is due."""
        due = [entry for entry in self.active if everything or entry[0] < time.monotonic()]
        for entry in due:
            self.active.remove(entry)
            entry[3]()
            print(f"{self.clock()} mended: {entry[1]} {entry[2] or ''}", flush=True)

    def unfinished(self, name: str) -> int:
        """How many trials of a sweep have no final row; all that it may plan, while no campaign is there."""
        store = Store.open(self.workshop.results)
        if not store.layout.description.exists():
            return 1
        campaigns = [row for row in store.campaigns().to_pylist() if row["sweep"] == name]
        if not campaigns:
            return 1
        return sum(
            sum(plan.waiting(store.attempts(str(row["campaign_id"]))).values())
            for row in campaigns
            if (plan := StoredPlan.of(row)) is not None
        )

    def clock(self) -> str:
        return f"{self.ends_s - time.monotonic():7.1f} s"


def stored(workshop: Workshop) -> set[Key]:
    """What the store has by now: that is acknowledged."""
    if not (workshop.results / "STORE.json").exists():
        return set()
    table = Store.open(workshop.results).trials(["trial_id", "attempt"])
    return {(row["trial_id"], row["attempt"]) for row in table.to_pylist()}


@dataclass(frozen=True)
class Verdict:
    """What came of a night."""

    planned: int
    statuses: Counter[str]
    """Of the last attempts."""
    attempts: int
    lost: list[str]
    twice: list[str]
    untyped: list[str]
    left: list[str]
    defects: list[str]

    @property
    def is_well(self) -> bool:
        return not (self.lost or self.twice or self.untyped or self.left or self.defects)


def judge(night: Night, left: list[str]) -> Verdict:
    """Compares what is stored with what was planned and acknowledged."""
    store = Store.open(night.workshop.results)
    campaigns = store.campaigns().to_pylist()
    rows = night.workshop.rows()
    keys = Counter((row["trial_id"], row["attempt"]) for row in rows)
    final = Counter(row["trial_id"] for row in rows if row["status"] != Status.INFRASTRUCTURE_ERROR.value)
    planned = {trial["trial_id"] for row in campaigns for trial in planned_trials(row)}
    doubled = [name for name, count in Counter(row["sweep"] for row in campaigns).items() if count > 1]
    return Verdict(
        planned=len(planned),
        statuses=Counter(str(row["status"]) for row in rows if row["status"] != Status.INFRASTRUCTURE_ERROR.value),
        attempts=len(rows),
        lost=[f"{key} was acknowledged" for key in night.acknowledged - keys.keys()]
        + [f"{trial} was planned" for trial in planned - final.keys()],
        twice=[f"{key}: {count} rows" for key, count in keys.items() if count > 1]
        + [f"{trial}: {count} final rows" for trial, count in final.items() if count > 1]
        + [f"{name}: several campaigns" for name in doubled]
        + [f"{trial}: nobody planned it" for trial in final.keys() - planned],
        untyped=[f"{row['trial_id']}: {row['status']}" for row in rows if row["status"] != "ok" and not row["reason"]],
        left=left,
        defects=night.defects,
    )


def planned_trials(campaign: dict[str, Any]) -> Iterator[dict[str, Any]]:
    plan = StoredPlan.of(campaign)
    assert plan is not None
    return (trial for task in plan.document["tasks"] for trial in task["trials"])


def left_on(host: LabHost, ports: set[int]) -> Iterator[str]:
    """What is left on a host, once its cluster is down."""
    with host.engine() as engine:
        for container in engine.containers.list(all=True, ignore_removed=True):
            yield f"{host.name}: container {container.name}"
    files = host.sh("find /var/lib/taxmeter -name 'records*.jsonl' -o -name cache; ls -d /tmp/taxmeter* || true")
    yield from (f"{host.name}: {name}" for name in files.split() if name != str(LOCKS))
    tables = host.sh("cat /proc/net/tcp /proc/net/tcp6").splitlines()
    listened = {int(line.split()[1].rpartition(":")[2], 16) for line in tables if " 0A " in line}
    yield from (f"{host.name}: port {port}" for port in sorted(listened.intersection(ports)))
    processes = host.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    yield from (f"{host.name}: a process of {word}" for word in ("ray::", "raylet", " -m runners") if word in processes)


def left_here(workshop: Workshop, clusters: Iterable[str], ports: set[int], temporary: Path) -> Iterator[str]:
    """What is left on this machine, once clusters and lab are down."""
    with closing(connect()) as client:
        own = find_objects(client, lambda labels: labels.get(LABEL) == workshop.lab.name)
        objects = [*own.containers, *own.networks, *own.volumes]
        for cluster in clusters:
            selected = {"label": f"{CLUSTER_LABEL}={cluster}"}
            objects += client.containers.list(all=True, filters=selected, ignore_removed=True)
        yield from (f"{type(thing).__name__.lower()} {thing.name}" for thing in objects)
    yield from (f"process {found}" for found in processes_naming(workshop.root))
    yield from (f"port {port}" for port in sorted(listened_here().intersection(ports)))
    sockets = (path for cluster in clusters for path in Path("/tmp").glob(f"taxmeter-{cluster}*"))
    yield from (f"file {path}" for path in (*temporary.iterdir(), *sockets))
    campaigns = workshop.files.campaigns
    yield from (f"file {path}" for path in campaigns.rglob("records*.jsonl"))


@contextmanager
def disk(place: Path) -> Iterator[None]:
    """A small file system at a directory."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def show(night: Night, verdict: Verdict) -> None:
    print(f"\n{'fault':20} {'struck':>6} {'missed':>6}")
    for kind in FAULTS:
        print(f"{kind:20} {night.struck[kind]:6} {night.missed[kind]:6}")
    print(f"{'all':20} {night.struck.total():6} {night.missed.total():6}\n")
    print(f"{len(night.runs)} sweeps, {night.runs.total()} runs of the command, {verdict.planned} trials planned")
    print(f"{verdict.attempts} attempts; last ones: {dict(verdict.statuses)}; {len(night.acknowledged)} seen stored")
    for name in ("lost", "twice", "untyped", "left", "defects"):
        found: list[str] = getattr(verdict, name)
        print(f"{len(found)} {name}")
        for line in found[:20]:
            print(f"  {line}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    arguments = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="taxmeter-chaos-"))
    temporary = top / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"] = str(temporary)
    project = top / "project"
    project.mkdir()
    try:
        with disk(project / "results"), Lab.of_this_process(top) as lab:
            verdict = spend(lab, project, temporary, arguments.seed, arguments.minutes)
    finally:
        shutil.rmtree(top)
    return 0 if verdict.is_well else 1


def spend(lab: Lab, project: Path, temporary: Path, seed: int, minutes: float) -> Verdict:
    """A night on a lab."""
    lab.up(len(HOSTS))
    with closing(connect()) as client:
        agent = ensure_agent_image(PROJECT, client, engine_address(), print)
    lab.seed([image_of("cpu").reference, agent.reference])
    workshop = Workshop.make(project, lab)
    with closing(connect()) as client:
        night = Night(workshop, client, random.Random(seed), time.monotonic() + 60 * minutes, project.parent / "log")
        try:
            workshop.up()
            number = 0
            while not night.is_calm:
                number += 1
                night.sweep(number)
        finally:
            workshop.end()
            lab.up(len(HOSTS))
            workshop.taxmeter("cluster", "down", code=ExitCode.OK)
    ports = {port for first in night.clusters.values() for port in range(first, first + 300)}
    left = [line for host in lab.hosts() for line in left_on(host, ports)]
    lab.down()
    left += left_here(workshop, night.clusters, ports, temporary)
    verdict = judge(night, left)
    show(night, verdict)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
