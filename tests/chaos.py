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
from docker.errors import APIError

from orchestrator.campaign.stored_plan import StoredPlan
from orchestrator.environments import connect, engine_address
from orchestrator.errors import ExitCode, TaxmeterError
from orchestrator.hosts.cluster import ensure_agent_image
from orchestrator.hosts.cluster.lifecycle import load
from orchestrator.hosts.cluster.plan import LABEL as CLUSTER_LABEL
from orchestrator.hosts.cluster.reach import listened_here
from orchestrator.store import Store
from runners.contract import Status, TaskFiles
from tests.conftest import image_of
from tests.lab.faults import FAULTS, Cure, MissedError, Target, give_clock
from tests.lab.host import LabHost
from tests.lab.image import PROJECT
from tests.lab.lab import Lab
from tests.lab.objects import LABEL, find_objects
from tests.lab.workshop import HOSTS, Workshop
from tests.project import sweep_text
from tests.recording import processes_naming

RECORDS: Final = Path(TaskFiles("").records).name
DISK: Final = "48m"
"""Of the results: a fault fills it."""
PAUSE_S: Final = (4.0, 12.0)
"""Between two faults."""
START_S: Final = (0.0, 40.0)
"""From the start of a command to its first fault: while it looks, brings a cluster up, or measures."""
ROUNDS, BATCHES = 60, (1, 2)
CALM_RUNS: Final = 6
"""So often a sweep may need its command once there are no faults any more."""
CALM_S: Final = 600.0
"""Within that each of them ends."""
KEPT: Final = "its records are kept there"
"""So ends a line about records of which one gave no row: they stay for a person, and their trials are run again."""
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
    active: list[tuple[float, str, str, Cure]] = field(default_factory=list)
    """When each cure is due, of which fault, on which host."""
    next_s: float = 0.0
    clusters: dict[str, int] = field(default_factory=dict)
    """The first port of each that was there, by its id."""

    @property
    def is_calm(self) -> bool:
        return time.monotonic() > self.ends_s

    def sweep(self, number: int, rounds: int = ROUNDS) -> None:
        """Has one sweep measured, whatever it takes."""
        name = f"chaos-{number}"
        batches = ", ".join(map(str, BATCHES))
        text = sweep_text(
            name, f"{{name: synthetic-sleep, batch: [{batches}]}}", "[python]", rounds=rounds, turn_ms=400
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
        self.next_s = since_s + self.chance.uniform(*START_S)
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
        kept = [line for line in said.splitlines() if KEPT in line]
        print("".join(f"{line}\n" for line in kept), end="", flush=True)
        if command.returncode not in MAY_END or "Traceback" in said:
            self.defects.append(f"{name} ended with {command.returncode}: {said[-6000:]}")

    def strike(self, command: int) -> None:
        """One fault, of those that can come now and find something to hit."""
        troubled = {host for _, _, host, _ in self.active}
        hosts = [host for host in self.workshop.lab.hosts() if host.name not in troubled]
        under_way = {kind for _, kind, _, _ in self.active}
        kinds = [kind for kind, fault in FAULTS.items() if kind not in under_way and (hosts or not fault.of_a_host)]
        order = {kind: self.chance.random() ** (1 / FAULTS[kind].weight) for kind in kinds}
        for kind in sorted(kinds, key=order.__getitem__, reverse=True):
            fault, host = FAULTS[kind], self.chance.choice(hosts or self.workshop.lab.hosts())
            place = host.name if fault.of_a_host else ""
            try:
                cure = fault.strike(Target(self.workshop, host, self.chance, command))
            except (MissedError, TaxmeterError, APIError, AssertionError, OSError):
                self.missed[kind] += 1
                continue
            self.struck[kind] += 1
            print(f"{self.clock()} {kind} {place}", flush=True)
            if cure is not None:
                due_s = time.monotonic() + self.chance.uniform(2, fault.longest_s)
                self.active.append((due_s, kind, place, cure))
            return

    def cure(self, *, everything: bool = False) -> None:
        """Mends what is due."""
        due = [entry for entry in self.active if everything or entry[0] < time.monotonic()]
        for entry in due:
            self.active.remove(entry)
            entry[3]()
            print(f"{self.clock()} mended: {entry[1]} {entry[2]}", flush=True)

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


def judge(night: Night) -> dict[str, list[str]]:
    """What is wrong with what is stored, of what was planned and acknowledged."""
    campaigns = Store.open(night.workshop.results).campaigns().to_pylist()
    rows = night.workshop.rows()
    ended = [row for row in rows if row["status"] != Status.INFRASTRUCTURE_ERROR.value]
    keys = Counter((row["trial_id"], row["attempt"]) for row in rows)
    final = Counter(row["trial_id"] for row in ended)
    planned = {trial_id for row in campaigns for trial_id in planned_trials(row)}
    sweeps = Counter(row["sweep"] for row in campaigns)
    print(f"{len(night.runs)} sweeps, {night.runs.total()} runs of the command, {len(planned)} trials planned")
    print(
        f"{len(rows)} attempts: {dict(Counter(row['status'] for row in rows))}; {len(night.acknowledged)} seen stored"
    )
    return {
        "lost": [f"{key} was acknowledged" for key in night.acknowledged - keys.keys()]
        + [f"{trial} was planned" for trial in planned - final.keys()],
        "twice": [f"{key}: {count} rows" for key, count in (keys + final + sweeps).items() if count > 1]
        + [f"{trial}: nobody planned it" for trial in final.keys() - planned],
        "without a reason": [
            f"{row['trial_id']}: {row['status']}" for row in rows if row["status"] != "ok" and not row["reason"]
        ],
    }


def planned_trials(campaign: dict[str, Any]) -> Iterator[str]:
    plan = StoredPlan.of(campaign)
    assert plan is not None
    return (trial_id for task in plan.document["tasks"] for trial_id in task["trials"]["trial_id"])


def left_on(host: LabHost, ports: set[int]) -> Iterator[str]:
    """What is left on a host, once its cluster is down."""
    with host.engine() as engine:
        for container in engine.containers.list(all=True, ignore_removed=True):
            yield f"{host.name}: container {container.name}"
    # A host keeps its cache between campaigns. What a lost task wrote stays under another name beside its log, which
    # tells why it was lost.
    files = host.sh(f"find /var/lib/taxmeter -name {RECORDS}; ls -d /tmp/taxmeter* || true")
    yield from (f"{host.name}: {name}" for name in files.split() if name != os.environ["TAXMETER_LOCKS"])
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
    yield from (f"file {path}" for path in campaigns.rglob(RECORDS))


@contextmanager
def disk(place: Path) -> Iterator[None]:
    """A small file system at a directory."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


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
            night, wrong = spend(lab, project, temporary, arguments.seed, arguments.minutes)
            said = night.log.read_text()[-6000:]
    finally:
        shutil.rmtree(top)
    print(f"\n{'fault':20} {'struck':>6} {'missed':>6}")
    for kind in FAULTS:
        print(f"{kind:20} {night.struck[kind]:6} {night.missed[kind]:6}")
    print(f"{'all':20} {night.struck.total():6} {night.missed.total():6}\n")
    for name, found in wrong.items():
        print("\n  ".join([f"{len(found)} {name}", *found[:20]]))
    if any(wrong.values()):
        print(f"\nWhat the last run said:\n{said}")
    return 1 if any(wrong.values()) else 0


def spend(lab: Lab, project: Path, temporary: Path, seed: int, minutes: float) -> tuple[Night, dict[str, list[str]]]:
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
            # A host that was lost once its last task was stored still has the records: the next campaign removes them.
            night.sweep(number + 1, rounds=1)
        finally:
            workshop.end()
            lab.up(len(HOSTS))
            workshop.taxmeter("cluster", "down", code=ExitCode.OK)
    ports = {port for first in night.clusters.values() for port in range(first, first + 300)}
    left = [line for host in lab.hosts() for line in left_on(host, ports)]
    lab.down()
    left += left_here(workshop, night.clusters, ports, temporary)
    return night, {**judge(night), "left": left, "defects": night.defects}


if __name__ == "__main__":
    sys.exit(main())
