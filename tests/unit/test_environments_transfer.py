"""Images in files: compared without an engine, refused if incomplete."""

from pathlib import Path

import pytest

from orchestrator.environments import compare_images, identity_of
from orchestrator.environments.identity import is_archive, read_archive
from orchestrator.errors import ConfigurationError
from tests.scripted_engine import an_image, archive, tiny_entry


def test_a_saved_image_is_compared_without_an_engine(tmp_path: Path):
    entry = tiny_entry(tmp_path)
    one = archive(tmp_path / "one.tar", an_image(entry))
    changed = an_image(entry, "c")
    changed["Config"]["Env"] = ["A=2"]
    other = archive(tmp_path / "other.tar", changed)
    found, expected = identity_of(read_archive(one)), identity_of(an_image(entry))
    assert (found.layers, found.config_sha256) == (expected.layers, expected.config_sha256)
    said: list[str] = []
    assert compare_images(str(one), str(other), entry.directory / "images.yaml", "unix:///nowhere", said.append) == (
        "layer 2 of 2: expected bbbbbbbbbbbb, found cccccccccccc",
        "variable A: expected 1, found 2",
    )
    assert any("versions are not compared" in line for line in said)
    assert compare_images(str(one), str(one), entry.directory / "images.yaml", "unix:///nowhere", print) == ()


@pytest.mark.parametrize("without", ["manifest.json", "c.json", "two.tar"])
def test_an_incomplete_archive_is_refused(tmp_path: Path, without: str):
    path = archive(tmp_path / "cut.tar", an_image(tiny_entry(tmp_path)), without)
    with pytest.raises(ConfigurationError, match=r"cut\.tar: (no saved image|the layer two\.tar is missing)"):
        read_archive(path)


def test_files_that_are_no_archives(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"none\.tar: no such file"):
        read_archive(tmp_path / "none.tar")
    (tmp_path / "text.tar").write_text("text")
    with pytest.raises(ConfigurationError, match="no saved image"):
        read_archive(tmp_path / "text.tar")
    assert is_archive("none.tar")
    assert not is_archive("cpu")
