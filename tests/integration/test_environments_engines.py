"""One image on two engines: through a registry and over the engines' own connections, with images of a few bytes.

The second engine and the registry run in containers of the image of the lab hosts.
"""

import io
import os
import socket
import tarfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from docker import DockerClient
from docker.errors import DockerException, ImageNotFound
from docker.models.containers import Container
from requests.exceptions import RequestException

from orchestrator.environments import (
    BuiltImage,
    ImageLookup,
    StoredImage,
    attributes_of,
    connect,
    copy_image,
    differences,
    identity_of,
    look_for_image,
    pull_stored_image,
)
from orchestrator.environments.identity import read_archive
from orchestrator.environments.registry import pull_image, push_image
from orchestrator.environments.transfer import load_image, save_image
from orchestrator.errors import InfrastructureError
from tests.lab.image import ensure_lab_image

pytestmark = pytest.mark.engine
LABEL = "org.taxmeter.test-lab"


@pytest.fixture(scope="module")
def client(engine: None) -> Iterator[DockerClient]:
    with closing(connect()) as found:
        yield found


@pytest.fixture(scope="module")
def lab(client: DockerClient) -> str:
    """An image with an engine and a registry in it, that of the lab hosts; built once per machine."""
    return ensure_lab_image(client, print)


def start_engine(
    client: DockerClient, lab: str, directory: Path, network: str, inside: str = "/lab", **changes: object
) -> Container:
    """A container with an engine of its own, whose socket is in `directory`, which it sees as `inside`.

    Never on the host's network: an engine that starts without a bridge removes the docker0 that it finds.
    """
    assert network != "host"
    host = client.api.create_host_config(
        binds={str(directory): {"bind": inside, "mode": "rw"}},
        init=True,
        cap_add=["ALL"],
        # not every engine may pass this one on
        cap_drop=["SYS_RESOURCE"],
        security_opt=["seccomp=unconfined", "apparmor=unconfined"],
        network_mode=network,
        **changes,
    )
    # What the command line calls systempaths=unconfined: the SDK has no name for it.
    host |= {"MaskedPaths": [], "ReadonlyPaths": []}
    command = ["lab-engine", f"--host=unix://{inside}/docker.sock"]
    created = client.api.create_container(lab, command, host_config=host, labels={LABEL: "1"})
    client.api.start(created["Id"])
    return client.containers.get(created["Id"])


def wait_for(address: str, container: Container) -> DockerClient:
    deadline = time.monotonic() + 60
    while True:
        try:
            return connect(address, timeout_s=60)
        except InfrastructureError as error:
            container.reload()
            if time.monotonic() > deadline or container.status == "exited":
                pytest.fail(f"{error}\n{container.logs(tail=20).decode()}")
            time.sleep(0.2)


@pytest.fixture(scope="module")
def registry_container(client: DockerClient, lab: str) -> Iterator[tuple[Container, int]]:
    """A registry, and the port at which this host and its own network know it."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    container = client.containers.run(
        lab,
        ["docker-registry", "serve", "/etc/lab/registry.yml"],
        environment={"REGISTRY_HTTP_ADDR": f"0.0.0.0:{port}"},
        detach=True,
        init=True,
        ports={f"{port}/tcp": ("127.0.0.1", port)},
        labels={LABEL: "1"},
    )
    try:
        yield container, port
    finally:
        container.remove(force=True, v=True)


@pytest.fixture(scope="module")
def registry(registry_container: tuple[Container, int]) -> str:
    """What both engines call it. They trust it, because it is on 127.0.0.0/8 for either."""
    _, port = registry_container
    return f"127.0.0.1:{port}/lab"


@pytest.fixture(scope="module")
def second(
    client: DockerClient, lab: str, registry_container: tuple[Container, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DockerClient]:
    """Another engine on this machine, with a store of its own, in the network of the registry."""
    directory = tmp_path_factory.mktemp("engine")
    container = start_engine(client, lab, directory, f"container:{registry_container[0].id}")
    try:
        with closing(wait_for(f"unix://{directory}/docker.sock", container)) as found:
            yield found
    finally:
        container.remove(force=True, v=True)


def tar_of(**files: bytes) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            information = tarfile.TarInfo(name)
            information.size = len(content)
            archive.addfile(information, io.BytesIO(content))
    buffer.seek(0)
    return buffer


@pytest.fixture
def name() -> str:
    """Of an environment that only one test knows."""
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def forget(client: DockerClient, second: DockerClient, name: str) -> Iterator[None]:
    """Removes what the test made, and nothing else."""
    yield
    for one in (client, second):
        for image in one.images.list(filters={"label": f"org.taxmeter.environment={name}"}):
            with suppress(DockerException, RequestException):
                one.images.remove(image.id, force=True)


def make(client: DockerClient, name: str, second_layer: bytes = b"one") -> BuiltImage:
    """An image of two layers that looks like one of ours."""
    reference, recipe = f"taxmeter/{name}:{'12' * 6}", "12" * 32
    labels = {"environment": name, "recipe-sha256": recipe, "lock-sha256": "0" * 64, "base": "none"}
    bottom = f"taxmeter/{name}:bottom"
    client.api.import_image_from_data(
        tar_of(bottom=b"the same").getvalue(), repository=f"taxmeter/{name}", tag="bottom"
    )
    lines = [f"FROM {bottom}", "COPY top /top", "ENV PATH=/bin", "USER 65532:65532"]
    lines += [f"LABEL org.taxmeter.{key}={value}" for key, value in labels.items()]
    context = tar_of(Dockerfile="\n".join(lines).encode(), top=second_layer)
    client.images.build(fileobj=context, custom_context=True, tag=reference, rm=True, nocache=True)
    client.images.remove(bottom, noprune=True)
    attributes = client.images.get(reference).attrs
    found = identity_of(attributes)
    return BuiltImage(
        reference=reference,
        image_id=found.image_id,
        repo_digest=None,
        layers=found.layers,
        lock_sha256="0" * 64,
        recipe_sha256=recipe,
        base="none",
        config_sha256=found.config_sha256,
        versions={},
        facts={},
    )


def on(client: DockerClient, image: BuiltImage) -> tuple[str, ...]:
    """In what an engine's image differs from the recorded one."""
    assert image.identity is not None
    return differences(image.identity, identity_of(client.images.get(image.reference).attrs))


def test_an_image_is_the_same_after_save_and_load(client, second, name, forget, tmp_path: Path) -> None:
    image = make(client, name)
    file = tmp_path / "image.tar"
    save_image(client, image, file, print)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image.tar"]
    assert differences(image.identity, identity_of(read_archive(file))) == ()
    load_image(second, file, print)
    assert on(second, image) == ()
    said: list[str] = []
    load_image(second, file, said.append)
    assert said == [f"the engine has {image.reference} already"]


def test_an_image_is_copied_between_engines_once(client, second, name, forget) -> None:
    image = make(client, name)
    copy_image(image.reference, image.identity, client, second, print)
    assert on(second, image) == ()
    said: list[str] = []
    copy_image(image.reference, image.identity, client, second, said.append)
    assert said == [f"the engine has {image.reference} already"]


def test_an_interrupted_copy_leaves_no_image(client, second, name, forget, monkeypatch) -> None:
    image = make(client, name)
    whole = b"".join(client.api.get_image(image.image_id))

    def cut(*_: object) -> Iterator[bytes]:
        yield whole[: len(whole) // 2]
        raise KeyboardInterrupt

    monkeypatch.setattr(client.api, "get_image", cut)
    with pytest.raises(KeyboardInterrupt):
        copy_image(image.reference, image.identity, client, second, print)
    assert attributes_of(second, image.reference) is None
    assert attributes_of(second, image.image_id) is None
    monkeypatch.undo()
    copy_image(image.reference, image.identity, client, second, print)
    assert on(second, image) == ()


def test_a_changed_byte_is_another_layer(client, name, forget) -> None:
    image, changed = make(client, name), make(client, name, b"onf")
    assert len(image.layers) == 2
    assert image.config_sha256 == changed.config_sha256
    assert differences(image.identity, changed.identity) == (
        f"layer 2 of 2: expected {image.layers[1][7:19]}, found {changed.layers[1][7:19]}",
    )
    with pytest.raises(InfrastructureError, match=r"not the recorded image.*layer 2 of 2"):
        push_image(client, image, "127.0.0.1:9", print)


def test_an_image_is_the_same_through_a_registry(client, second, registry, name, forget) -> None:
    image = make(client, name)
    digest = push_image(client, image, registry, print)
    assert digest.startswith(f"{registry}/taxmeter/{name}@sha256:")
    pushed = image.model_copy(update={"repo_digest": digest})
    pull_image(second, pushed, print)
    assert on(second, image) == ()
    said: list[str] = []
    pull_image(second, pushed, said.append)
    assert said == [f"the engine has {image.reference} already"]


def test_a_registry_that_gives_something_else_is_not_believed(client, second, registry, name, forget) -> None:
    changed = make(client, name, b"onf")
    digest = push_image(client, changed, registry, print)
    image = make(client, name)
    with pytest.raises(InfrastructureError, match=r"it is not used: .*layer 2 of 2"):
        pull_image(second, image.model_copy(update={"repo_digest": digest}), print)
    with pytest.raises(ImageNotFound):
        second.images.get(image.reference)


def test_what_a_registry_does_not_have_and_one_that_is_not_there(client, second, registry, name, forget) -> None:
    image = make(client, name)
    unknown = f"{registry}/taxmeter/{name}@sha256:{'0' * 64}"
    with pytest.raises(InfrastructureError, match="the registry does not have it"):
        pull_image(second, image.model_copy(update={"repo_digest": unknown}), print)
    with pytest.raises(InfrastructureError, match="the registry cannot be reached"):
        push_image(client, image, "127.0.0.1:9", print)


def test_a_full_disk_is_said_and_nothing_is_left(client, lab, name, forget, tmp_path: Path) -> None:
    image = make(client, name, os.urandom(24 << 20))
    container = start_engine(client, lab, tmp_path, "none", tmpfs={"/var/lib/docker": "size=16m"})
    try:
        with closing(wait_for(f"unix://{tmp_path}/docker.sock", container)) as small:
            with pytest.raises(InfrastructureError, match=r": the disk is full: .*no space left on device"):
                copy_image(image.reference, image.identity, client, small, print)
            assert small.images.list(all=True) == []
    finally:
        container.remove(force=True, v=True)


def test_the_image_of_stored_trials_is_pulled_by_its_digest_and_not_named(
    client, second, registry, name, forget, monkeypatch
) -> None:
    image = make(client, name)
    digest = push_image(client, image, registry, print)
    monkeypatch.setattr("orchestrator.environments.image.connect", lambda *_: second)
    wanted = StoredImage(name, image.image_id, digest, image.identity)
    assert look_for_image(wanted, None) == ImageLookup(None, None)
    found = pull_stored_image(wanted, None, print)
    assert differences(image.identity, found) == ()
    assert attributes_of(second, image.reference) is None
    assert look_for_image(wanted, None) == ImageLookup(found, None)
    another = replace(image.identity, layers=(*image.layers, "sha256:" + "0" * 64))
    with pytest.raises(InfrastructureError, match="was pulled, but is not the image that the trials ran in"):
        pull_stored_image(replace(wanted, identity=another), None, print)
