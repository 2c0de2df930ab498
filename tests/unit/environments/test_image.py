"""The recorded image is the only one that is used: with a scripted engine, the file that records it, and transfers."""

import fcntl
import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from orchestrator.environments import (
    BuildPolicy,
    BuiltImage,
    Catalogue,
    copy_environment,
    ensure_image,
    identity_of,
    load_environment,
    prepare,
    pull_images,
    push_images,
    read_built_images,
    verify_images,
)
from orchestrator.environments.observation import Observation, parse
from orchestrator.environments.record import labels_of, record_built_image, recorded_images
from orchestrator.environments.registry import check_registry, follow
from orchestrator.environments.transfer import INTERVAL_S, counted, load_image
from orchestrator.errors import ConfigurationError, InfrastructureError
from tests.conftest import PROJECT
from tests.scripted_engine import Engine, an_image, archive, reference_of, tiny_entry

image_module, record_module, registry, transfer = (
    sys.modules[f"orchestrator.environments.{name}"] for name in ("image", "record", "registry", "transfer")
)
SEEN = Observation({"python": "3.11.2", "torch": "2.13.0"}, {"torch_git_version": "abc"})
PUSHED = "lab:5000/x@sha256:1"
LAYERS = "layer 2 of 2: expected bbbbbbbbbbbb, found cccccccccccc"


class Bed:
    """An environment, an engine that has an image of it, and what was looked into."""

    def __init__(self, project: Path) -> None:
        self.entry = tiny_entry(project)
        self.catalogue = self.entry.directory / "images.yaml"
        self.engine = Engine(ID="abc")
        self.has(an_image(self.entry))
        self.looked_into: list[str] = []

    def observe(self, _: object, image_id: str) -> Observation:
        self.looked_into.append(image_id)
        return SEEN

    def has(self, image: dict[str, Any]) -> None:
        """All that the engine has."""
        self.engine.named, self.engine.unnamed = {reference_of(self.entry): image}, []

    def other(self, image_id: str | None = None) -> dict[str, Any]:
        """An image of the same recipe with another layer."""
        return an_image(self.entry, "c", image_id)

    def ensured(self, **options: Any) -> BuiltImage:
        return ensure_image(self.entry, self.engine, print, **options)

    def record(self, image: BuiltImage, **changes: Any) -> BuiltImage:
        image = image.model_copy(update=changes)
        record_built_image(self.entry, image)
        return image

    @property
    def recorded(self) -> BuiltImage:
        return read_built_images(self.catalogue)["tiny"]

    def load(self, image: dict[str, Any], say: Callable[[str], None] = print, **options: Any) -> str:
        """From a file, into an engine that has nothing else."""
        self.engine.named, self.engine.arrives = {}, image
        return load_environment(archive(self.catalogue.with_name("i.tar"), image), self.catalogue, None, say, **options)


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    bed = Bed(tmp_path)
    for module in (registry, transfer, record_module):
        monkeypatch.setattr(module, "connect", lambda *_, **__: bed.engine)
    monkeypatch.setattr(record_module, "observe", bed.observe)
    return bed


@pytest.fixture
def image(bed: Bed) -> BuiltImage:
    """The one that the engine has, recorded."""
    return bed.ensured()


def test_what_the_engine_has_is_recorded_with_what_is_seen_inside(bed: Bed, image: BuiltImage) -> None:
    assert bed.recorded == image
    assert image.identity == identity_of(an_image(bed.entry))
    assert (image.versions, image.facts, image.size_bytes) == (dict(SEEN.versions), dict(SEEN.facts), 5)
    assert bed.ensured() == image
    # the same content under another id is no other image
    bed.has(an_image(bed.entry, image_id="2"))
    assert bed.ensured() == image
    assert bed.looked_into == [image.image_id]


def test_another_image_under_the_same_name_is_refused_with_both_sides_until_it_is_accepted(
    bed: Bed, image: BuiltImage
) -> None:
    bed.has(bed.other("2"))
    with pytest.raises(ConfigurationError) as refused:
        bed.ensured()
    text = str(refused.value)
    assert text.startswith(f"{bed.entry.directory / 'images.lock.yaml'}: images.tiny: ")
    assert f"recorded sha256:{'b' * 64}, found sha256:{'2' * 64}; {LAYERS}" in text
    assert "`taxmeter images build --accept tiny`" in text
    assert "\n" not in text
    assert bed.recorded == image
    said: list[str] = []
    accepted = ensure_image(bed.entry, bed.engine, said.append, policy=BuildPolicy(accept=True))
    assert said[0] == f"tiny is no longer the image that was recorded: {LAYERS}"
    assert bed.recorded == accepted
    assert accepted.image_id == "sha256:" + "2" * 64


def test_without_its_name_the_recorded_image_is_found_among_others(bed: Bed, image: BuiltImage) -> None:
    bed.engine.named.clear()
    bed.engine.unnamed = [an_image(bed.entry), bed.other("2") | {"Created": "2027"}]
    assert bed.ensured() == image
    assert bed.engine.named[reference_of(bed.entry)]["Id"] == image.image_id


def failing(message: str) -> Callable[..., Any]:
    return Mock(side_effect=InfrastructureError(message))


@pytest.mark.parametrize("digest", [None, PUSHED])
def test_a_recorded_image_that_is_gone_is_brought_and_not_built(
    bed: Bed, image: BuiltImage, monkeypatch: pytest.MonkeyPatch, digest: str | None
) -> None:
    image = bed.record(image, repo_digest=digest)
    bed.engine.named.clear()
    # another image of the same recipe gets no name while the recorded one can be brought
    bed.engine.unnamed = [bed.other("2")]

    def bring(reference: str) -> dict[str, Any]:
        assert bed.engine.named == {}
        bed.engine.named[reference] = an_image(bed.entry)
        return an_image(bed.entry)

    def connect(address: str, timeout_s: float) -> Engine:
        assert timeout_s >= 900, "gigabytes pass over such a connection"
        return bed.engine if address == "unix:///other.sock" else Engine()

    monkeypatch.setattr(image_module, "connect", connect)
    if digest is None:
        monkeypatch.setattr(image_module, "copy_image", lambda reference, *_: bring(reference))
    else:
        monkeypatch.setattr(image_module, "pull_image", lambda _, wanted, __: bring(wanted.reference))
    assert bed.ensured(engine="unix:///other.sock") == image == bed.recorded
    # unless another is asked for
    bed.engine.named.clear()
    assert bed.ensured(policy=BuildPolicy(accept=True)).image_id == "sha256:" + "2" * 64


@pytest.mark.parametrize(
    ("digest", "pulled"), [(None, "it was never pushed"), (PUSHED, "the registry cannot be reached: login expired")]
)
@pytest.mark.parametrize(
    ("address", "copied"),
    [(None, "there is no other engine"), ("unix:///other.sock", "the engine broke the connection off")],
)
def test_a_recorded_image_that_cannot_be_had_is_an_error_and_nothing_is_built(
    bed: Bed, image: BuiltImage, monkeypatch: pytest.MonkeyPatch,
    digest: str | None, pulled: str, address: str | None, copied: str,
) -> None:  # fmt: skip
    before = bed.record(image, repo_digest=digest)
    monkeypatch.setenv("DOCKER_HOST", "unix:///home.sock")
    monkeypatch.setattr(image_module, "_make", failing("it was built"))
    monkeypatch.setattr(image_module, "connect", lambda *_: Engine())
    monkeypatch.setattr(image_module, "pull_image", failing("the registry cannot be reached: login expired"))
    monkeypatch.setattr(image_module, "copy_image", failing("the engine broke the connection off"))
    with pytest.raises(InfrastructureError) as raised:
        ensure_image(bed.entry, Engine(), print, engine=address)
    text = str(raised.value)
    assert text.startswith(f"the recorded image {image.image_id} of tiny cannot be had: ")
    where, mend = f"at {address or 'unix:///home.sock'} does not have it", "`taxmeter images build --from-scratch tiny`"
    assert [told for told in (where, pulled, copied, mend) if told not in text] == []
    assert "\n" not in text
    assert bed.recorded == before


def test_verify_names_what_differs(bed: Bed, image: BuiltImage, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Observation({"python": "3.11.2", "torch": "2.14.0"}, {"torch_git_version": "def"})
    monkeypatch.setattr(record_module, "observe", lambda *_: seen)
    bed.has(bed.other())
    assert verify_images(["tiny"], bed.catalogue, None, print)["tiny"] == (
        LAYERS,
        "torch: expected 2.13.0, found 2.14.0",
        "torch_git_version: expected abc, found def",
    )
    bed.engine.named.clear()
    assert verify_images([], bed.catalogue, None, print)["tiny"] == (f"the engine has no {image.reference}",)


def test_what_is_not_recorded_and_what_is_of_somebody_else_are_named(bed: Bed) -> None:
    with pytest.raises(ConfigurationError, match="no image is recorded: `taxmeter images build` does so"):
        recorded_images([], bed.catalogue)
    bed.ensured()
    with pytest.raises(ConfigurationError, match="tini is not recorded: .*; did you mean tiny"):
        recorded_images(["tini"], bed.catalogue)
    with pytest.raises(InfrastructureError, match="has no label org.taxmeter.environment"):
        labels_of({"Id": "sha256:1", "Config": {"Labels": None}})


def test_one_record_does_not_lose_another_and_is_not_written_again(bed: Bed, image: BuiltImage) -> None:
    # digits alone must come back as text
    other = image.model_copy(update={"recipe_sha256": "12345678" * 8})
    record_built_image(bed.entry.model_copy(update={"name": "other"}), other)
    path = bed.entry.directory / "images.lock.yaml"
    assert read_built_images(path) == {"tiny": image, "other": other}
    before = path.stat()
    bed.record(image)
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


def is_held(lock: Path) -> bool:
    with lock.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.parametrize("meanwhile", [{}, {"versions": {"a": "2"}}, {"layers": ("sha256:" + "f" * 64,)}])
def test_a_push_records_the_digest_of_what_it_pushed(
    bed: Bed, image: BuiltImage, monkeypatch: pytest.MonkeyPatch, meanwhile: dict[str, Any]
) -> None:
    lock = bed.entry.state_directory / "locks" / "image-tiny"

    def push_image(client: object, pushed: BuiltImage, registry: str, say: object) -> str:
        assert (pushed, registry) == (image, "lab:5000")
        assert is_held(lock)
        bed.record(image, **meanwhile)
        return PUSHED

    monkeypatch.setattr(registry, "push_image", push_image)
    said: list[str] = []
    assert push_images([], bed.catalogue, "lab:5000", said.append) == {"tiny": PUSHED}
    assert not is_held(lock)
    is_another = "layers" in meanwhile
    assert bed.recorded == image.model_copy(update=meanwhile | {"repo_digest": None if is_another else PUSHED})
    assert any(f"digest {PUSHED} is not recorded" in line for line in said) is is_another


def test_what_is_not_in_the_catalogue_any_more_is_known_before_anything_is_pushed(
    bed: Bed, image: BuiltImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_built_image(bed.entry.model_copy(update={"name": "gone"}), image)
    monkeypatch.setattr(registry, "push_image", lambda *_: pytest.fail("something was pushed"))
    with pytest.raises(ConfigurationError, match="unknown environment gone"):
        push_images([], bed.catalogue, "lab:5000", print)


def test_without_names_only_what_was_pushed_is_pulled(
    bed: Bed, image: BuiltImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="was never pushed: `taxmeter images push"):
        pull_images(["tiny"], bed.catalogue, None, print)
    record_built_image(bed.entry.model_copy(update={"name": "other"}), image)
    image = bed.record(image, repo_digest=PUSHED)
    asked: list[BuiltImage] = []
    monkeypatch.setattr(registry, "pull_image", lambda client, image, say: asked.append(image))
    assert pull_images([], bed.catalogue, None, print) == {"tiny": image}
    assert asked == [image]


@pytest.mark.parametrize("digest", [None, PUSHED], ids=["new", "recorded"])
def test_a_loaded_image_is_recorded(bed: Bed, digest: str | None) -> None:
    if digest is not None:
        bed.record(bed.ensured(), repo_digest=digest)
    loaded = an_image(bed.entry)
    assert bed.engine.named[bed.load(loaded)] == loaded
    found = bed.recorded
    assert (found.identity, found.versions, found.repo_digest) == (identity_of(loaded), dict(SEEN.versions), digest)


def test_another_image_than_the_recorded_one_is_loaded_only_if_it_is_accepted(bed: Bed, image: BuiltImage) -> None:
    before = bed.record(image, repo_digest=PUSHED)
    with pytest.raises(ConfigurationError, match=r"another image of tiny than .*layer 2 of 2: .*--accept takes this"):
        bed.load(bed.other())
    assert bed.engine.named == {}
    assert bed.recorded == before
    bed.load(bed.other(), accept=True)
    assert bed.recorded.image_id == "sha256:" + "c" * 64
    assert bed.recorded.repo_digest is None, "no registry has this one"


def test_an_image_of_another_recipe_is_loaded_and_not_recorded(bed: Bed, image: BuiltImage) -> None:
    other, said = bed.other(), list[str]()
    other["Config"]["Labels"]["org.taxmeter.recipe-sha256"] = "34" * 32
    reference = bed.load(other, said.append)
    assert reference == f"taxmeter/tiny:{'34' * 6}"
    assert said[-1].startswith(f"{reference} is of another recipe")
    assert bed.recorded == image


@pytest.mark.parametrize("was_there", [True, False])
def test_of_what_is_not_the_image_of_the_file_only_what_is_new_is_removed(
    bed: Bed, tmp_path: Path, was_there: bool
) -> None:
    bed.engine.arrives = bed.other()
    bed.engine.named = {"somebody/has:it": bed.engine.arrives} if was_there else {}
    with pytest.raises(InfrastructureError, match=r"what arrived is not the recorded image, .*layer 2"):
        load_image(bed.engine, archive(tmp_path / "i.tar", an_image(bed.entry)), print)
    assert bed.engine.removed == ([] if was_there else [bed.engine.arrives["Id"]])


def test_a_copy_waits_by_the_engine_and_says_when_that_fails(
    bed: Bed, image: BuiltImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []

    def copy_image(reference: str, *_: object) -> None:
        assert is_held(bed.entry.state_directory / "locks" / "copy-tiny-abc")
        copied.append(reference)

    monkeypatch.setattr(transfer, "copy_image", copy_image)
    assert copy_environment("tiny", bed.catalogue, "ssh://lab1", None, print) == image
    assert copied == [image.reference]
    bed.engine.information = {}
    with pytest.raises(InfrastructureError, match="the engine at ssh://lab1 failed: no"):
        copy_environment("tiny", bed.catalogue, "ssh://lab1", None, print)


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


def test_a_registry_is_a_host_with_a_port_or_prefix() -> None:
    for good in ("lab:5000", "127.0.0.1:5000/bench", "ghcr.io/a/b-c", "localhost", "r.lab/x/"):
        assert check_registry(good) == good.removesuffix("/")
    for bad in ("", "myuser", "lab/bench", "https://lab:5000", "lab:5000/Upper", "lab:port"):
        with pytest.raises(ConfigurationError, match=r"expected HOST\[:PORT\]\[/PREFIX\]"):
            check_registry(bad)


def pushing(layer: str, current: int, total: int, status: str = "Pushing") -> dict[str, object]:
    return {"status": status, "id": layer, "progressDetail": {"current": current, "total": total}}


def test_progress_sums_the_layers_without_unpacking_and_is_told_every_few_seconds_only() -> None:
    said: list[str] = []
    events: list[dict[str, Any]] = [
        *(pushing("a", 1_000_000, 4_000_000), pushing("b", 2_000_000, 6_000_000)),
        *(pushing("b", 1, 6_000_000, "Extracting"), {"status": "Pushed", "id": "a"}),
    ]
    follow(events, "pushing x", said.append, count(INTERVAL_S, INTERVAL_S).__next__)
    assert said == [f"pushing x: {told} MB" for told in ("1 of 4", "3 of 10", "3 of 10", "6 of 10")]
    said.clear()
    quickly = count(0.0, INTERVAL_S / 20).__next__
    assert sum(map(len, counted([b"x" * 1000] * 50, "copying x", said.append, quickly))) == 50_000
    assert 1 <= len(said) <= 3


def test_a_push_ends_with_its_digest_or_an_error() -> None:
    good: list[dict[str, Any]] = [pushing("a", 1, 2), {"aux": {"Tag": "1", "Digest": "sha256:1", "Size": 3}}]
    assert follow(good, "pushing x", print) == "sha256:1"
    bad = [{"errorDetail": {"message": "m"}, "error": "denied: requested access to the resource is denied"}]
    with pytest.raises(InfrastructureError, match="pushing x failed: the registry refuses: .*docker login"):
        follow(bad, "pushing x", print)
