"""The recorded image is the only one that is used, with a scripted engine."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from docker.errors import ImageNotFound

from orchestrator.environments import (
    Builder,
    BuildPolicy,
    BuiltImage,
    Catalogue,
    EnvironmentEntry,
    ensure_image,
    identity_of,
    read_built_images,
    recipe_sha256,
    recorded,
    recording,
    verify,
)
from orchestrator.environments import build as building
from orchestrator.environments import command as building_command
from orchestrator.environments.observation import Observation
from orchestrator.environments.prepare import recorded_images
from orchestrator.environments.record import record_built_image
from orchestrator.errors import ConfigurationError, InfrastructureError

DOCKER = Path(__file__).parents[2] / "docker"
SEEN = Observation({"python": "3.11.2", "torch": "2.13.0"}, {"torch_git_version": "abc"})


class Engine:
    """Has images by name. `list` finds by label, as an engine does."""

    def __init__(self) -> None:
        self.named: dict[str, dict[str, Any]] = {}
        self.unnamed: list[dict[str, Any]] = []
        self.images = self

    def get(self, name: str) -> "Image":
        for reference, attributes in self.named.items():
            if name in (reference, attributes["Id"]):
                return Image(self, attributes)
        raise ImageNotFound(name)

    def list(self, filters: dict[str, list[str]]) -> list["Image"]:
        [label] = filters["label"]
        key, _, value = label.partition("=")
        everything = [*self.named.values(), *self.unnamed]
        return [Image(self, one) for one in everything if one["Config"]["Labels"].get(key) == value]

    def close(self) -> None:
        pass


class Image:
    def __init__(self, engine: Engine, attributes: dict[str, Any]) -> None:
        self.engine, self.attrs = engine, attributes

    def tag(self, reference: str) -> None:
        self.engine.named[reference] = self.attrs


@pytest.fixture
def entry(tmp_path: Path) -> EnvironmentEntry:
    directory = tmp_path / "docker"
    directory.mkdir()
    (directory / "Dockerfile").write_text("FROM scratch\n")
    (directory / "tiny.lock").write_text("")
    return (
        Catalogue.load(DOCKER / "images.yaml")
        .entry("cpu")
        .model_copy(update={"name": "tiny", "directory": directory, "lock": "tiny.lock"})
    )


@pytest.fixture(autouse=True)
def looked_into(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The images that were looked into."""
    looked: list[str] = []

    def observe(client: object, image_id: str) -> Observation:
        looked.append(image_id)
        return SEEN

    monkeypatch.setattr(recording, "observe", observe)
    monkeypatch.setattr(verify, "observe", observe)
    return looked


def an_image(entry: EnvironmentEntry, top: str = "b", image_id: str = "1") -> dict[str, Any]:
    labels = {"environment": entry.name, "recipe-sha256": recipe_sha256(entry), "lock-sha256": "0", "base": "x"}
    return {
        "Id": f"sha256:{image_id * 64}",
        "Architecture": "amd64",
        "Os": "linux",
        "Created": "2026",
        "Size": 5,
        "Config": {"Env": ["A=1"], "Labels": {f"org.taxmeter.{name}": value for name, value in labels.items()}},
        "RootFS": {"Layers": ["sha256:" + "a" * 64, "sha256:" + top * 64]},
    }


def reference_of(entry: EnvironmentEntry) -> str:
    return f"taxmeter/{entry.name}:{recipe_sha256(entry)[:12]}"


def record_of(entry: EnvironmentEntry) -> BuiltImage:
    return read_built_images(entry.directory / "images.yaml")[entry.name]


def test_what_the_engine_has_is_recorded_with_what_is_seen_inside(entry: EnvironmentEntry, looked_into: list[str]):
    engine = Engine()
    engine.named[reference_of(entry)] = an_image(entry)
    image = ensure_image(entry, engine, print)
    assert record_of(entry) == image
    assert image.identity == identity_of(an_image(entry))
    assert (image.versions, image.facts, image.size_bytes) == (dict(SEEN.versions), dict(SEEN.facts), 5)
    assert ensure_image(entry, engine, print) == image
    assert looked_into == [image.image_id]


def test_another_image_under_the_same_name_is_refused_with_both_sides(entry: EnvironmentEntry):
    engine = Engine()
    engine.named[reference_of(entry)] = an_image(entry)
    before = ensure_image(entry, engine, print)
    engine.named[reference_of(entry)] = an_image(entry, top="c", image_id="2")
    with pytest.raises(ConfigurationError) as refused:
        ensure_image(entry, engine, print)
    text = str(refused.value)
    assert text.startswith(f"{entry.directory / 'images.lock.yaml'}: images.tiny: ")
    assert (
        f"recorded sha256:{'1' * 64}, found sha256:{'2' * 64}; layer 2 of 2: expected bbbbbbbbbbbb, found cccc" in text
    )
    assert "`taxmeter images build --accept tiny`" in text
    assert "\n" not in text
    assert record_of(entry) == before

    said: list[str] = []
    accepted = ensure_image(entry, engine, said.append, policy=BuildPolicy(accept=True))
    assert (
        said[0]
        == "tiny is no longer the image that was recorded: layer 2 of 2: expected bbbbbbbbbbbb, found cccccccccccc"
    )
    assert record_of(entry) == accepted
    assert accepted.image_id == "sha256:" + "2" * 64


def test_the_same_content_under_another_id_is_no_other_image(entry: EnvironmentEntry, looked_into: list[str]):
    engine, other = Engine(), Engine()
    engine.named[reference_of(entry)] = an_image(entry)
    other.named[reference_of(entry)] = an_image(entry, image_id="2")
    image = ensure_image(entry, engine, print)
    assert ensure_image(entry, other, print) == image
    assert recording.identity_on(other, image).image_id == "sha256:" + "2" * 64
    assert len(looked_into) == 1


def test_without_its_name_the_recorded_image_is_found_among_others(entry: EnvironmentEntry):
    engine = Engine()
    engine.named[reference_of(entry)] = an_image(entry)
    image = ensure_image(entry, engine, print)
    engine.named.clear()
    engine.unnamed = [an_image(entry), an_image(entry, top="c", image_id="2") | {"Created": "2027"}]
    assert ensure_image(entry, engine, print) == image
    assert engine.named[reference_of(entry)]["Id"] == image.image_id


def test_a_file_of_an_earlier_version_is_completed(entry: EnvironmentEntry):
    unknown = {"config_sha256": None, "size_bytes": None, "versions": None, "facts": None}
    engine = Engine()
    engine.named[reference_of(entry)] = an_image(entry)
    image = ensure_image(entry, engine, print)
    record_built_image(entry, image.model_copy(update=unknown))
    path = entry.directory / "images.lock.yaml"
    short = [line for line in path.read_text().splitlines() if not any(key in line for key in unknown)]
    path.write_text("\n".join(short) + "\n")
    assert record_of(entry).identity is None
    assert ensure_image(entry, engine, print) == image == record_of(entry)


def test_a_pushed_image_that_is_gone_is_pulled_and_not_built(entry: EnvironmentEntry, monkeypatch):
    engine = Engine()
    engine.named[reference_of(entry)] = an_image(entry)
    image = ensure_image(entry, engine, print).model_copy(update={"repo_digest": "lab:5000/x@sha256:1"})
    record_built_image(entry, image)
    engine.named.clear()

    def pull(client: Engine, wanted: BuiltImage, say: object) -> dict[str, Any]:
        client.named[wanted.reference] = an_image(entry)
        return an_image(entry)

    monkeypatch.setattr(recorded, "connect", lambda address, timeout_s: connected(engine, timeout_s))
    monkeypatch.setattr(recorded, "pull_image", pull)
    assert ensure_image(entry, engine, print) == image
    assert record_of(entry).repo_digest == "lab:5000/x@sha256:1"


def test_another_engine_gets_the_image_of_this_one(entry: EnvironmentEntry, monkeypatch):
    engine, other = Engine(), Engine()
    engine.named[reference_of(entry)] = an_image(entry)
    image = ensure_image(entry, engine, print)

    def copy(wanted: BuiltImage, source: object, target: Engine, say: object) -> dict[str, Any]:
        assert wanted == image
        target.named[wanted.reference] = an_image(entry)
        return an_image(entry)

    engines = {"unix:///other.sock": other}
    monkeypatch.setattr(recorded, "connect", lambda address, limit: connected(engines.get(address, engine), limit))
    monkeypatch.setattr(recorded, "copy_image", copy)
    assert ensure_image(entry, other, print, engine="unix:///other.sock") == image


def connected(engine: Engine, timeout_s: float) -> Engine:
    """Gigabytes pass over such a connection."""
    assert timeout_s >= 900
    return engine


def refused(message: str) -> Callable[..., Any]:
    """A transfer that fails."""

    def fail(*_: object) -> None:
        raise InfrastructureError(message)

    return fail


@pytest.mark.parametrize("digest", [None, "lab:5000/x@sha256:1"])
@pytest.mark.parametrize("address", [None, "unix:///other.sock"])
def test_a_recorded_image_that_cannot_be_had_is_an_error_and_nothing_is_built(
    entry: EnvironmentEntry, monkeypatch: pytest.MonkeyPatch, digest: str | None, address: str | None
):
    engine, other = Engine(), Engine()
    monkeypatch.setenv("DOCKER_HOST", "unix:///home.sock")
    engine.named[reference_of(entry)] = an_image(entry)
    image = ensure_image(entry, engine, print).model_copy(update={"repo_digest": digest})
    record_built_image(entry, image)
    monkeypatch.setattr(building, "_make", refused("it was built"))
    monkeypatch.setattr(recorded, "connect", lambda *_: Engine())
    monkeypatch.setattr(recorded, "pull_image", refused("the registry cannot be reached: login expired"))
    monkeypatch.setattr(recorded, "copy_image", refused("the engine broke the connection off"))
    with pytest.raises(InfrastructureError) as raised:
        ensure_image(entry, other, print, engine=address)
    text = str(raised.value)
    pulled = "it was never pushed" if digest is None else "the registry cannot be reached: login expired"
    copied = "there is no other engine" if address is None else "the engine broke the connection off"
    assert text.startswith(f"the recorded image {image.image_id} of tiny cannot be had: ")
    assert "\n" not in text
    for reason in (f"at {address or 'unix:///home.sock'} does not have it", pulled, copied):
        assert reason in text
    assert "`taxmeter images build --from-scratch tiny` makes another one in its place" in text
    assert record_of(entry) == image


def test_an_image_of_an_earlier_version_that_is_gone_is_not_built_again_unasked(entry: EnvironmentEntry):
    engine = Engine()
    engine.named[reference_of(entry)] = an_image(entry)
    image = ensure_image(entry, engine, print).model_copy(update={"config_sha256": None})
    record_built_image(entry, image)
    with pytest.raises(InfrastructureError, match=r"recorded too little to know it elsewhere.*--from-scratch tiny"):
        ensure_image(entry, Engine(), print)
    assert record_of(entry) == image


def test_an_image_is_built_where_none_is_recorded_or_another_recipe_is(entry: EnvironmentEntry, monkeypatch):
    def make(entry: EnvironmentEntry, reference: str, client: Engine, *_: object) -> dict[str, Any]:
        client.named[reference] = an_image(entry)
        return an_image(entry)

    monkeypatch.setattr(building, "_make", make)
    first = ensure_image(entry, Engine(), print)
    assert record_of(entry) == first
    entry.lock_path.write_text("# another\n")
    assert ensure_image(entry, Engine(), print).recipe_sha256 != first.recipe_sha256


def test_another_image_of_the_recipe_gets_no_name_while_the_recorded_one_can_be_brought(
    entry: EnvironmentEntry, monkeypatch
):
    engine = Engine()
    engine.named[reference_of(entry)] = an_image(entry)
    image = ensure_image(entry, engine, print).model_copy(update={"repo_digest": "lab:5000/x@sha256:1"})
    record_built_image(entry, image)
    engine.named.clear()
    engine.unnamed = [an_image(entry, top="c", image_id="2")]

    def pull(client: Engine, wanted: BuiltImage, say: object) -> dict[str, Any]:
        assert client.named == {}
        client.named[wanted.reference] = an_image(entry)
        return an_image(entry)

    monkeypatch.setattr(recorded, "connect", lambda *_: engine)
    monkeypatch.setattr(recorded, "pull_image", pull)
    assert ensure_image(entry, engine, print) == image
    # unless it is asked for
    engine.named.clear()
    accepted = ensure_image(entry, engine, print, policy=BuildPolicy(accept=True))
    assert accepted.image_id == "sha256:" + "2" * 64


def test_a_record_of_another_rule_for_settings_is_renewed_if_the_id_is_the_same(entry: EnvironmentEntry):
    engine = Engine()
    engine.named[reference_of(entry)] = an_image(entry)
    image = ensure_image(entry, engine, print)
    record_built_image(entry, image.model_copy(update={"config_sha256": "0" * 64}))
    assert ensure_image(entry, engine, print) == image == record_of(entry)
    # under another id nothing says that it is the same image
    record_built_image(entry, image.model_copy(update={"config_sha256": "0" * 64, "image_id": "sha256:3"}))
    with pytest.raises(ConfigurationError, match=r"settings \(.*--accept tiny"):
        ensure_image(entry, engine, print)


def test_the_base_is_recorded_by_its_id_too(entry: EnvironmentEntry):
    engine = Engine()
    attributes = an_image(entry)
    attributes["Config"]["Labels"]["org.taxmeter.base-id"] = "sha256:base"
    engine.named[reference_of(entry)] = attributes
    assert ensure_image(entry, engine, print).base_image_id == "sha256:base"
    assert record_of(entry).base_image_id == "sha256:base"


def test_a_build_labels_the_image_with_the_id_of_its_base(entry: EnvironmentEntry, monkeypatch, tmp_path: Path):
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        engine.named[reference_of(entry)] = an_image(entry)
        return subprocess.CompletedProcess(command, 0)

    engine = Engine()
    engine.named["debian:x"] = {"Id": "sha256:base", "Config": {"Labels": {}}}
    monkeypatch.setattr(building, "find_builder", lambda: Builder(("docker", "build")))
    monkeypatch.setattr(building, "ensure_wheels", lambda *_: None)
    monkeypatch.setattr(building, "ensure_base", lambda *_: "debian:x")
    monkeypatch.setattr(building_command.subprocess, "run", run)
    ensure_image(entry, engine, print)
    [command] = commands
    assert command[command.index("--label") + 1] == "org.taxmeter.base-id=sha256:base"
    assert "BASE_IMAGE=debian:x" in command


def test_verify_names_what_differs(entry: EnvironmentEntry, monkeypatch: pytest.MonkeyPatch):
    engine = Engine()
    monkeypatch.setattr(verify, "connect", lambda *_: engine)
    engine.named[reference_of(entry)] = an_image(entry)
    image = ensure_image(entry, engine, print)
    catalogue = entry.directory / "images.yaml"
    assert verify.verify_images([], catalogue, None, print)["tiny"].problems == ()

    seen = Observation({"python": "3.11.2", "torch": "2.14.0"}, {"torch_git_version": "def"})
    monkeypatch.setattr(verify, "observe", lambda *_: seen)
    engine.named[reference_of(entry)] = an_image(entry, top="c")
    assert verify.verify_images(["tiny"], catalogue, None, print)["tiny"].problems == (
        "layer 2 of 2: expected bbbbbbbbbbbb, found cccccccccccc",
        "torch: expected 2.13.0, found 2.14.0",
        "torch_git_version: expected abc, found def",
    )
    engine.named.clear()
    assert verify.verify_images([], catalogue, None, print)["tiny"].problems == (
        f"the engine has no {image.reference}",
    )


def test_an_environment_that_is_not_recorded(entry: EnvironmentEntry):
    catalogue = entry.directory / "images.yaml"
    with pytest.raises(ConfigurationError, match="no image is recorded: `taxmeter images build` does so"):
        recorded_images([], catalogue)
    engine = Engine()
    engine.named[reference_of(entry)] = an_image(entry)
    ensure_image(entry, engine, print)
    with pytest.raises(ConfigurationError, match="tini is not recorded: .*; did you mean tiny"):
        recorded_images(["tini"], catalogue)


def test_an_image_of_somebody_else_is_none_of_an_environment():
    with pytest.raises(InfrastructureError, match="has no label org.taxmeter.environment"):
        recording.reference_of({"Id": "sha256:1", "Config": {"Labels": None}})
