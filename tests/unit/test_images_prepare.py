"""What push, pull, load and copy do with the record; the transfers themselves are scripted."""

import fcntl
import io
import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound

from orchestrator.environments import (
    BuiltImage,
    Catalogue,
    EnvironmentEntry,
    identity_of,
    read_built_images,
    recipe_sha256,
    transfer,
)
from orchestrator.environments import prepare as of_the_package
from orchestrator.environments.observation import Observation
from orchestrator.environments.prepare import copy, load, pull, push
from orchestrator.environments.record import record_built_image
from orchestrator.environments.transfer import load_image
from orchestrator.errors import ConfigurationError, InfrastructureError

# the package has a function of the same name
prepare = sys.modules[of_the_package.__module__]
CATALOGUE = """\
environments:
  tiny:
    purpose: a test
    released: 2026-01
    python: "3.11"
    platform: manylinux_2_28_x86_64
    base: debian:bookworm-slim@sha256:{digest}
    base_verified: never
    debian_suite: bookworm
    lock: tiny.lock
    hashes_verified: never
"""


class Engine:
    """Has images by name, and takes archives."""

    def __init__(self, **information: str) -> None:
        self.named: dict[str, dict[str, Any]] = {}
        self.information = information
        self.removed: list[str] = []
        self.arrives: dict[str, Any] = {}
        self.api = self

    @property
    def images(self) -> "Images":
        return Images(self)

    def info(self) -> dict[str, str]:
        if not self.information:
            raise APIError("500 Server Error", explanation="no")
        return self.information

    def load_image(self, chunks: object) -> list[dict[str, str]]:
        self.named.setdefault("arrived", self.arrives)
        return [{"stream": f"Loaded image ID: {self.arrives['Id']}\n"}]

    def close(self) -> None:
        pass


class Images:
    """`client.images` and `client.api.images()` in one."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __call__(self, **_: object) -> list[dict[str, Any]]:
        return list(self.engine.named.values())

    def get(self, name: str) -> "Image":
        for reference, attributes in self.engine.named.items():
            if name in (reference, attributes["Id"]):
                return Image(self.engine, attributes)
        raise ImageNotFound(name)

    def remove(self, name: str) -> None:
        self.engine.removed.append(name)


class Image:
    def __init__(self, engine: Engine, attributes: dict[str, Any]) -> None:
        self.engine, self.attrs = engine, attributes

    def tag(self, reference: str) -> None:
        self.engine.named[reference] = self.attrs


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    directory = tmp_path / "docker"
    directory.mkdir()
    (directory / "Dockerfile").write_text("FROM scratch\n")
    (directory / "tiny.lock").write_text("")
    (directory / "images.yaml").write_text(CATALOGUE.format(digest="0" * 64))
    return directory / "images.yaml"


@pytest.fixture
def entry(catalogue: Path) -> EnvironmentEntry:
    return Catalogue.load(catalogue).entry("tiny")


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The one that every address leads to; looking into an image is scripted too."""
    engine = Engine(ID="abc")
    monkeypatch.setattr(prepare, "connect", lambda *_, **__: engine)
    monkeypatch.setattr(
        sys.modules["orchestrator.environments.recording"], "observe", lambda *_: Observation({"a": "1"}, {})
    )
    return engine


def an_image(entry: EnvironmentEntry, top: str = "b") -> dict[str, Any]:
    labels = {"environment": entry.name, "recipe-sha256": recipe_sha256(entry), "lock-sha256": "0", "base": "x"}
    return {
        "Id": f"sha256:{top * 64}",
        "Architecture": "amd64",
        "Os": "linux",
        "Config": {"Env": ["A=1"], "Labels": {f"org.taxmeter.{name}": value for name, value in labels.items()}},
        "RootFS": {"Layers": ["sha256:" + "a" * 64, "sha256:" + top * 64]},
    }


def archive(path: Path, image: dict[str, Any]) -> Path:
    configuration = {
        "architecture": image["Architecture"],
        "os": image["Os"],
        "config": image["Config"],
        "rootfs": {"type": "layers", "diff_ids": image["RootFS"]["Layers"]},
    }
    manifest = [{"Config": "c.json", "RepoTags": None, "Layers": ["one.tar"]}]
    files = {
        "one.tar": b"1",
        "c.json": json.dumps(configuration).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            information = tarfile.TarInfo(name)
            information.size = len(content)
            tar.addfile(information, io.BytesIO(content))
    return path


def record(entry: EnvironmentEntry, **changes: Any) -> BuiltImage:
    found = identity_of(an_image(entry))
    image = BuiltImage(
        reference=f"taxmeter/tiny:{recipe_sha256(entry)[:12]}",
        image_id=found.image_id,
        repo_digest=None,
        layers=found.layers,
        lock_sha256="0",
        recipe_sha256=recipe_sha256(entry),
        base="x",
        config_sha256=found.config_sha256,
        versions={"a": "1"},
        facts={},
    ).model_copy(update=changes)
    record_built_image(entry, image)
    return image


def recorded(entry: EnvironmentEntry) -> BuiltImage:
    return read_built_images(entry.directory / "images.yaml")["tiny"]


def must_not_be(*_: object) -> Any:
    pytest.fail("this must not be reached")


def test_a_push_records_the_digest(entry: EnvironmentEntry, catalogue: Path, monkeypatch: pytest.MonkeyPatch):
    image = record(entry)
    pushed: list[tuple[BuiltImage, str]] = []

    def push_image(client: object, image: BuiltImage, registry: str, say: object) -> str:
        pushed.append((image, registry))
        return "lab:5000/taxmeter/tiny@sha256:1"

    monkeypatch.setattr(prepare, "push_image", push_image)
    assert push([], catalogue, "lab:5000", print) == {"tiny": "lab:5000/taxmeter/tiny@sha256:1"}
    assert pushed == [(image, "lab:5000")]
    assert recorded(entry) == image.model_copy(update={"repo_digest": "lab:5000/taxmeter/tiny@sha256:1"})


@pytest.mark.parametrize("layers_too", [False, True])
def test_what_was_recorded_during_a_push_is_kept(
    entry: EnvironmentEntry, catalogue: Path, monkeypatch: pytest.MonkeyPatch, layers_too: bool
):
    record(entry)
    changes: dict[str, Any] = {"versions": {"a": "2"}} | ({"layers": ("sha256:" + "f" * 64,)} if layers_too else {})

    def push_image(*_: object) -> str:
        record(entry, **changes)
        return "lab:5000/x@sha256:1"

    monkeypatch.setattr(prepare, "push_image", push_image)
    said: list[str] = []
    push(["tiny"], catalogue, "lab:5000", said.append)
    assert recorded(entry).versions == {"a": "2"}
    assert recorded(entry).repo_digest == (None if layers_too else "lab:5000/x@sha256:1")
    assert any("digest lab:5000/x@sha256:1 is not recorded" in line for line in said) is layers_too


def test_a_push_holds_the_lock_of_the_environment(
    entry: EnvironmentEntry, catalogue: Path, monkeypatch: pytest.MonkeyPatch
):
    record(entry)
    lock = entry.state_directory / "locks" / "image-tiny"

    def push_image(*_: object) -> str:
        assert is_held(lock)
        return "lab:5000/x@sha256:1"

    monkeypatch.setattr(prepare, "push_image", push_image)
    push([], catalogue, "lab:5000", print)
    assert not is_held(lock)


def is_held(lock: Path) -> bool:
    with lock.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_what_is_not_in_the_catalogue_any_more_is_known_before_anything_is_pushed(
    entry: EnvironmentEntry, catalogue: Path, monkeypatch: pytest.MonkeyPatch
):
    record(entry)
    record_built_image(entry.model_copy(update={"name": "gone"}), recorded(entry))
    monkeypatch.setattr(prepare, "push_image", must_not_be)
    with pytest.raises(ConfigurationError, match="unknown environment gone"):
        push([], catalogue, "lab:5000", print)


def test_without_names_only_what_was_pushed_is_pulled(
    entry: EnvironmentEntry, catalogue: Path, monkeypatch: pytest.MonkeyPatch
):
    image = record(entry, repo_digest="lab:5000/x@sha256:1")
    record_built_image(entry.model_copy(update={"name": "other"}), image.model_copy(update={"repo_digest": None}))
    asked: list[BuiltImage] = []
    monkeypatch.setattr(prepare, "pull_image", lambda client, image, say: asked.append(image))
    assert pull([], catalogue, None, print) == {"tiny": image}
    assert asked == [image]


def test_what_was_never_pushed_or_is_too_little_known_is_not_pulled(entry: EnvironmentEntry, catalogue: Path):
    record(entry)
    with pytest.raises(ConfigurationError, match="was never pushed: `taxmeter images push"):
        pull(["tiny"], catalogue, None, print)
    record(entry, config_sha256=None, repo_digest="lab:5000/x@sha256:1")
    with pytest.raises(ConfigurationError, match="recorded too little .*run `taxmeter images build` first"):
        pull(["tiny"], catalogue, None, print)


@pytest.mark.parametrize("known", [True, False], ids=["recorded", "new"])
def test_a_loaded_image_is_recorded(
    entry: EnvironmentEntry, catalogue: Path, engine: Engine, tmp_path: Path, known: bool
):
    if known:
        record(entry, repo_digest="lab:5000/x@sha256:1")
    engine.arrives = an_image(entry)
    reference = load(archive(tmp_path / "i.tar", an_image(entry)), catalogue, None, print)
    assert engine.named[reference] == an_image(entry)
    assert recorded(entry).identity == identity_of(an_image(entry))
    assert recorded(entry).versions == {"a": "1"}
    assert recorded(entry).repo_digest == ("lab:5000/x@sha256:1" if known else None)


@pytest.mark.parametrize("config_sha256", ["as it is", None])
def test_another_image_than_the_recorded_one_is_loaded_only_if_it_is_accepted(
    entry: EnvironmentEntry, catalogue: Path, engine: Engine, tmp_path: Path, config_sha256: str | None
):
    before = record(entry, **({} if config_sha256 else {"config_sha256": None}), repo_digest="lab:5000/x@sha256:1")
    engine.arrives = an_image(entry, "c")
    file = archive(tmp_path / "i.tar", an_image(entry, "c"))
    with pytest.raises(ConfigurationError, match=r"another image of tiny than .*layer 2 of 2: .*--accept takes this"):
        load(file, catalogue, None, print)
    assert engine.named == {}
    assert recorded(entry) == before
    load(file, catalogue, None, print, accept=True)
    assert recorded(entry).image_id == "sha256:" + "c" * 64
    assert recorded(entry).repo_digest is None, "no registry has this one"


def test_an_image_of_another_recipe_is_loaded_and_not_recorded(
    entry: EnvironmentEntry, catalogue: Path, engine: Engine, tmp_path: Path
):
    before = record(entry)
    engine.arrives = an_image(entry, "c")
    engine.arrives["Config"]["Labels"]["org.taxmeter.recipe-sha256"] = "34" * 32
    said: list[str] = []
    reference = load(archive(tmp_path / "i.tar", engine.arrives), catalogue, None, said.append)
    assert reference == f"taxmeter/tiny:{'34' * 6}"
    assert said[-1] == f"{reference} is of another recipe than images.yaml has now, so it is not recorded"
    assert recorded(entry) == before


@pytest.mark.parametrize("was_there", [True, False])
def test_of_what_is_not_the_image_of_the_file_only_what_is_new_is_removed(
    entry: EnvironmentEntry, engine: Engine, tmp_path: Path, was_there: bool
):
    other = an_image(entry, "c")
    engine.arrives = other
    if was_there:
        engine.named["somebody/has:it"] = other
    with pytest.raises(
        InfrastructureError, match=r"what arrived is not the recorded image, so it is not used: .*layer 2"
    ):
        load_image(engine, archive(tmp_path / "i.tar", an_image(entry)), print)
    assert engine.removed == ([] if was_there else [other["Id"]])


def test_a_copy_waits_by_the_engine_and_says_when_that_fails(
    entry: EnvironmentEntry, catalogue: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    image = record(entry)
    lock = entry.state_directory / "locks" / "copy-tiny-abc"
    copied: list[BuiltImage] = []

    def copy_image(image: BuiltImage, *_: object) -> None:
        assert is_held(lock)
        copied.append(image)

    monkeypatch.setattr(prepare, "copy_image", copy_image)
    assert copy("tiny", catalogue, "ssh://lab1", None, print) == image
    assert copied == [image]
    engine.information = {}
    with pytest.raises(InfrastructureError, match="the engine at ssh://lab1 failed: no"):
        copy("tiny", catalogue, "ssh://lab1", None, print)


@pytest.mark.parametrize("way", [transfer.copy_image, transfer.save_image])
def test_too_little_in_the_record_is_the_records_fault(entry: EnvironmentEntry, way: Callable[..., Any]):
    image = record(entry, config_sha256=None)
    arguments = (image, None, None) if way is transfer.copy_image else (None, image, Path("x"))
    with pytest.raises(ConfigurationError, match="recorded too little"):
        way(*arguments, print)


def test_what_has_no_lock_yet_is_not_built(monkeypatch: pytest.MonkeyPatch):
    catalogue = Path(__file__).parents[2] / "docker" / "images.yaml"
    known = Catalogue.load(catalogue)
    waiting = [name for name, entry in known.entries.items() if entry.unresolved is not None]
    for name in waiting:
        with pytest.raises(ConfigurationError, match=f"{name} cannot be built: "):
            prepare.prepare([name], catalogue, print)
    said: list[str] = []
    monkeypatch.setattr(prepare, "connect", lambda: Engine())
    monkeypatch.setattr(prepare, "ensure_image", lambda entry, *_, **__: entry.name)
    assert list(prepare.prepare([], catalogue, said.append)) == ["cpu", "cpu-2022"]
    assert "cuda13" in said[0]
