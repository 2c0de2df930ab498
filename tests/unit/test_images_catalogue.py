"""The catalogue of environments and the digests that identify one."""

from pathlib import Path

import pytest

from orchestrator.errors import ConfigurationError
from orchestrator.images import Catalogue, lock_sha256, recipe_sha256
from orchestrator.images.locks import read_lock

PROJECT = Path(__file__).parents[2]
DIGEST = "a" * 64
ENTRY = f"""\
environments:
  tiny:
    purpose: a test
    python: "3.11"
    platform: manylinux_2_28_x86_64
    base: python:3.11@sha256:{DIGEST}
    base_verified: by nobody
    debian_suite: bookworm
    lock: environments/tiny.lock
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments/tiny.lock").write_text(f"tiny==1.0 --hash=sha256:{DIGEST}\n")
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    path = tmp_path / "images.yaml"
    path.write_text(ENTRY)
    return path


def test_the_committed_catalogue_is_sound():
    known = Catalogue.load(PROJECT / "docker/images.yaml")
    for entry in known.entries.values():
        pins = read_lock(entry.lock_path)
        assert entry.wheel_index is None or set(entry.wheel_index.distributions) <= pins.keys()


def test_no_python_file_under_docker_shadows_the_sdk():
    assert list((PROJECT / "docker").rglob("*.py")) == []


def test_an_entry_knows_its_files(catalogue: Path):
    entry = Catalogue.load(catalogue).entry("tiny")
    assert entry.name == "tiny"
    assert entry.lock_path == catalogue.parent / "environments/tiny.lock"
    assert entry.wheel_directory == catalogue.parent / "wheels"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "purpose: a test",
            "purpose: a test\n    purpos: b",
            ":4: environments.tiny.purpos: unknown key; did you mean purpose",
        ),
        ('"3.11"', "3.11", ":4: environments.tiny.python: "),
        (f"@sha256:{DIGEST}", "", ":6: environments.tiny.base: "),
        ("tiny.lock", "other.lock", ":9: environments.tiny.lock: no such file"),
        ("  tiny:", "  Tiny:", ":2: environments.Tiny"),
    ],
)
def test_an_error_names_file_line_and_key(catalogue: Path, old: str, new: str, message: str):
    catalogue.write_text(ENTRY.replace(old, new))
    with pytest.raises(ConfigurationError) as error:
        Catalogue.load(catalogue)
    assert f"{catalogue}{message}" in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_environment_is_a_user_error_with_a_hint(catalogue: Path):
    with pytest.raises(ConfigurationError, match="unknown environment tinny; did you mean tiny"):
        Catalogue.load(catalogue).entry("tinny")


def test_the_lock_digest_is_that_of_its_bytes(catalogue: Path):
    entry = Catalogue.load(catalogue).entry("tiny")
    before = lock_sha256(entry)
    entry.lock_path.write_text(entry.lock_path.read_text() + "# a comment\n")
    assert lock_sha256(entry) != before


@pytest.mark.parametrize("changed", ["Dockerfile", "environments/tiny.lock"])
def test_the_recipe_changes_with_each_file(catalogue: Path, changed: str):
    entry = Catalogue.load(catalogue).entry("tiny")
    before = recipe_sha256(entry)
    assert recipe_sha256(entry) == before
    (catalogue.parent / changed).write_text("other\n")
    assert recipe_sha256(entry) != before


def test_the_recipe_changes_with_the_base_but_not_with_words(catalogue: Path):
    before = recipe_sha256(Catalogue.load(catalogue).entry("tiny"))
    catalogue.write_text(ENTRY.replace("a test", "other words"))
    assert recipe_sha256(Catalogue.load(catalogue).entry("tiny")) == before
    catalogue.write_text(ENTRY.replace(DIGEST, "b" * 64))
    assert recipe_sha256(Catalogue.load(catalogue).entry("tiny")) != before
