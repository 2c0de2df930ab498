"""An image for a node whose engine lacks it comes through Ray's object store, and trials run in it."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from docker import DockerClient

from orchestrator.environments import BuiltImage, connect
from orchestrator.errors import ExitCode
from orchestrator.hosts.engine import SharingQuestion, sharing_problem_here
from tests.integration.test_environments_engines import start_engine, wait_for
from tests.integration.test_existing_cluster import MODELS, Workshop
from tests.lab.image import ensure_lab_image
from tests.ray_nodes import ForeignCluster

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory that the second engine sees under the same path."""
    directory = tmp_path / "shared"
    directory.mkdir()
    return directory


@pytest.fixture
def second(engine: None, shared: Path) -> Iterator[tuple[str, DockerClient]]:
    """Another engine, without any image; its address and a connection."""
    with closing(connect()) as client:
        container = start_engine(client, ensure_lab_image(client, print), shared, "bridge", inside=str(shared))
        try:
            with closing(wait_for(f"unix://{shared}/docker.sock", container)) as found:
                yield f"unix://{shared}/docker.sock", found
        finally:
            container.remove(force=True, v=True)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignCluster]:
    with ForeignCluster(["a"], tmp_path_factory.mktemp("cluster")) as found:
        yield found


def test_an_image_that_a_node_lacks_is_sent_through_ray(
    cluster: ForeignCluster,
    second: tuple[str, DockerClient],
    shared: Path,
    cpu_image: BuiltImage,
    cpu_python: Path,
    tmp_path: Path,
) -> None:
    address, engine = second
    project = tmp_path / "project"
    project.mkdir()
    workshop = Workshop(project, cluster, cpu_python)
    inventory = workshop.inventory(cluster.address)
    text = inventory.read_text() + f"  a: {{work_directory: {shared}/work, engine: '{address}'}}\n"
    inventory.write_text(text)
    assert engine.images.list() == []

    done = workshop.taxmeter("sweep", "run", workshop.write(MODELS), code=ExitCode.OK, timeout_s=900)
    assert f"a: sending {cpu_image.reference}" in done.stdout
    [image] = engine.images.list()
    assert cpu_image.reference in image.tags
    [row] = [row for row in workshop.rows() if row["status"] == "ok"]
    assert (row["host"], row["isolation"]) == ("a", "docker")
    assert cluster.job_goes_on

    identity = replace(cpu_image.identity, image_id=str(image.id))
    assert sharing_problem_here(SharingQuestion(address, str(shared), identity)) is None
    problem = sharing_problem_here(SharingQuestion(address, str(project), identity))
    assert problem is not None
    assert problem.startswith(f"its engine does not see {project} as this node does")
    shutil.rmtree(shared / "work")
