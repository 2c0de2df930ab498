"""The image of stored trials on a real engine: found whatever it is called, else refused; never built or recorded."""

import io
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from docker import DockerClient

from orchestrator.campaign import Allowed, ReproduceRequest, targets
from orchestrator.campaign.reproduce.reproduction import AS_THEN, ReadyTarget, decide
from orchestrator.campaign.reproduce.run import make_ready, preview
from orchestrator.campaign.reproduce.stored import Configuration, Limits, StoredTrials
from orchestrator.config import Connection, Host, Inventory
from orchestrator.environments import (
    BuiltImage,
    ImageIdentity,
    attributes_of,
    connect,
    identity_of,
    read_built_images,
)
from orchestrator.environments.record import LABEL_ENVIRONMENT
from orchestrator.errors import ConfigurationError
from orchestrator.execution import DockerSettings
from orchestrator.files import ProjectFiles
from orchestrator.hosts import open_hosts
from orchestrator.planning import EnvironmentPin, Isolation, trial_key
from runners.contract import METHOD_VERSION, BackendSpec, Protocol, TrialSpec, WorkloadSpec

pytestmark = pytest.mark.engine
INVENTORY = Inventory(hosts={"h1": Host(connection=Connection.LOCAL)})
SPEC = TrialSpec(WorkloadSpec("synthetic-null", 1), BackendSpec("python", {}), "float32", "cpu", 1, 7, Protocol())
ELSEWHERE = "sha256:" + "9" * 64
"""What another engine calls the image."""


class Lab:
    """Images of an environment that no catalogue has, so that none can be built; each has a file more than another."""

    def __init__(self, client: DockerClient, base: str, project: Path) -> None:
        self.client = client
        self.base = base
        self.files = ProjectFiles(project)
        self.environment = f"test-{uuid.uuid4().hex[:8]}"
        self.ids: list[str] = []

    def make(self, text: str) -> ImageIdentity:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            member = tarfile.TarInfo("file")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        container = self.client.containers.create(self.base, labels={LABEL_ENVIRONMENT: self.environment})
        try:
            container.put_archive("/", stream.getvalue())
            container.commit(f"taxmeter/{self.environment}", "1")
        finally:
            container.remove(force=True)
        attributes = attributes_of(self.client, f"taxmeter/{self.environment}:1")
        assert attributes is not None
        self.ids.append(attributes["Id"])
        return identity_of(attributes)

    def remove(self, image: ImageIdentity) -> None:
        self.client.images.remove(image.image_id, force=True)
        self.ids.remove(image.image_id)

    def request(self, image: ImageIdentity, digest: str = ELSEWHERE, *, allowed: bool = False) -> ReproduceRequest:
        pin = EnvironmentPin(
            *(self.environment, Isolation.DOCKER, "", "0" * 64),
            *(ELSEWHERE, digest, image.layers, image.config_sha256),
        )
        nothing = Limits(None, None)
        then = Configuration("h1", trial_key(SPEC, pin), SPEC, 60, ("t",), 3, pin, {}, nothing, METHOD_VERSION)
        wanted, permitted = StoredTrials({"campaign_id": "old", "sweep": "s"}, None, (then,)), Allowed(allowed)
        found = targets(wanted, INVENTORY, None, permitted)
        return ReproduceRequest(wanted, found, permitted, None, INVENTORY, self.files, self.files.root / "results")

    def preview(self, request: ReproduceRequest) -> None:
        with open_hosts(INVENTORY.hosts, INVENTORY, self.files) as hosts:
            preview(request, hosts)

    def make_ready(self, request: ReproduceRequest) -> list[ReadyTarget]:
        with open_hosts(INVENTORY.hosts, INVENTORY, self.files) as hosts:
            return make_ready(request, hosts, print)


@pytest.fixture
def lab(cpu_image: BuiltImage, project: Path) -> Iterator[Lab]:
    with closing(connect()) as client:
        made = Lab(client, cpu_image.image_id, project)
        before = read_built_images(made.files.catalogue)
        yield made
        for image_id in made.ids:
            client.images.remove(image_id, force=True)
        assert read_built_images(made.files.catalogue) == before


def test_an_image_that_lost_its_name_to_another_one_is_still_found(lab: Lab) -> None:
    old, new = lab.make("old"), lab.make("new")
    assert new.layers != old.layers
    request = lab.request(old)
    lab.preview(request)
    ready = lab.make_ready(request)
    settings = ready[0].host.executions[lab.environment]
    assert isinstance(settings, DockerSettings)
    assert (settings.image_id, settings.expected) == (old.image_id, old)
    reproduction = decide(request.wanted, ready, Allowed())
    [trial] = reproduction.again
    assert (trial.trial_key, trial.pin.reason, trial.pin.image_id) == (trial.then.trial_key, AS_THEN, ELSEWHERE)
    assert {trial.differs for trial in reproduction.reproduces.trials["h1"].values()} == {None}


def test_an_image_that_is_gone_is_refused_with_its_layers_before_anything_is_done(lab: Lab) -> None:
    old, new = lab.make("old"), lab.make("new")
    lab.remove(old)
    count, short = len(old.layers), [image.layers[-1].removeprefix("sha256:")[:12] for image in (old, new)]
    expected = (
        "the engine of h1 does not have 9{12}, and it was never pushed into a registry; "
        f".*layer {count} of {count}: expected {short[0]}, found {short[1]}; --allow"
    )
    for step in (lab.preview, lab.make_ready):
        with pytest.raises(ConfigurationError, match=expected):
            step(lab.request(old))
    lab.remove(new)
    with pytest.raises(ConfigurationError, match=f"that engine has no other image of {lab.environment} either"):
        lab.preview(lab.request(old))
    pushed = lab.request(old, f"localhost:9/cpu@{ELSEWHERE}")
    lab.preview(pushed)
    with pytest.raises(ConfigurationError, match="and localhost:9/cpu@sha256:9+, which a row names, is pulled only if"):
        lab.make_ready(pushed)
    with pytest.raises(ConfigurationError, match="and localhost:9/cpu@sha256:9+ cannot be pulled: .*; --allow"):
        lab.make_ready(replace(pushed, may_pull=lambda _reference: True))


def test_only_where_another_image_is_allowed_is_the_one_of_the_catalogue_taken(lab: Lab, cpu_image: BuiltImage) -> None:
    old = lab.make("old")
    there = lab.make_ready(lab.request(old, allowed=True))[0].host.executions[lab.environment]
    assert isinstance(there, DockerSettings)
    assert there.image_id == old.image_id
    lab.remove(old)
    lab.environment = "cpu"
    with pytest.raises(ConfigurationError, match="the engine of h1 does not have 9{12}"):
        lab.preview(lab.request(old))
    request = lab.request(old, allowed=True)
    lab.preview(request)
    ready = lab.make_ready(request)
    assert ready[0].host.planning.environments["cpu"].image_layers == cpu_image.layers
    [counterpart] = decide(request.wanted, ready, request.allowed).reproduces.trials["h1"].values()
    assert (counterpart.differs or "").startswith("lock: expected 000000000000, found ")
