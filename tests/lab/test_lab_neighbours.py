"""Others on the same hosts: two projects measure in turn, and what is nobody's of ours stays as it is."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from docker import DockerClient

from orchestrator.environments import connect, engine_address
from orchestrator.errors import ExitCode
from orchestrator.hosts.cluster import down, ensure_agent_image
from orchestrator.hosts.cluster.executing import run_in
from tests.lab.clusters import foreign
from tests.lab.image import PROJECT
from tests.lab.lab import Lab
from tests.lab.workshop import MODELS, SLEEPS, Workshop

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster, pytest.mark.timeout(600)]

ROUNDS = 6
LONGER = SLEEPS.replace("rounds: 2", f"rounds: {ROUNDS}")


@pytest.fixture
def another(workshop: Workshop, tmp_path: Path) -> Iterator[Workshop]:
    """A second project on the same hosts, which knows nothing of the first. Both choose their ports themselves."""
    found = Workshop.make(tmp_path / "another", workshop.lab)
    for one in (workshop, found):
        del one.environment["TAXMETER_FIRST_PORT"]
    yield found
    down(found.files, print)


@pytest.mark.long
def test_two_projects_measure_in_turn_on_the_same_hosts(workshop: Workshop, another: Workshop, tmp_path: Path) -> None:
    workshop.taxmeter("cluster", "down")
    for one in (workshop, another):
        up = one.taxmeter("cluster", "up", "--inventory", str(one.inventory()), "--limit", "h1:h2")
        assert up.returncode == ExitCode.OK, up.stdout + up.stderr
    assert another.cluster().first_port != workshop.cluster().first_port
    assert another.cluster().id != workshop.cluster().id
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    drivers = [one.start(LONGER, log, "--limit", "h1:h2") for one, log in zip((workshop, another), logs, strict=True)]
    assert [driver.wait(240) for driver in drivers] == [0, 0], logs[0].read_text() + logs[1].read_text()

    said = [" ".join(log.read_text().split()) for log in logs]
    assert any("another campaign measures there; this one waits for its turn" in text for text in said)
    spans = [span for one in (workshop, another) for span in trial_spans(one)]
    for host in ("h1", "h2"):
        here = sorted((start, end, project) for name, start, end, project in spans if name == host)
        assert len(here) == 2 * 2 * ROUNDS
        for (_, end, _), (start, _, _) in pairwise(here):
            assert start >= end, f"two trials at once on {host}"
        projects = [project for *_, project in here]
        changes = sum(1 for one, next_one in pairwise(projects) if one != next_one)
        assert changes >= 3, f"{host}: they do not take turns: {projects}"
    for one in (workshop, another):
        assert one.left_containers() == []
        assert Counter(row["status"] for row in one.rows()) == {"ok": 2 * 2 * ROUNDS}


def trial_spans(workshop: Workshop) -> Iterator[tuple[str, datetime, datetime, str]]:
    """Host, start and end of each trial, and whose it was."""
    for row in workshop.rows():
        start, end = row["started_at"], row["finished_at"]
        assert isinstance(start, datetime)
        assert isinstance(end, datetime)
        yield str(row["host"]), start, end, str(workshop.files.root)


@pytest.mark.long
def test_foreign_ray_and_foreign_containers_survive_a_sweep(workshop: Workshop, lab: Lab, client: DockerClient) -> None:
    workshop.taxmeter("cluster", "down")
    with closing(connect()) as ours:
        image = ensure_agent_image(PROJECT, ours, engine_address(), print).reference
    ray = ["ray", "start", "--head", "--block", "--node-ip-address=127.0.0.1", "--port=7777"]
    with ExitStack() as stack:
        engine = stack.enter_context(lab.host("h1").engine())
        on_host = [
            stack.enter_context(foreign(engine, image, *ray, "--include-dashboard=false", network_mode="none")),
            stack.enter_context(
                foreign(engine, image, "sleep", "600", name="taxmeter-of-somebody", network_mode="none")
            ),
        ]
        here = stack.enter_context(foreign(client, image, "sleep", "600", network_mode="none"))
        strangers = [*on_host, here]
        started = [one.attrs["State"]["StartedAt"] for one in strangers]
        up = workshop.taxmeter("cluster", "up", "--inventory", str(workshop.inventory()), "--limit", "h1")
        assert up.returncode == ExitCode.OK, up.stdout + up.stderr
        done = workshop.run(MODELS, "--limit", "h1")
        assert done.returncode == ExitCode.OK, done.stdout + done.stderr
        assert re.search("no cluster is up", workshop.taxmeter("cluster", "down").stdout)
        for one in strangers:
            one.reload()
            assert one.status == "running"
        assert [one.attrs["State"]["StartedAt"] for one in strangers] == started
        program = (
            "import ray; ray.init('127.0.0.1:7777'); print(ray.get(ray.remote(num_cpus=0)(lambda: 'alive').remote()))"
        )
        assert "alive" in run_in(on_host[0], ["timeout", "60", "python", "-c", program]).stdout
        assert {one.id for one in engine.containers.list(all=True, ignore_removed=True)} == {one.id for one in on_host}
