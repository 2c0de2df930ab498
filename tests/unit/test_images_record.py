"""The file that says what this machine's engine has."""

from pathlib import Path

import pytest

from orchestrator.environments import BuiltImage, Catalogue, EnvironmentEntry, ImageIdentity, read_built_images
from orchestrator.environments.record import record_built_image
from orchestrator.errors import ConfigurationError


def image(name: str) -> BuiltImage:
    return BuiltImage(
        reference=f"taxmeter/{name}:1",
        image_id="sha256:" + "1" * 64,
        repo_digest=None,
        layers=("sha256:" + "2" * 64,),
        lock_sha256="0" * 64,
        recipe_sha256="12345678" * 8,
        base="taxmeter/base:bookworm",
    )


def entry(project: Path, name: str) -> EnvironmentEntry:
    committed = Catalogue.load(Path(__file__).parents[2] / "docker/images.yaml").entry("cpu")
    return committed.model_copy(update={"name": name, "directory": project / "docker"})


def test_nothing_built_yet(tmp_path: Path):
    assert read_built_images(tmp_path / "docker/images.yaml") == {}


def test_one_entry_does_not_lose_another(tmp_path: Path):
    record_built_image(entry(tmp_path, "b"), image("b"))
    record_built_image(entry(tmp_path, "a"), image("a"))
    # digits alone must come back as text
    assert read_built_images(tmp_path / "docker/images.yaml") == {"a": image("a"), "b": image("b")}


def test_the_same_image_is_not_written_again(tmp_path: Path):
    record_built_image(entry(tmp_path, "a"), image("a"))
    before = (tmp_path / "docker/images.lock.yaml").stat()
    record_built_image(entry(tmp_path, "a"), image("a"))
    after = (tmp_path / "docker/images.lock.yaml").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_file_of_an_earlier_version_is_read_and_what_it_lacks_is_unknown(tmp_path: Path):
    record_built_image(entry(tmp_path, "a"), image("a"))
    path = tmp_path / "docker/images.lock.yaml"
    new = ("config_sha256", "size_bytes", "versions", "facts")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.strip().startswith(new)))
    [read] = read_built_images(tmp_path / "docker/images.yaml").values()
    assert read == image("a")
    assert read.identity is None


def test_what_was_recorded_is_read_back_as_an_identity(tmp_path: Path):
    known = {"config_sha256": "c" * 64, "size_bytes": 7, "versions": {"torch": "2.10"}, "facts": {"a": None, "b": 1}}
    whole = image("a").model_copy(update=known)
    record_built_image(entry(tmp_path, "a"), whole)
    [read] = read_built_images(tmp_path / "docker/images.yaml").values()
    assert read == whole
    assert read.identity == ImageIdentity(whole.image_id, "c" * 64, whole.layers)


def test_a_damaged_file_is_named(tmp_path: Path):
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/images.lock.yaml").write_text("images:\n  a: 3\n")
    with pytest.raises(ConfigurationError, match=r"images\.lock\.yaml:2: images\.a"):
        read_built_images(tmp_path / "docker/images.yaml")
