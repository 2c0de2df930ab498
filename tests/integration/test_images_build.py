"""Images, really built: the committed recipe with a lock of one small package."""

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import DockerClient
from docker.errors import ImageNotFound

from orchestrator.errors import InfrastructureError
from orchestrator.images import (
    Catalogue,
    EnvironmentEntry,
    connect,
    ensure_image,
    lock_sha256,
    read_built_images,
    recipe_sha256,
)

pytestmark = pytest.mark.engine
DOCKER = Path(__file__).parents[2] / "docker"


@pytest.fixture
def client(engine: None) -> Iterator[DockerClient]:
    found = connect()
    yield found
    found.close()


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentEntry:
    """The `cpu` environment with another lock, in a directory of its own; its system layers are shared."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    directory = tmp_path / "project/docker"
    (directory / "wheels").mkdir(parents=True)
    shutil.copy(DOCKER / "Dockerfile", directory)
    wheel = directory / "wheels/tiny_pkg-1.0-py3-none-any.whl"
    info = "tiny_pkg-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_pkg.py", "answer = 42\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-pkg\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"tiny_pkg.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (directory / "tiny.lock").write_text(f"tiny-pkg==1.0 --hash=sha256:{digest}\n")
    changes = {"name": "test-tiny", "directory": directory, "lock": "tiny.lock", "wheel_index": None}
    return Catalogue.load(DOCKER / "images.yaml").entry("cpu").model_copy(update=changes)


@pytest.fixture
def forget(client: DockerClient, entry: EnvironmentEntry) -> Iterator[None]:
    """Removes what the test built, and nothing else."""
    yield
    for image in client.images.list(filters={"label": f"org.taxmeter.recipe-sha256={recipe_sha256(entry)}"}):
        client.images.remove(image.id, force=True)


def test_an_image_is_built_once_labelled_and_recorded(client: DockerClient, entry: EnvironmentEntry, forget: None):
    said: list[str] = []
    built = ensure_image(entry, client, said.append)
    assert any("building the image test-tiny" in line for line in said)
    attributes = client.images.get(built.reference).attrs
    labels = attributes["Config"]["Labels"]
    assert built.image_id == attributes["Id"]
    assert labels["org.taxmeter.environment"] == "test-tiny"
    assert labels["org.taxmeter.lock-sha256"] == lock_sha256(entry) == built.lock_sha256
    assert labels["org.taxmeter.recipe-sha256"] == recipe_sha256(entry) == built.recipe_sha256
    assert labels["org.taxmeter.base"] == built.base
    assert read_built_images(entry.directory / "images.yaml") == {"test-tiny": built}

    said.clear()
    assert ensure_image(entry, client, said.append) == built
    assert said == []

    # a lost tag is put back: the label tells what the image is
    client.images.get(built.reference).tag("taxmeter/test-tiny:other")
    client.images.remove(built.reference, noprune=True)
    assert ensure_image(entry, client, said.append) == built
    assert said == []

    script = (
        "import os, tiny_pkg; from pathlib import Path; "
        "print(os.getuid(), os.getpid(), tiny_pkg.answer, os.environ['PYTHONHASHSEED'], "
        "os.environ['TAXMETER_PRIVATE_PID_NAMESPACE'], "
        "[str(p) for p in map(Path, ('/etc/pip.conf', '/run/secrets', '/tmp/wheels')) if p.exists()])"
    )
    output = client.containers.run(
        built.reference, ["python", "-c", script], network_mode="none", read_only=True, remove=True
    )
    assert output.decode().split(" ", 5) == ["65532", "1", "42", "0", "1", "[]\n"]


def test_a_package_with_another_hash_fails_the_build(client: DockerClient, entry: EnvironmentEntry):
    entry.lock_path.write_text(f"tiny-pkg==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(InfrastructureError) as error:
        ensure_image(entry, client, lambda _: None)
    assert "the image test-tiny cannot be built; log: " in str(error.value)
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in (entry.state_directory / "logs/build-test-tiny.log").read_text()
    with pytest.raises(ImageNotFound):
        client.images.get(f"taxmeter/test-tiny:{recipe_sha256(entry)[:12]}")
