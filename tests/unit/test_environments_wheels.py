"""Fetching wheels, with a directory in place of an index."""

import hashlib
import zipfile
from pathlib import Path

import pytest
from packaging.tags import parse_tag

from orchestrator.environments import Catalogue, EnvironmentEntry, read_lock
from orchestrator.environments.catalogue import WheelIndex
from orchestrator.environments.packages import (
    ensure_wheels,
    fetch_unlocked,
    has_wheel,
    pip_failure,
    supported_tags,
    wheels_of,
)
from orchestrator.errors import ConfigurationError, InfrastructureError

WHEEL = "tiny_pkg-1.0+cpu-py3-none-any.whl"
CONTENT = b"not looked into: pip download of a pinned wheel only checks its name and hash"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """pip settings that know one directory and no network."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(site))
    return site


@pytest.fixture
def entry(tmp_path: Path) -> EnvironmentEntry:
    committed = Catalogue.load(Path(__file__).parents[2] / "docker/images.yaml").entry("cpu")
    index = WheelIndex(url="file:///nonexistent/index", distributions=("tiny-pkg",))
    directory = tmp_path / "project/docker"
    directory.mkdir(parents=True)
    (directory / "tiny.lock").write_text(
        f"tiny-pkg==1.0+cpu \\\n    --hash=sha256:{hashlib.sha256(CONTENT).hexdigest()}\n"
    )
    return committed.model_copy(update={"directory": directory, "lock": "tiny.lock", "wheel_index": index})


def test_a_wheel_that_is_there_with_the_right_hash_needs_no_index(entry: EnvironmentEntry, offline: Path):
    entry.wheel_directory.mkdir()
    (entry.wheel_directory / WHEEL).write_bytes(CONTENT)
    said: list[str] = []
    ensure_wheels(entry, said.append)
    assert said == []


def write_wheel(path: Path) -> None:
    metadata = "Metadata-Version: 2.1\nName: tiny-pkg\nVersion: 1.0+cpu\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_pkg-1.0+cpu.dist-info/METADATA", metadata)
        archive.writestr("tiny_pkg-1.0+cpu.dist-info/WHEEL", "Wheel-Version: 1.0\n")


@pytest.mark.parametrize("platform", ["manylinux_2_28_x86_64", "linux_x86_64"])
def test_a_wheel_is_fetched_under_either_name_of_its_platform(
    entry: EnvironmentEntry, offline: Path, platform: str
) -> None:
    wheel = offline / f"tiny_pkg-1.0+cpu-cp311-cp311-{platform}.whl"
    write_wheel(wheel)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    entry.lock_path.write_text(f"tiny-pkg==1.0+cpu --hash=sha256:{sha256}\n")
    ensure_wheels(entry, lambda _: None)
    assert [path.name for path in entry.wheel_directory.iterdir()] == [wheel.name]


def test_to_resolve_a_lock_a_wheel_is_fetched_without_a_hash_and_once(entry: EnvironmentEntry, offline: Path) -> None:
    wheel = offline / WHEEL
    write_wheel(wheel)
    said: list[str] = []
    first = fetch_unlocked(entry, "tiny-pkg", "1.0+cpu", said.append)
    assert fetch_unlocked(entry, "tiny-pkg", "1.0+cpu", said.append) == first == [entry.wheel_directory / WHEEL]
    assert said == ["fetching tiny-pkg==1.0+cpu"]
    assert [path.name for path in entry.wheel_directory.iterdir()] == [WHEEL]


@pytest.mark.parametrize(
    "name",
    [
        "tiny_pkg-1.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl",
        "tiny_pkg-1.0+cpu-cp311-cp311-manylinux_2_28_aarch64.whl",
        "tiny_pkg-1.0-py3-none-any.whl",
        "tiny_pkg_more-1.0+cpu-py3-none-any.whl",
        "tiny_pkg-1.0+cpu.whl",
    ],
)
def test_a_wheel_for_something_else_is_not_the_one_that_is_wanted(entry: EnvironmentEntry, name: str) -> None:
    entry.wheel_directory.mkdir()
    (entry.wheel_directory / name).write_bytes(CONTENT)
    assert wheels_of(entry, "tiny-pkg", "1.0+cpu") == []
    # though its hash is in the lock, as those of all files of a version are
    assert not has_wheel(entry, read_lock(entry.lock_path)["tiny-pkg"])
    (entry.wheel_directory / WHEEL).write_bytes(CONTENT)
    assert wheels_of(entry, "tiny-pkg", "1.0.0+cpu") == [entry.wheel_directory / WHEEL]
    assert has_wheel(entry, read_lock(entry.lock_path)["tiny-pkg"])


def test_a_wheel_that_nobody_has(entry: EnvironmentEntry, offline: Path):
    with pytest.raises(InfrastructureError) as error:
        ensure_wheels(entry, lambda _: None)
    message = str(error.value)
    assert message.startswith("no wheel of tiny-pkg 1.0+cpu for Python 3.11: this machine's pip settings: No matching")
    assert "file:///nonexistent/index: No matching" in message
    assert str(entry.wheel_directory) in message
    assert "\n" not in message
    assert list(entry.wheel_directory.iterdir()) == []


def test_a_wheel_with_another_hash_is_refused(entry: EnvironmentEntry, offline: Path):
    (offline / WHEEL).write_bytes(CONTENT + b"!")
    with pytest.raises(InfrastructureError, match="no wheel of tiny-pkg"):
        ensure_wheels(entry, lambda _: None)
    assert list(entry.wheel_directory.iterdir()) == []


def test_a_name_that_the_lock_lacks(entry: EnvironmentEntry):
    index = WheelIndex(url="https://a.invalid", distributions=("other",))
    with pytest.raises(ConfigurationError, match=r"tiny\.lock: the lock does not pin other"):
        ensure_wheels(entry.model_copy(update={"wheel_index": index}), lambda _: None)


def test_what_pip_says_about_an_index_out_of_reach_is_told_in_one_phrase():
    output = (
        "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NewConnectionError('<pip._vendor.x "
        "object at 0x7f>: Failed to establish a new connection: [Errno -2] Name or service not known')': /whl/cpu/torch/\n"
        "ERROR: No matching distribution found for torch==2.13.0+cpu\n"
    )
    reason = "Failed to establish a new connection: [Errno -2] Name or service not known"
    assert pip_failure(output) == f"cannot be reached ({reason})"


@pytest.mark.parametrize(
    ("output", "told"),
    [("WARNING: x\nERROR: first\nERROR: last\n", "last"), ("", "pip failed without a message")],
)
def test_otherwise_pips_last_error_counts(output: str, told: str):
    assert pip_failure(output) == told


@pytest.mark.parametrize(
    ("tags", "python", "serves"),
    [
        ("cp311-cp311-manylinux_2_28_x86_64", "3.11", True),
        ("cp311-cp311-manylinux_2_28_x86_64", "3.12", False),
        ("cp313-cp313t-manylinux_2_28_x86_64", "3.13", False),
        ("cp38-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64", "3.11", True),
        ("cp312-abi3-manylinux_2_17_x86_64", "3.11", False),
        ("py2.py3-none-any", "3.9", True),
        ("py310-none-any", "3.9", False),
        ("py3-none-manylinux2014_x86_64", "3.9", True),
        ("py3-none-manylinux_2_39_x86_64", "3.11", False),
        ("py3-none-manylinux2014_aarch64", "3.11", False),
        ("py3-none-linux_x86_64", "3.11", True),
        ("pp310-pypy310_pp73-manylinux_2_28_x86_64", "3.10", False),
    ],
)
def test_which_python_and_platform_a_wheel_serves(tags: str, python: str, serves: bool) -> None:
    assert bool(parse_tag(tags) & supported_tags(python, "manylinux_2_28_x86_64")) is serves
