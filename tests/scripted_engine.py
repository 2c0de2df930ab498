"""An engine that has what a test gives it, and an environment of a project of its own."""

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docker.errors import APIError, ImageNotFound

from orchestrator.environments import Catalogue, EnvironmentEntry, recipe_sha256

CATALOGUE = f"""\
environments:
  tiny:
    purpose: a test
    released: 2026-01
    python: "3.11"
    platform: manylinux_2_28_x86_64
    base: debian:bookworm-slim@sha256:{"0" * 64}
    base_verified: never
    debian_suite: bookworm
    lock: tiny.lock
    hashes_verified: never
"""


def tiny_entry(project: Path) -> EnvironmentEntry:
    """The environment `tiny`, whose lock is empty, in a new project."""
    directory = project / "docker"
    directory.mkdir()
    (directory / "Dockerfile").write_text("FROM scratch\n")
    (directory / "tiny.lock").write_text("")
    (directory / "images.yaml").write_text(CATALOGUE)
    return Catalogue.load(directory / "images.yaml").entry("tiny")


def an_image(entry: EnvironmentEntry, top: str = "b", image_id: str | None = None) -> dict[str, Any]:
    """What an engine says about an image of `entry`, whose second layer and id are made of one digit each."""
    labels = {"environment": entry.name, "recipe-sha256": recipe_sha256(entry), "lock-sha256": "0", "base": "x"}
    return {
        "Id": f"sha256:{(image_id or top) * 64}", "Architecture": "amd64", "Os": "linux", "Created": "2026", "Size": 5,
        "Config": {"Env": ["A=1"], "Labels": {f"org.taxmeter.{name}": value for name, value in labels.items()}},
        "RootFS": {"Layers": ["sha256:" + "a" * 64, "sha256:" + top * 64]},
    }  # fmt: skip


def reference_of(entry: EnvironmentEntry) -> str:
    """The name of the image of today's recipe."""
    return f"taxmeter/{entry.name}:{recipe_sha256(entry)[:12]}"


def archive(path: Path, image: dict[str, Any], without: str = "") -> Path:
    """Writes an image as a saved one, `without` one of its files."""
    layers = {"type": "layers", "diff_ids": image["RootFS"]["Layers"]}
    configuration = {
        "architecture": image["Architecture"],
        "os": image["Os"],
        "config": image["Config"],
        "rootfs": layers,
    }
    manifest = [{"Config": "c.json", "RepoTags": None, "Layers": ["one.tar", "two.tar"]}]
    files = {"one.tar": b"1", "two.tar": b"2", "c.json": json.dumps(configuration).encode()}
    files["manifest.json"] = json.dumps(manifest).encode()
    path.write_bytes(tar_of({name: content for name, content in files.items() if name != without}))
    return path


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """An archive of files."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name, content in files.items():
            information = tarfile.TarInfo(name)
            information.size = len(content)
            tar.addfile(information, io.BytesIO(content))
    return sink.getvalue()


class Engine:
    """Has images by name, and some without one; takes archives."""

    def __init__(self, **information: str) -> None:
        self.named: dict[str, dict[str, Any]] = {}
        self.unnamed: list[dict[str, Any]] = []
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

    def list(self, filters: dict[str, list[str]]) -> list["Image"]:
        [label] = filters["label"]
        key, _, value = label.partition("=")
        everything = [*self.engine.named.values(), *self.engine.unnamed]
        return [Image(self.engine, image) for image in everything if image["Config"]["Labels"].get(key) == value]

    def remove(self, name: str) -> None:
        self.engine.removed.append(name)


class Image:
    def __init__(self, engine: Engine, attributes: dict[str, Any]) -> None:
        self.engine, self.attrs = engine, attributes

    def tag(self, reference: str) -> None:
        self.engine.named[reference] = self.attrs
