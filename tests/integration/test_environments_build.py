"""Images, really built: the committed recipe with a lock of one small package."""

import io
from collections.abc import Iterator

import pytest
from docker import DockerClient
from docker.errors import ImageNotFound

from orchestrator.environments import (
    BuildPolicy,
    EnvironmentEntry,
    compare_images,
    differences,
    ensure_image,
    identity_of,
    lock_sha256,
    read_built_images,
    recipe_sha256,
    save_environment,
    verify_images,
)
from orchestrator.errors import ConfigurationError, InfrastructureError
from orchestrator.execution import DockerSettings
from orchestrator.execution.docker import insist_on_image

pytestmark = pytest.mark.engine


@pytest.fixture
def forget(client: DockerClient, tiny: EnvironmentEntry) -> Iterator[None]:
    """Removes what the test built, and nothing else."""
    yield
    for image in client.images.list(filters={"label": f"org.taxmeter.recipe-sha256={recipe_sha256(tiny)}"}):
        client.images.remove(image.id, force=True)


def test_an_image_is_built_once_labelled_and_recorded(client: DockerClient, tiny: EnvironmentEntry, forget: None):
    said: list[str] = []
    built = ensure_image(tiny, client, said.append)
    assert any("building the image test-tiny" in line for line in said)
    attributes = client.images.get(built.reference).attrs
    labels = attributes["Config"]["Labels"]
    assert built.image_id == attributes["Id"]
    assert labels["org.taxmeter.environment"] == "test-tiny"
    assert labels["org.taxmeter.lock-sha256"] == lock_sha256(tiny) == built.lock_sha256
    assert labels["org.taxmeter.recipe-sha256"] == recipe_sha256(tiny) == built.recipe_sha256
    assert labels["org.taxmeter.base"] == built.base
    assert built.base_image_id == client.images.get(built.base).id
    assert read_built_images(tiny.directory / "images.yaml") == {"test-tiny": built}
    assert built.identity == identity_of(attributes)
    assert built.versions is not None
    assert built.versions["tiny-pkg"] == "1.0"
    assert built.facts is not None
    assert built.facts["python_implementation"] == "CPython"

    said.clear()
    assert ensure_image(tiny, client, said.append) == built
    assert said == []

    # a lost tag is put back: the label tells what the image is
    client.images.get(built.reference).tag("taxmeter/test-tiny:other")
    client.images.remove(built.reference, noprune=True)
    assert ensure_image(tiny, client, said.append) == built
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


def test_an_image_that_was_built_again_is_refused_until_it_is_accepted(
    client: DockerClient, tiny: EnvironmentEntry, forget: None
):
    built = ensure_image(tiny, client, lambda _: None)
    catalogue = tiny.directory / "images.yaml"
    assert verify_images([], catalogue, None, lambda _: None)["test-tiny"] == ()

    # one more layer, as somebody's own build under the same name would have
    changed = f"FROM {built.reference}\nRUN touch /tmp/changed\n".encode()
    client.images.build(fileobj=io.BytesIO(changed), tag=built.reference, rm=True, network_mode="none")
    count = len(built.layers) + 1
    with pytest.raises(ConfigurationError, match=f"layer {count} of {count}: expected none, found [0-9a-f]{{12}}"):
        ensure_image(tiny, client, lambda _: None)
    [problem] = verify_images(["test-tiny"], catalogue, None, lambda _: None)["test-tiny"]
    assert problem.startswith(f"layer {count} of {count}: ")
    assert compare_images("test-tiny", built.image_id, catalogue, None, lambda _: None) != ()
    settings = DockerSettings(built.image_id, None, (0,), 1 << 30, tiny.directory, expected=built.identity)
    insist_on_image(client, settings)

    accepted = ensure_image(tiny, client, lambda _: None, policy=BuildPolicy(accept=True))
    assert read_built_images(catalogue) == {"test-tiny": accepted}
    assert len(accepted.layers) == count


@pytest.mark.long
def test_a_saved_image_is_compared_with_one_of_another_lock(client: DockerClient, tiny: EnvironmentEntry, forget: None):
    built = ensure_image(tiny, client, lambda _: None)
    file = tiny.directory / "saved.tar"
    save_environment("test-tiny", file, tiny.directory / "images.yaml", lambda _: None)
    tiny.lock_path.write_text(tiny.lock_path.read_text() + "# the same packages\n")
    other = ensure_image(tiny, client, lambda _: None)
    assert differences(built.identity, other.identity) != ()
    lines = compare_images(str(file), other.reference, tiny.directory / "images.yaml", None, lambda _: None)
    assert any(line.startswith("layer ") for line in lines)
    for image in client.images.list(filters={"label": f"org.taxmeter.recipe-sha256={built.recipe_sha256}"}):
        client.images.remove(image.id, force=True)


def test_a_package_with_another_hash_fails_the_build(client: DockerClient, tiny: EnvironmentEntry):
    tiny.lock_path.write_text(f"tiny-pkg==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(InfrastructureError) as error:
        ensure_image(tiny, client, lambda _: None)
    assert f"the image test-tiny cannot be built; tiny-pkg==1.0: the lock expects sha256 {'0' * 64}" in str(error.value)
    assert "\n" not in str(error.value)
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in (tiny.state_directory / "logs/build-test-tiny.log").read_text()
    with pytest.raises(ImageNotFound):
        client.images.get(f"taxmeter/test-tiny:{recipe_sha256(tiny)[:12]}")
