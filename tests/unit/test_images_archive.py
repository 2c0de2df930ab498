"""Images in files: compared without an engine, refused if incomplete."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments import identity_of, verify
from orchestrator.environments.archive import is_archive, read_archive
from orchestrator.errors import ConfigurationError

CATALOGUE = Path(__file__).parents[2] / "docker" / "images.yaml"


def an_image(top: str = "b") -> dict[str, Any]:
    return {
        "Id": "sha256:" + "1" * 64,
        "Architecture": "amd64",
        "Os": "linux",
        "Config": {"Env": ["A=1"], "Labels": {}},
        "RootFS": {"Layers": ["sha256:" + "a" * 64, "sha256:" + top * 64]},
    }


def archive(path: Path, image: dict[str, Any], without: str = "") -> Path:
    configuration = {
        "architecture": image["Architecture"],
        "os": image["Os"],
        "config": image["Config"],
        "rootfs": {"type": "layers", "diff_ids": image["RootFS"]["Layers"]},
    }
    manifest = [{"Config": "c.json", "RepoTags": None, "Layers": ["one.tar", "two.tar"]}]
    files = {"one.tar": b"1", "two.tar": b"2", "c.json": json.dumps(configuration).encode()}
    files["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            if name != without:
                information = tarfile.TarInfo(name)
                information.size = len(content)
                tar.addfile(information, io.BytesIO(content))
    return path


def test_a_saved_image_is_compared_without_an_engine(tmp_path: Path):
    one = archive(tmp_path / "one.tar", an_image())
    changed = an_image("c")
    changed["Config"]["Env"] = ["A=2"]
    other = archive(tmp_path / "other.tar", changed)
    found, expected = identity_of(read_archive(one)), identity_of(an_image())
    assert (found.layers, found.config_sha256) == (expected.layers, expected.config_sha256)
    said: list[str] = []
    assert verify.compare_images(str(one), str(other), CATALOGUE, "unix:///nowhere", said.append) == (
        "layer 2 of 2: expected bbbbbbbbbbbb, found cccccccccccc",
        "variable A: expected 1, found 2",
    )
    assert any("versions are not compared" in line for line in said)
    assert verify.compare_images(str(one), str(one), CATALOGUE, "unix:///nowhere", print) == ()


@pytest.mark.parametrize("without", ["manifest.json", "c.json", "two.tar"])
def test_an_incomplete_archive_is_refused(tmp_path: Path, without: str):
    path = archive(tmp_path / "cut.tar", an_image(), without)
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
