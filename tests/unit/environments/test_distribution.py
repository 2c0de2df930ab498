"""What push, pull, load and copy do with the record, and what they say; the transfers themselves are scripted."""

import fcntl
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments import (
    BuiltImage,
    Catalogue,
    EnvironmentEntry,
    copy_environment,
    identity_of,
    load_environment,
    prepare,
    pull_images,
    push_images,
    read_built_images,
    recipe_sha256,
)
from orchestrator.environments.observation import Observation
from orchestrator.environments.record import record_built_image
from orchestrator.environments.registry import check_registry, follow
from orchestrator.environments.transfer import INTERVAL_S, counted, load_image
from orchestrator.errors import ConfigurationError, InfrastructureError
from tests.conftest import PROJECT
from tests.scripted_engine import Engine, an_image, archive, reference_of, tiny_entry

image_module, record_module, registry, transfer = (
    sys.modules[f"orchestrator.environments.{name}"] for name in ("image", "record", "registry", "transfer")
)


@pytest.fixture
def entry(tmp_path: Path) -> EnvironmentEntry:
    return tiny_entry(tmp_path)


@pytest.fixture
def catalogue(entry: EnvironmentEntry) -> Path:
    return entry.directory / "images.yaml"


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The one that every address leads to; looking into an image is scripted too."""
    engine = Engine(ID="abc")
    for module in (registry, transfer):
        monkeypatch.setattr(module, "connect", lambda *_, **__: engine)
    monkeypatch.setattr(record_module, "observe", lambda *_: Observation({"a": "1"}, {}))
    return engine


def record(entry: EnvironmentEntry, **changes: Any) -> BuiltImage:
    found = identity_of(an_image(entry))
    image = BuiltImage(
        reference=reference_of(entry), image_id=found.image_id, repo_digest=None, layers=found.layers,
        lock_sha256="0", recipe_sha256=recipe_sha256(entry), base="x", config_sha256=found.config_sha256,
        versions={"a": "1"}, facts={},
    ).model_copy(update=changes)  # fmt: skip
    record_built_image(entry, image)
    return image


def recorded(entry: EnvironmentEntry) -> BuiltImage:
    return read_built_images(entry.directory / "images.yaml")["tiny"]


@pytest.mark.parametrize("meanwhile", [{}, {"versions": {"a": "2"}}, {"layers": ("sha256:" + "f" * 64,)}])
def test_a_push_records_the_digest_of_what_it_pushed(
    entry: EnvironmentEntry, catalogue: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: dict[str, Any]
):
    image = record(entry)
    lock = entry.state_directory / "locks" / "image-tiny"

    def push_image(client: object, pushed: BuiltImage, registry: str, say: object) -> str:
        assert (pushed, registry) == (image, "lab:5000")
        assert is_held(lock)
        record(entry, **meanwhile)
        return "lab:5000/x@sha256:1"

    monkeypatch.setattr(registry, "push_image", push_image)
    said: list[str] = []
    assert push_images([], catalogue, "lab:5000", said.append) == {"tiny": "lab:5000/x@sha256:1"}
    assert not is_held(lock)
    is_another = "layers" in meanwhile
    expected = image.model_copy(update=meanwhile | {"repo_digest": None if is_another else "lab:5000/x@sha256:1"})
    assert recorded(entry) == expected
    assert any("digest lab:5000/x@sha256:1 is not recorded" in line for line in said) is is_another


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
    monkeypatch.setattr(registry, "push_image", lambda *_: pytest.fail("something was pushed"))
    with pytest.raises(ConfigurationError, match="unknown environment gone"):
        push_images([], catalogue, "lab:5000", print)


def test_without_names_only_what_was_pushed_is_pulled(
    entry: EnvironmentEntry, catalogue: Path, monkeypatch: pytest.MonkeyPatch
):
    image = record(entry)
    with pytest.raises(ConfigurationError, match="was never pushed: `taxmeter images push"):
        pull_images(["tiny"], catalogue, None, print)
    record_built_image(entry.model_copy(update={"name": "other"}), image)
    image = record(entry, repo_digest="lab:5000/x@sha256:1")
    asked: list[BuiltImage] = []
    monkeypatch.setattr(registry, "pull_image", lambda client, image, say: asked.append(image))
    assert pull_images([], catalogue, None, print) == {"tiny": image}
    assert asked == [image]


@pytest.mark.parametrize("digest", [None, "lab:5000/x@sha256:1"], ids=["new", "recorded"])
def test_a_loaded_image_is_recorded(
    entry: EnvironmentEntry, catalogue: Path, engine: Engine, tmp_path: Path, digest: str | None
) -> None:
    if digest is not None:
        record(entry, repo_digest=digest)
    engine.arrives = an_image(entry)
    reference = load_environment(archive(tmp_path / "i.tar", engine.arrives), catalogue, None, print)
    assert engine.named[reference] == an_image(entry)
    found = recorded(entry)
    assert (found.identity, found.versions, found.repo_digest) == (identity_of(an_image(entry)), {"a": "1"}, digest)


def test_another_image_than_the_recorded_one_is_loaded_only_if_it_is_accepted(
    entry: EnvironmentEntry, catalogue: Path, engine: Engine, tmp_path: Path
) -> None:
    before = record(entry, repo_digest="lab:5000/x@sha256:1")
    engine.arrives = an_image(entry, "c")
    file = archive(tmp_path / "i.tar", engine.arrives)
    with pytest.raises(ConfigurationError, match=r"another image of tiny than .*layer 2 of 2: .*--accept takes this"):
        load_environment(file, catalogue, None, print)
    assert engine.named == {}
    assert recorded(entry) == before
    load_environment(file, catalogue, None, print, accept=True)
    assert recorded(entry).image_id == "sha256:" + "c" * 64
    assert recorded(entry).repo_digest is None, "no registry has this one"


def test_an_image_of_another_recipe_is_loaded_and_not_recorded(
    entry: EnvironmentEntry, catalogue: Path, engine: Engine, tmp_path: Path
) -> None:
    before = record(entry)
    engine.arrives = an_image(entry, "c")
    engine.arrives["Config"]["Labels"]["org.taxmeter.recipe-sha256"] = "34" * 32
    said: list[str] = []
    reference = load_environment(archive(tmp_path / "i.tar", engine.arrives), catalogue, None, said.append)
    assert reference == f"taxmeter/tiny:{'34' * 6}"
    assert said[-1].startswith(f"{reference} is of another recipe")
    assert recorded(entry) == before


@pytest.mark.parametrize("was_there", [True, False])
def test_of_what_is_not_the_image_of_the_file_only_what_is_new_is_removed(
    entry: EnvironmentEntry, engine: Engine, tmp_path: Path, was_there: bool
) -> None:
    engine.arrives = an_image(entry, "c")
    if was_there:
        engine.named["somebody/has:it"] = engine.arrives
    with pytest.raises(InfrastructureError, match=r"what arrived is not the recorded image, .*layer 2"):
        load_image(engine, archive(tmp_path / "i.tar", an_image(entry)), print)
    assert engine.removed == ([] if was_there else [engine.arrives["Id"]])


def test_a_copy_waits_by_the_engine_and_says_when_that_fails(
    entry: EnvironmentEntry, catalogue: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    image = record(entry)
    lock = entry.state_directory / "locks" / "copy-tiny-abc"
    copied: list[str] = []

    def copy_image(reference: str, *_: object) -> None:
        assert is_held(lock)
        copied.append(reference)

    monkeypatch.setattr(transfer, "copy_image", copy_image)
    assert copy_environment("tiny", catalogue, "ssh://lab1", None, print) == image
    assert copied == [image.reference]
    engine.information = {}
    with pytest.raises(InfrastructureError, match="the engine at ssh://lab1 failed: no"):
        copy_environment("tiny", catalogue, "ssh://lab1", None, print)


def test_what_has_no_lock_yet_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = PROJECT / "docker" / "images.yaml"
    for name, entry in Catalogue.load(catalogue).entries.items():
        if entry.unresolved is not None:
            with pytest.raises(ConfigurationError, match=f"{name} cannot be built: "):
                prepare([name], catalogue, print)
    said: list[str] = []
    monkeypatch.setattr(image_module, "connect", Engine)
    monkeypatch.setattr(image_module, "ensure_image", lambda entry, *_, **__: entry.name)
    assert list(prepare([], catalogue, said.append)) == ["cpu", "cpu-2022"]
    assert "cuda13" in said[0]


@pytest.mark.parametrize("good", ["lab:5000", "127.0.0.1:5000/bench", "ghcr.io/a/b-c", "localhost", "r.lab/x/"])
def test_a_registry_is_a_host_with_a_port_or_prefix(good: str) -> None:
    assert check_registry(good) == good.removesuffix("/")


@pytest.mark.parametrize("bad", ["", "myuser", "lab/bench", "https://lab:5000", "lab:5000/Upper", "lab:port"])
def test_what_is_no_registry(bad: str) -> None:
    with pytest.raises(ConfigurationError, match=r"expected HOST\[:PORT\]\[/PREFIX\]"):
        check_registry(bad)


def pushing(layer: str, current: int, total: int, status: str = "Pushing") -> dict[str, object]:
    return {"status": status, "id": layer, "progressDetail": {"current": current, "total": total}}


def test_progress_sums_the_layers_and_leaves_out_unpacking() -> None:
    said: list[str] = []
    events = [
        *(pushing("a", 1_000_000, 4_000_000), pushing("b", 2_000_000, 6_000_000)),
        *(pushing("b", 1, 6_000_000, "Extracting"), {"status": "Pushed", "id": "a"}),
    ]
    follow(events, "pushing x", said.append, count(INTERVAL_S, INTERVAL_S).__next__)
    assert said == [f"pushing x: {told} MB" for told in ("1 of 4", "3 of 10", "3 of 10", "6 of 10")]


def test_progress_of_bytes_is_told_every_few_seconds_only() -> None:
    said: list[str] = []
    quickly = count(0.0, INTERVAL_S / 20).__next__
    assert sum(map(len, counted([b"x" * 1000] * 50, "copying x", said.append, quickly))) == 50_000
    assert 1 <= len(said) <= 3


def test_a_push_ends_with_its_digest_or_an_error() -> None:
    good = [pushing("a", 1, 2), {"aux": {"Tag": "1", "Digest": "sha256:1", "Size": 3}}]
    assert follow(good, "pushing x", print) == "sha256:1"
    bad = [{"errorDetail": {"message": "m"}, "error": "denied: requested access to the resource is denied"}]
    with pytest.raises(InfrastructureError, match="pushing x failed: the registry refuses: .*docker login"):
        follow(bad, "pushing x", print)
