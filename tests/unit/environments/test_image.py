"""The recorded image is the only one that is used, with a scripted engine; and the file that records it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from orchestrator.environments import (
    BuildPolicy,
    BuiltImage,
    EnvironmentEntry,
    ensure_image,
    identity_of,
    read_built_images,
    verify_images,
)
from orchestrator.environments.observation import Observation, parse
from orchestrator.environments.record import labels_of, record_built_image, recorded_images
from orchestrator.errors import ConfigurationError, InfrastructureError
from tests.scripted_engine import Engine, an_image, reference_of, tiny_entry

image_module, record = (sys.modules[f"orchestrator.environments.{name}"] for name in ("image", "record"))
SEEN = Observation({"python": "3.11.2", "torch": "2.13.0"}, {"torch_git_version": "abc"})


@pytest.fixture
def entry(tmp_path: Path) -> EnvironmentEntry:
    return tiny_entry(tmp_path)


@pytest.fixture(autouse=True)
def looked_into(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The images that were looked into."""
    looked: list[str] = []

    def observe(client: object, image_id: str) -> Observation:
        looked.append(image_id)
        return SEEN

    monkeypatch.setattr(record, "observe", observe)
    return looked


@pytest.fixture
def engine(entry: EnvironmentEntry) -> Engine:
    """It has an image of the environment."""
    engine = Engine()
    engine.named[reference_of(entry)] = an_image(entry)
    return engine


@pytest.fixture
def image(entry: EnvironmentEntry, engine: Engine) -> BuiltImage:
    """The same, recorded."""
    return ensure_image(entry, engine, print)


def record_of(entry: EnvironmentEntry) -> BuiltImage:
    return read_built_images(entry.directory / "images.yaml")[entry.name]


def test_what_the_engine_has_is_recorded_with_what_is_seen_inside(
    entry: EnvironmentEntry, engine: Engine, image: BuiltImage, looked_into: list[str]
):
    assert record_of(entry) == image
    assert image.identity == identity_of(an_image(entry))
    assert (image.versions, image.facts, image.size_bytes) == (dict(SEEN.versions), dict(SEEN.facts), 5)
    assert ensure_image(entry, engine, print) == image
    # the same content under another id is no other image
    engine.named[reference_of(entry)] = an_image(entry, image_id="2")
    assert ensure_image(entry, engine, print) == image
    assert looked_into == [image.image_id]


def test_another_image_under_the_same_name_is_refused_with_both_sides_until_it_is_accepted(
    entry: EnvironmentEntry, engine: Engine, image: BuiltImage
) -> None:
    engine.named[reference_of(entry)] = an_image(entry, top="c", image_id="2")
    with pytest.raises(ConfigurationError) as refused:
        ensure_image(entry, engine, print)
    text, layers = str(refused.value), "layer 2 of 2: expected bbbbbbbbbbbb, found cccccccccccc"
    assert text.startswith(f"{entry.directory / 'images.lock.yaml'}: images.tiny: ")
    assert f"recorded sha256:{'b' * 64}, found sha256:{'2' * 64}; {layers}" in text
    assert "`taxmeter images build --accept tiny`" in text
    assert "\n" not in text
    assert record_of(entry) == image
    said: list[str] = []
    accepted = ensure_image(entry, engine, said.append, policy=BuildPolicy(accept=True))
    assert said[0] == f"tiny is no longer the image that was recorded: {layers}"
    assert record_of(entry) == accepted
    assert accepted.image_id == "sha256:" + "2" * 64


def test_without_its_name_the_recorded_image_is_found_among_others(
    entry: EnvironmentEntry, engine: Engine, image: BuiltImage
):
    engine.named.clear()
    engine.unnamed = [an_image(entry), an_image(entry, top="c", image_id="2") | {"Created": "2027"}]
    assert ensure_image(entry, engine, print) == image
    assert engine.named[reference_of(entry)]["Id"] == image.image_id


def failing(message: str) -> Callable[..., Any]:
    return Mock(side_effect=InfrastructureError(message))


@pytest.mark.parametrize("digest", [None, "lab:5000/x@sha256:1"])
def test_a_recorded_image_that_is_gone_is_brought_and_not_built(
    entry: EnvironmentEntry, engine: Engine, image: BuiltImage, monkeypatch: pytest.MonkeyPatch, digest: str | None
) -> None:
    image = image.model_copy(update={"repo_digest": digest})
    record_built_image(entry, image)
    engine.named.clear()
    # another image of the same recipe gets no name while the recorded one can be brought
    engine.unnamed = [an_image(entry, top="c", image_id="2")]

    def bring(reference: str) -> dict[str, Any]:
        assert engine.named == {}
        engine.named[reference] = an_image(entry)
        return an_image(entry)

    def connect(address: str, timeout_s: float) -> Engine:
        assert timeout_s >= 900, "gigabytes pass over such a connection"
        return engine if address == "unix:///other.sock" else Engine()

    monkeypatch.setattr(image_module, "connect", connect)
    if digest is None:
        monkeypatch.setattr(image_module, "copy_image", lambda reference, *_: bring(reference))
    else:
        monkeypatch.setattr(image_module, "pull_image", lambda _, wanted, __: bring(wanted.reference))
    assert ensure_image(entry, engine, print, engine="unix:///other.sock") == image == record_of(entry)
    # unless another is asked for
    engine.named.clear()
    accepted = ensure_image(entry, engine, print, policy=BuildPolicy(accept=True))
    assert accepted.image_id == "sha256:" + "2" * 64


@pytest.mark.parametrize(
    ("digest", "pulled"), [(None, "it was never pushed"), ("lab:5000/x@sha256:1", "cannot be reached: login expired")]
)
@pytest.mark.parametrize(
    ("address", "copied"), [(None, "there is no other engine"), ("unix:///other.sock", "broke the connection off")]
)
def test_a_recorded_image_that_cannot_be_had_is_an_error_and_nothing_is_built(
    entry: EnvironmentEntry, image: BuiltImage, monkeypatch: pytest.MonkeyPatch,
    digest: str | None, pulled: str, address: str | None, copied: str,
) -> None:  # fmt: skip
    record_built_image(entry, image.model_copy(update={"repo_digest": digest}))
    before = record_of(entry)
    monkeypatch.setenv("DOCKER_HOST", "unix:///home.sock")
    monkeypatch.setattr(image_module, "_make", failing("it was built"))
    monkeypatch.setattr(image_module, "connect", lambda *_: Engine())
    monkeypatch.setattr(image_module, "pull_image", failing("the registry cannot be reached: login expired"))
    monkeypatch.setattr(image_module, "copy_image", failing("the engine broke the connection off"))
    with pytest.raises(InfrastructureError, match="^the recorded image .* of tiny cannot be had: ") as raised:
        ensure_image(entry, Engine(), print, engine=address)
    text = str(raised.value)
    where, mend = f"at {address or 'unix:///home.sock'} does not have it", "`taxmeter images build --from-scratch tiny`"
    assert [told for told in (image.image_id, where, pulled, copied, mend) if told not in text] == []
    assert "\n" not in text
    assert record_of(entry) == before


def test_verify_names_what_differs(
    entry: EnvironmentEntry, engine: Engine, image: BuiltImage, monkeypatch: pytest.MonkeyPatch
):
    catalogue = entry.directory / "images.yaml"
    monkeypatch.setattr(record, "connect", lambda *_: engine)
    seen = Observation({"python": "3.11.2", "torch": "2.14.0"}, {"torch_git_version": "def"})
    monkeypatch.setattr(record, "observe", lambda *_: seen)
    engine.named[reference_of(entry)] = an_image(entry, top="c")
    assert verify_images(["tiny"], catalogue, None, print)["tiny"] == (
        "layer 2 of 2: expected bbbbbbbbbbbb, found cccccccccccc",
        "torch: expected 2.13.0, found 2.14.0",
        "torch_git_version: expected abc, found def",
    )
    engine.named.clear()
    assert verify_images([], catalogue, None, print)["tiny"] == (f"the engine has no {image.reference}",)


def test_what_is_not_recorded_and_what_is_of_somebody_else_are_named(entry: EnvironmentEntry, engine: Engine) -> None:
    catalogue = entry.directory / "images.yaml"
    with pytest.raises(ConfigurationError, match="no image is recorded: `taxmeter images build` does so"):
        recorded_images([], catalogue)
    ensure_image(entry, engine, print)
    with pytest.raises(ConfigurationError, match="tini is not recorded: .*; did you mean tiny"):
        recorded_images(["tini"], catalogue)
    with pytest.raises(InfrastructureError, match="has no label org.taxmeter.environment"):
        labels_of({"Id": "sha256:1", "Config": {"Labels": None}})


def test_one_record_does_not_lose_another_and_is_not_written_again(entry: EnvironmentEntry, image: BuiltImage):
    # digits alone must come back as text
    other = image.model_copy(update={"recipe_sha256": "12345678" * 8})
    record_built_image(entry.model_copy(update={"name": "other"}), other)
    path = entry.directory / "images.lock.yaml"
    assert read_built_images(path) == {"tiny": image, "other": other}
    before = path.stat()
    record_built_image(entry, image)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    path.write_text("images:\n  a: 3\n")
    with pytest.raises(ConfigurationError, match=r"images\.lock\.yaml:2: images\.a"):
        read_built_images(path)


def test_what_is_true_of_one_host_only_is_not_recorded() -> None:
    of_the_host = {"torch_cpu_capability": "AVX2", "env_OMP": "1", "driver_libcuda": "x"}
    facts = {"torch_cuda_version": None, **of_the_host, "libc": "g"}
    printed = "noise\n" + json.dumps({"versions": {"python": "3"}, "facts": facts}) + "\n"
    expected = Observation({"python": "3"}, {"torch_cuda_version": None, "libc": "g"})
    assert parse(printed) == parse(printed + "bye\n7\n{}\n") == expected
