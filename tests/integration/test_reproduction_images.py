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

from orchestrator.campaign import Allowed, ProjectFiles, decide, make_ready, preview, targets
from orchestrator.campaign.reproducing import readying
from orchestrator.campaign.reproducing.stored import Configuration, Limits, Wanted
from orchestrator.campaign.reproducing.targets import AS_THEN, Target
from orchestrator.config.inventory import Connection, Host, Inventory
from orchestrator.environments import LABEL_ENVIRONMENT, ImageIdentity, attributes_of, connect, identity_of
from orchestrator.errors import ConfigurationError
from orchestrator.execution import DockerSettings
from orchestrator.planning import EnvironmentPin, Isolation, trial_key
from runners.contract import METHOD_VERSION, BackendSpec, Protocol, TrialSpec, WorkloadSpec

pytestmark = pytest.mark.engine
INVENTORY = Inventory(hosts={"h1": Host(connection=Connection.LOCAL)})
PATH = Path("inventory")
SPEC = TrialSpec(WorkloadSpec("synthetic-null", 1), BackendSpec("python", {}), "float32", "cpu", 1, 7, Protocol())
ELSEWHERE = "sha256:" + "9" * 64
"""What another engine calls the image."""


@pytest.fixture(scope="module")
def client(engine: None) -> Iterator[DockerClient]:
    with closing(connect()) as found:
        yield found


class Engine:
    """Images of a few bytes, all of one environment."""

    def __init__(self, client: DockerClient) -> None:
        self.client = client
        self.environment = f"test-{uuid.uuid4().hex[:8]}"
        self.ids: list[str] = []

    def make(self, text: str) -> ImageIdentity:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            member = tarfile.TarInfo("file")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        name = f"taxmeter/{self.environment}"
        label = f"LABEL {LABEL_ENVIRONMENT}={self.environment}"
        self.client.api.import_image_from_data(stream.getvalue(), name, "1", [label])
        attributes = attributes_of(self.client, f"{name}:1")
        assert attributes is not None
        self.ids.append(attributes["Id"])
        return identity_of(attributes)

    def remove(self, image: ImageIdentity) -> None:
        self.client.images.remove(image.image_id, force=True)
        self.ids.remove(image.image_id)


@pytest.fixture
def lab(client: DockerClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(readying, "prepare_hosts", lambda *_, **__: pytest.fail("something would be built"))
    made = Engine(client)
    yield made
    for image_id in made.ids:
        client.images.remove(image_id, force=True)


def wanted(lab: Engine, image: ImageIdentity, **changes: object) -> Wanted:
    pin = EnvironmentPin(
        lab.environment, Isolation.DOCKER, "", "0" * 64, ELSEWHERE, ELSEWHERE, image.layers, image.config_sha256
    )
    pin = replace(pin, **changes)  # type: ignore[arg-type]
    one = Configuration(
        "h1", trial_key(SPEC, pin), SPEC, 60, ("t1",), 3, pin, {}, Limits(None, None), METHOD_VERSION
    )  # fmt: skip
    return Wanted({"campaign_id": "old", "sweep": "s"}, None, (one,))


def target(found: Wanted, allowed: Allowed | None = None) -> Target:
    [one] = targets(found, INVENTORY, PATH, None, allowed)
    return one


def test_an_image_that_lost_its_name_to_another_one_is_still_found(lab: Engine, project: Path) -> None:
    files = ProjectFiles(project)
    old = lab.make("old")
    new = lab.make("new")
    assert new.layers != old.layers
    found = wanted(lab, old)
    preview(target(found), PATH, files, Allowed())
    ready = make_ready([target(found)], PATH, files, print, Allowed())
    [(_, host)] = ready
    settings = host.executions[lab.environment]
    assert isinstance(settings, DockerSettings)
    assert (settings.image_id, settings.expected) == (old.image_id, old)
    reproduction = decide(found, ready, Allowed())
    [one] = reproduction.again
    assert (one.trial_key, one.pin.reason, one.pin.image_id) == (one.then.trial_key, AS_THEN, ELSEWHERE)
    assert {one.differs for one in reproduction.reproduces.trials.values()} == {None}


def test_an_image_that_is_gone_is_refused_with_its_layers_before_anything_is_done(lab: Engine, project: Path) -> None:
    files = ProjectFiles(project)
    record = files.catalogue.with_name("images.lock.yaml")
    before = record.read_bytes() if record.exists() else None
    old = lab.make("old")
    new = lab.make("new")
    lab.remove(old)
    found = target(wanted(lab, old))
    short = [one.layers[0].removeprefix("sha256:")[:12] for one in (old, new)]
    expected = (
        f"does not have 9{{12}}, and it was never pushed .*layer 1 of 1: expected {short[0]}, found {short[1]}; --allow"
    )
    with pytest.raises(ConfigurationError, match=expected):
        preview(found, PATH, files, Allowed())
    with pytest.raises(ConfigurationError, match=expected):
        make_ready([found], PATH, files, print, Allowed())
    assert (record.read_bytes() if record.exists() else None) == before
    lab.remove(new)
    with pytest.raises(ConfigurationError, match=f"has no other image of {lab.environment} either"):
        preview(found, PATH, files, Allowed())


def test_an_image_that_cannot_be_pulled_is_refused_with_the_reason(lab: Engine, project: Path) -> None:
    files = ProjectFiles(project)
    old = lab.make("old")
    lab.remove(old)
    found = target(wanted(lab, old, image_digest=f"localhost:9/cpu@{ELSEWHERE}"))
    preview(found, PATH, files, Allowed())
    with pytest.raises(ConfigurationError, match="and localhost:9/cpu@sha256:9+ cannot be pulled: .*; --allow"):
        make_ready([found], PATH, files, print, Allowed())


def test_rows_without_layers_find_their_image_by_its_id(lab: Engine, project: Path) -> None:
    old = lab.make("old")
    lab.make("new")
    found = wanted(lab, old, image_id=old.image_id, image_layers=(), image_config_sha256=None)
    preview(target(found), PATH, ProjectFiles(project), Allowed())
    ready = make_ready([target(found)], PATH, ProjectFiles(project), print, Allowed())
    reproduction = decide(found, ready, Allowed())
    assert any("since the store has no layers of this row" in note for note in reproduction.notes)
    [one] = reproduction.again
    assert (one.pin.image_layers, one.pin.image_config_sha256) == (old.layers, old.config_sha256)
    other = wanted(lab, old, image_layers=(), image_config_sha256=None)
    with pytest.raises(ConfigurationError, match="image id .the store has no layers of this row.: found"):
        preview(target(other), PATH, ProjectFiles(project), Allowed())


def test_only_where_another_image_is_allowed_is_the_one_of_the_catalogue_taken(
    lab: Engine, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def prepare(hosts: object, inventory: object, environments: list[str], *_: object, **__: object) -> list[object]:
        asked.append(environments)
        raise KeyboardInterrupt

    monkeypatch.setattr(readying, "prepare_hosts", prepare)
    old = lab.make("old")
    allowed = Allowed(image=True)
    there = make_ready([target(wanted(lab, old), allowed)], PATH, ProjectFiles(project), print, allowed)
    assert there[0][1].executions[lab.environment]
    assert asked == []
    lab.remove(old)
    preview(target(wanted(lab, old), allowed), PATH, ProjectFiles(project), allowed)
    with pytest.raises(KeyboardInterrupt):
        make_ready([target(wanted(lab, old), allowed)], PATH, ProjectFiles(project), print, allowed)
    assert asked == [[lab.environment]]
