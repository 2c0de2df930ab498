"""When two images are the same, on an engine or in a file, and what is said when they are not."""

import gzip
import os
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments import compare_images, differences, identity_of
from orchestrator.environments.identity import (
    is_archive,
    layer_differences,
    read_archive,
    setting_differences,
    settings,
)
from orchestrator.errors import ConfigurationError
from tests.scripted_engine import an_image, archive, tiny_entry

LAYERS = tuple(f"sha256:{digit * 64}" for digit in "abc")
NOTHING: tuple[object, ...] = (None, [], "")


def attributes(**changes: Any) -> dict[str, Any]:
    settings = {"Env": ["PATH=/bin", "A=1"], "Cmd": ["python"], "Entrypoint": None, "User": "1", "WorkingDir": "/tmp"}
    top = {"Id": "sha256:1", "Architecture": "amd64", "Os": "linux", "RootFS": {"Layers": list(LAYERS)}}
    for name, value in changes.items():
        (top if name in top else settings)[name] = value
    return top | {"Config": settings}


def test_ids_labels_dates_and_ways_to_write_an_empty_setting_do_not_matter() -> None:
    other = attributes(Id="sha256:2", Labels={"a": "b"}) | {"Created": "yesterday", "Size": 3}
    assert differences(identity_of(attributes()), identity_of(other)) == ()
    without = attributes()
    del without["Config"]["Entrypoint"]
    for same in (without, *(attributes(Entrypoint=empty) for empty in NOTHING)):
        assert identity_of(same) == identity_of(attributes())
    recorded_by_stores = "8a7f850c61283930bee400a879dd33b98ca86fec01a38659492df9067e490d54"
    for same in (attributes(), attributes(Healthcheck=None, Volumes={}, StopSignal="")):
        assert identity_of(same).config_sha256 == recorded_by_stores


@pytest.mark.parametrize(
    "change",
    [
        *({"Env": ["PATH=/bin", "A=2"]}, {"Env": ["A=1", "PATH=/bin"]}, {"Cmd": ["sh"]}, {"Entrypoint": ["sh"]}),
        *({"User": "0"}, {"WorkingDir": "/"}, {"Architecture": "arm64"}, {"Os": "windows"}, {"StopSignal": "SIGINT"}),
        *({"Healthcheck": {"Test": ["CMD", "true"]}}, {"Volumes": {"/data": {}}}),
    ],
)
def test_a_setting_that_changes_what_runs_matters(change: dict[str, object]) -> None:
    [line] = differences(identity_of(attributes()), identity_of(attributes(**change)))
    assert line.startswith("settings (")
    assert len(setting_differences(settings(attributes()), settings(attributes(**change)))) == 1


def test_layers_are_named_by_number_and_by_as_much_of_their_digest_as_tells_them_apart() -> None:
    other = attributes(RootFS={"Layers": [LAYERS[0], "sha256:" + "d" * 64]})
    assert differences(identity_of(attributes()), identity_of(other)) == (
        "layer 2 of 3: expected bbbbbbbbbbbb, found dddddddddddd",
        "layer 3 of 3: expected cccccccccccc, found none",
    )
    alike = LAYERS[2][:30] + "d" * 41
    [line] = layer_differences(LAYERS, [*LAYERS[:2], alike])
    assert line == f"layer 3 of 3: expected {LAYERS[2]}, found {alike}"


def test_of_the_variables_only_those_that_differ_are_named() -> None:
    found = settings(attributes(Env=["A=2", "B=", "C=3"], User="0"))
    assert setting_differences(settings(attributes(Env=["PATH=/bin", "A=1", "C=3"])), found) == [
        "variable A: expected 1, found 2",
        "variable B: expected none, found ",
        "variable PATH: expected /bin, found none",
        "User: expected 1, found 0",
    ]


def test_a_saved_image_is_compared_without_an_engine(tmp_path: Path) -> None:
    entry = tiny_entry(tmp_path)
    changed = an_image(entry, "c")
    changed["Config"]["Env"] = ["A=2"]
    one, other = archive(tmp_path / "one.tar", an_image(entry)), archive(tmp_path / "other.tar", changed)
    found, expected = identity_of(read_archive(one)), identity_of(an_image(entry))
    assert (found.layers, found.config_sha256) == (expected.layers, expected.config_sha256)
    said: list[str] = []

    def compared(first: Path, second: Path) -> tuple[str, ...]:
        return compare_images(str(first), str(second), entry.directory / "images.yaml", "unix:///nowhere", said.append)

    layer = "layer 2 of 2: expected bbbbbbbbbbbb, found cccccccccccc"
    assert compared(one, other) == (layer, "variable A: expected 1, found 2")
    assert any("versions are not compared" in line for line in said)
    assert compared(one, one) == ()


@pytest.mark.parametrize("without", ["manifest.json", "c.json", "two.tar"])
def test_a_file_that_is_no_whole_image_is_refused(tmp_path: Path, without: str) -> None:
    archive(tmp_path / "cut.tar", an_image(tiny_entry(tmp_path)), without)
    (tmp_path / "text.tar").write_text("text")
    refusals = {"cut": "no saved image|the layer two.tar is missing", "none": "no such file", "text": "no saved image"}
    for name, told in refusals.items():
        with pytest.raises(ConfigurationError, match=rf"{name}\.tar: ({told})"):
            read_archive(tmp_path / f"{name}.tar")
    assert (is_archive("none.tar"), is_archive("cpu")) == (True, False)


@pytest.mark.parametrize("attack", ["gzip", "long manifest", "long header", "deep", "no object", "a pipe"])
def test_an_archive_that_would_take_the_memory_is_refused(tmp_path: Path, attack: str) -> None:
    path = tmp_path / "image.tar"
    if attack == "gzip":
        archive(tmp_path / "plain.tar", an_image(tiny_entry(tmp_path)))
        path.write_bytes(gzip.compress((tmp_path / "plain.tar").read_bytes()))
    elif attack == "a pipe":
        os.mkfifo(path)
    else:
        header = tarfile.TarInfo("manifest.json")
        content = {"deep": b"[" * 10**5 + b"]" * 10**5, "no object": b'[{"Config": 1, "Layers": 2}]'}.get(attack, b"")
        header.size = len(content) or 2**33
        if attack == "long header":
            header.type = tarfile.XHDTYPE
        with path.open("wb") as stream:
            stream.write(header.tobuf(tarfile.GNU_FORMAT) + content)
            stream.truncate(2**33 + 4096)  # sparse
    tracemalloc.start()
    with pytest.raises(ConfigurationError, match="no saved image|no regular file"):
        read_archive(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6
