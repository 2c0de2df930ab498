"""The file that says what this machine's engine has."""

import json
from pathlib import Path

import pytest

from orchestrator.environments import BuiltImage, Catalogue, EnvironmentEntry, ImageIdentity, read_built_images
from orchestrator.environments.observation import Observation, parse
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
        config_sha256="c" * 64,
        versions={"torch": "2.10"},
        facts={"a": None, "b": 1},
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
    read = read_built_images(tmp_path / "docker/images.yaml")
    assert read == {"a": image("a"), "b": image("b")}
    assert read["a"].identity == ImageIdentity(image("a").image_id, "c" * 64, image("a").layers)


def test_the_same_image_is_not_written_again(tmp_path: Path):
    record_built_image(entry(tmp_path, "a"), image("a"))
    before = (tmp_path / "docker/images.lock.yaml").stat()
    record_built_image(entry(tmp_path, "a"), image("a"))
    after = (tmp_path / "docker/images.lock.yaml").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_damaged_file_is_named(tmp_path: Path):
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/images.lock.yaml").write_text("images:\n  a: 3\n")
    with pytest.raises(ConfigurationError, match=r"images\.lock\.yaml:2: images\.a"):
        read_built_images(tmp_path / "docker/images.yaml")


def test_what_is_true_of_one_host_only_is_not_recorded():
    facts = {
        "torch_cuda_version": None,
        "torch_cpu_capability": "AVX2",
        "env_OMP": "1",
        "driver_libcuda": "x",
        "libc": "g",
    }
    printed = "noise\n" + json.dumps({"versions": {"python": "3"}, "facts": facts}) + "\n"
    expected = Observation({"python": "3"}, {"torch_cuda_version": None, "libc": "g"})
    assert parse(printed) == expected
    assert parse(printed + "bye\n7\n{}\n") == expected
