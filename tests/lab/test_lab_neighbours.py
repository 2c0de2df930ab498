"""Two projects on the same hosts measure in turn."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.hosts.cluster import down
from tests.lab.workshop import Workshop
from tests.project import sleeps

pytestmark = [pytest.mark.quiet, pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster]

ROUNDS = 6
LONGER = sleeps(ROUNDS)


@pytest.fixture
def another(workshop: Workshop, tmp_path: Path) -> Iterator[Workshop]:
    """A second project on the same hosts, which knows nothing of the first."""
    found = Workshop.make(tmp_path / "another", workshop.lab)
    yield found
    down(found.files, print)


@pytest.mark.long
def test_two_projects_measure_in_turn_on_the_same_hosts(workshop: Workshop, another: Workshop, tmp_path: Path) -> None:
    workshop.taxmeter("cluster", "down")
    for project in (workshop, another):
        project.up("--limit", "h1:h2")
    assert another.cluster().first_port != workshop.cluster().first_port
    assert another.cluster().id != workshop.cluster().id
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    drivers = [
        project.start(log, *project.sweep(LONGER, "--limit", "h1:h2"))
        for project, log in zip((workshop, another), logs, strict=True)
    ]
    assert [driver.wait(240) for driver in drivers] == [0, 0], logs[0].read_text() + logs[1].read_text()

    said = [" ".join(log.read_text().split()) for log in logs]
    assert any("another cluster measures there; this one waits for its turn" in text for text in said)
    spans = [span for project in (workshop, another) for span in trial_spans(project)]
    for host in ("h1", "h2"):
        here = sorted((start, end, project) for name, start, end, project in spans if name == host)
        assert len(here) == 2 * 2 * ROUNDS
        for (_, end, _), (start, _, _) in pairwise(here):
            assert start >= end, f"two trials at once on {host}"
        projects = [project for *_, project in here]
        changes = sum(1 for one, next_one in pairwise(projects) if one != next_one)
        assert changes >= 3, f"{host}: they do not take turns: {projects}"
    for project in (workshop, another):
        assert project.left_containers() == []
        assert Counter(row["status"] for row in project.rows()) == {"ok": 2 * 2 * ROUNDS}


def trial_spans(workshop: Workshop) -> Iterator[tuple[str, datetime, datetime, str]]:
    """Host, start and end of each trial, and whose it was."""
    for row in workshop.rows():
        yield row["host"], row["started_at"], row["finished_at"], str(workshop.root)
