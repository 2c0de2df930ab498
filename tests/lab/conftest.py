"""The lab that the tests share."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from docker import DockerClient

from orchestrator.environments import BuiltImage, connect, engine_address
from orchestrator.hosts.cluster import down, ensure_agent_image
from orchestrator.hosts.cluster.plan import AgentImage
from tests.lab.image import PROJECT
from tests.lab.lab import Lab
from tests.lab.objects import unsuitable
from tests.lab.workshop import Workshop


@pytest.fixture(scope="session")
def lab_possible(engine: None) -> None:
    """Skips where the engine cannot carry a lab, and fails where one is required."""
    with closing(connect()) as client:
        problem = unsuitable(client)
    if problem is not None and os.environ.get("TAXMETER_REQUIRE_ENGINE") == "1":
        pytest.fail(f"TAXMETER_REQUIRE_ENGINE=1, but {problem}")
    if problem is not None:
        pytest.skip(problem)


@pytest.fixture
def client(lab_possible: None) -> Iterator[DockerClient]:
    """This machine's engine."""
    with closing(connect()) as found:
        yield found


@pytest.fixture
def small(client: DockerClient, tmp_path: Path) -> Iterator[Lab]:
    """A lab of its own for a test that takes it up and down."""
    with Lab.of_this_process(tmp_path) as found:
        yield found


@pytest.fixture(scope="session")
def shared_lab(lab_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three lab hosts; ask for `lab` instead, which mends what an earlier test left."""
    with Lab.of_this_process(tmp_path_factory.mktemp("lab")) as found:
        yield found


@pytest.fixture(scope="session")
def seeded_lab(shared_lab: Lab, cpu_image: BuiltImage, image: AgentImage) -> Lab:
    """The same, with the images of the agents and of the `cpu` environment on every host.

    Seeded together, because only hosts that have nothing yet share the files of their layers.
    """
    shared_lab.up(hosts=3)
    shared_lab.seed([cpu_image.reference, image.reference])
    return shared_lab


@pytest.fixture(scope="session")
def image(lab_possible: None) -> AgentImage:
    """The image of the agents."""
    with closing(connect()) as client:
        return ensure_agent_image(PROJECT, client, engine_address(), print)


@pytest.fixture
def lab(shared_lab: Lab) -> Lab:
    """Three lab hosts that are ready, whatever an earlier test did to them. Their images are those that it left."""
    shared_lab.up(hosts=3)
    return shared_lab


@pytest.fixture(scope="module")
def shared_workshop(seeded_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """A project for the sweeps of a file; ask for `workshop` instead, which forgets what an earlier test measured."""
    found = Workshop.make(tmp_path_factory.mktemp("project"), seeded_lab)
    yield found
    seeded_lab.up(hosts=3)
    assert down(found.files, print) == {}


@pytest.fixture
def workshop(shared_workshop: Workshop, lab: Lab) -> Iterator[Workshop]:
    """A project without results, and three hosts that are ready."""
    yield shared_workshop
    shared_workshop.end()
    shared_workshop.forget_results()
    shared_workshop.edit = str


@pytest.fixture
def with_cluster(workshop: Workshop) -> Workshop:
    """The same with a cluster that was up before, and that sweeps therefore leave as it is."""
    workshop.up()
    return workshop
