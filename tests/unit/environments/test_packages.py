"""What pip and uv say in one line, which settings of the site they get, which wheels and Pythons are taken."""

import configparser
import hashlib
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.tags import parse_tag

from orchestrator.environments import Catalogue, EnvironmentEntry, read_lock
from orchestrator.environments.build import build_failure
from orchestrator.environments.catalogue import WheelIndex
from orchestrator.environments.packages import (
    ensure_wheels,
    fetch_unlocked,
    has_wheel,
    pip_failure,
    supported_tags,
    uv_failure,
    wheels_of,
)
from orchestrator.environments.site_settings import site_ca_bundle, site_pip_configuration, uv_environment
from orchestrator.environments.virtualenv import find_python
from orchestrator.errors import ConfigurationError, InfrastructureError
from tests.conftest import PROJECT

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
GOT = "fab454a559fed7294d9de546ece075cb0fef9acbccc55427d3fe5c4af9a4abfb"
WRONG_HASH = f"tiny-pkg==1.0: the lock expects sha256 {'0' * 64}, but what was fetched has {GOT}; "
OTHER_HASHES = f"tiny-pkg==1.0: the lock expects sha256 {'0' * 64} or one of 1 more, but what was fetched has {GOT}; "
PIP = f"""\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, \
please update the hashes. Otherwise, examine the package contents carefully; someone may have tampered with them.
    tiny-pkg==1.0 from file:///tmp/wheels/tiny_pkg-1.0-py3-none-any.whl (from -r /tmp/requirements.lock (line 1)):
        Expected sha256 {"0" * 64}
             Got        {GOT}

"""
UV = f"""\
Using Python 3.11.7 environment at: v
error: Failed to download `tiny-pkg==1.0`
  cause: Hash mismatch for `tiny-pkg==1.0`

         Expected:
           sha256:{"0" * 64}

         Computed:
           sha256:{GOT}
"""
OUT_OF_REACH = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<pip._vendor.x object at 0x7f>: \
Failed to establish a new connection: [Errno -2] Name or service not known')': /whl/cpu/torch/
ERROR: No matching distribution found for torch==2.13.0+cpu
"""
IN_A_BUILD = "".join(f"#12 4.123 {line}\n" for line in PIP.splitlines()) + "#12 ERROR: process did not complete\n"
UNSOLVED = "warning: x\nerror: No solution found\n  cause: Because there is no\n    version"
UNFETCHED = "error: Failed to fetch: https://x/six/\n  cause: client error (Connect)\n  cause: dns error"
FULL_IN_A_STEP = "#9 12.33 ERROR: Could not install packages: [Errno 28] No space left on device\n"
FULL_AT_THE_END = "#14 exporting layers\n#14 ERROR: write /var/lib/docker/tmp/x: no space left on device\n"


@pytest.mark.parametrize(
    ("read", "output", "told"),
    [
        (pip_failure, PIP, WRONG_HASH),
        (pip_failure, PIP.replace(" from file:///tmp/wheels/tiny_pkg-1.0-py3-none-any.whl", ""), WRONG_HASH),
        (
            pip_failure,
            PIP.replace("             Got", f"        Expected     or {'1' * 64}\n             Got"),
            OTHER_HASHES,
        ),
        (pip_failure, OUT_OF_REACH, "cannot be reached (Failed to establish a new connection: [Errno -2] Name or"),
        (pip_failure, "WARNING: x\nERROR: first\nERROR: last\n", "last"),
        (pip_failure, "", "pip failed without a message"),
        (uv_failure, UV, WRONG_HASH),
        (uv_failure, UV.replace("\n\n         Comp", f"\n           sha256:{'1' * 64}\n\n         Comp"), OTHER_HASHES),
        (uv_failure, UNSOLVED, "No solution found: Because there is no version"),
        (uv_failure, UNFETCHED, "Failed to fetch: https://x/six/: dns error"),
        (uv_failure, "error: one line", "one line"),
        (uv_failure, "", "uv failed without a message"),
        (build_failure, IN_A_BUILD, WRONG_HASH),
        (build_failure, FULL_IN_A_STEP, "the disk is full: ERROR: Could not install packages"),
        (build_failure, FULL_AT_THE_END, "the disk is full: #14 ERROR: write"),
        (build_failure, "Cannot connect to the Docker daemon at unix:///x. Is it running?\n", "Cannot connect to the"),
        (build_failure, '#5 ERROR: process "/bin/sh -c apt-get update" did not complete\n', None),
    ],
)
def test_what_a_tool_says_is_one_line(read: Callable[[str], str | None], output: str, told: str | None) -> None:
    """Of uv the last cause, of pip the last error, of a build what the machine is to blame for."""
    line = read(output)
    assert (line is None) is (told is None)
    assert (line or "").startswith(told or "")
    assert "\n" not in (line or "")


def test_pip_s_settings_are_found_where_pip_finds_them_without_files_of_this_machine(tmp_path: Path) -> None:
    def settings(**environment: str) -> dict[str, str]:
        parser = configparser.RawConfigParser()
        parser.read_string(site_pip_configuration({"HOME": str(tmp_path), **environment}))
        return dict(parser["global"])

    user, named = tmp_path / ".config/pip/pip.conf", tmp_path / "named.conf"
    user.parent.mkdir(parents=True)
    user.write_text("[global]\nindex-url = of-the-user-%(x)s\ntrusted-host = user.invalid\ncert = /c.pem\n")
    assert settings() == {"index-url": "of-the-user-%(x)s", "trusted-host": "user.invalid"}
    named.write_text("[global]\nindex-url = of-the-named-file\n")
    assert settings(PIP_CONFIG_FILE=str(named)) == {"index-url": "of-the-named-file"}
    assert settings(PIP_CONFIG_FILE=str(named), PIP_INDEX_URL="x") == {"index-url": "x"}
    assert site_pip_configuration({"PIP_CONFIG_FILE": os.devnull}) == ""


def test_the_sites_own_bundle_comes_before_the_systems(tmp_path: Path) -> None:
    own, system = tmp_path / "own.pem", tmp_path / "system.pem"
    assert site_ca_bundle({}, str(system)) is None
    system.write_text("x")
    assert site_ca_bundle({"PIP_CERT": str(own)}, str(system)) == system
    own.write_text("x")
    assert site_ca_bundle({"PIP_CERT": str(own)}, str(system)) == own


def test_uv_does_as_pip_does_unless_its_own_variables_say_otherwise(tmp_path: Path) -> None:
    named = tmp_path / "named.conf"
    lines = ["[global]", "index-url = file:///main", "extra-index-url =", "  file:///a", "  file:///b", "timeout = 7"]
    named.write_text("\n".join([*lines, "[install]", "find-links = /x /y", "trusted-host = h:1", ""]))
    bundle = tmp_path / "own.pem"
    bundle.write_text("x")
    pip = {"PIP_CONFIG_FILE": str(named), "PIP_CERT": str(bundle), "PIP_TRUSTED_HOST": "other", "VIRTUAL_ENV": "/v"}
    expected = {
        "UV_DEFAULT_INDEX": "file:///main",
        "UV_INDEX": "file:///a file:///b",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/x,/y",
        "UV_INSECURE_HOST": "other",
        "UV_HTTP_TIMEOUT": "7",
        "SSL_CERT_FILE": str(bundle),
    }
    given = uv_environment(pip)
    assert {name: given.get(name) for name in expected} == expected
    assert "VIRTUAL_ENV" not in given
    own = {"UV_INDEX": "mine", "SSL_CERT_FILE": "mine.pem"}
    assert uv_environment(pip | own).items() >= own.items()
    # a lock would name the files that only this site has
    for_a_lock = uv_environment(pip, for_a_lock=True)
    assert for_a_lock["UV_DEFAULT_INDEX"] == "file:///main"
    assert not for_a_lock.keys() & {"UV_INDEX", "UV_FIND_LINKS"}


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
    committed = Catalogue.load(PROJECT / "docker/images.yaml").entry("cpu")
    index = WheelIndex(url="file:///nonexistent/index", distributions=("tiny-pkg",))
    (tmp_path / "tiny.lock").write_text(f"tiny-pkg==1.0+cpu --hash=sha256:{hashlib.sha256(CONTENT).hexdigest()}\n")
    return committed.model_copy(update={"directory": tmp_path, "lock": "tiny.lock", "wheel_index": index})


def write_wheel(path: Path) -> None:
    metadata = "Metadata-Version: 2.1\nName: tiny-pkg\nVersion: 1.0+cpu\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_pkg-1.0+cpu.dist-info/METADATA", metadata)
        archive.writestr("tiny_pkg-1.0+cpu.dist-info/WHEEL", "Wheel-Version: 1.0\n")


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["manylinux_2_28_x86_64", "linux_x86_64"])
def test_a_wheel_is_fetched_once_under_either_name_of_its_platform(
    entry: EnvironmentEntry, offline: Path, platform: str
) -> None:
    wheel = offline / f"tiny_pkg-1.0+cpu-cp311-cp311-{platform}.whl"
    write_wheel(wheel)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    entry.lock_path.write_text(f"tiny-pkg==1.0+cpu --hash=sha256:{sha256}\n")
    said: list[str] = []
    ensure_wheels(entry, said.append)
    assert [path.name for path in entry.wheel_directory.iterdir()] == [wheel.name]
    wheel.unlink()
    ensure_wheels(entry, said.append)
    assert said == ["fetching tiny-pkg 1.0+cpu"], "one that is there is fetched from nowhere"


@pytest.mark.slow
def test_to_resolve_a_lock_a_wheel_is_fetched_without_a_hash_and_once(entry: EnvironmentEntry, offline: Path) -> None:
    write_wheel(offline / WHEEL)
    said: list[str] = []
    for _ in range(2):
        assert fetch_unlocked(entry, "tiny-pkg", "1.0+cpu", said.append) == [entry.wheel_directory / WHEEL]
    assert said == ["fetching tiny-pkg==1.0+cpu"]
    assert [path.name for path in entry.wheel_directory.iterdir()] == [WHEEL]


@pytest.mark.parametrize(
    "name",
    [
        "tiny_pkg-1.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl",
        *("tiny_pkg-1.0-py3-none-any.whl", "tiny_pkg_more-1.0+cpu-py3-none-any.whl", "tiny_pkg-1.0+cpu.whl"),
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


@pytest.mark.slow
def test_a_wheel_that_nobody_has_or_only_with_another_hash_is_refused(entry: EnvironmentEntry, offline: Path) -> None:
    with pytest.raises(InfrastructureError) as error:
        ensure_wheels(entry, lambda _: None)
    message = str(error.value)
    assert message.startswith("no wheel of tiny-pkg 1.0+cpu for Python 3.11: this machine's pip settings: No matching")
    assert "file:///nonexistent/index: No matching" in message
    assert str(entry.wheel_directory) in message
    assert "\n" not in message
    (offline / WHEEL).write_bytes(CONTENT + b"!")
    with pytest.raises(InfrastructureError, match="no wheel of tiny-pkg"):
        ensure_wheels(entry, lambda _: None)
    assert list(entry.wheel_directory.iterdir()) == []


def test_a_name_that_the_lock_lacks(entry: EnvironmentEntry) -> None:
    index = WheelIndex(url="https://a.invalid", distributions=("other",))
    with pytest.raises(ConfigurationError, match=r"tiny\.lock: the lock does not pin other"):
        ensure_wheels(entry.model_copy(update={"wheel_index": index}), lambda _: None)


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


def interpreter(path: Path, answer: str | None) -> Path:
    """A command that says it is Python `answer`; without one it fails, as a shim of a version that is not selected."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + (f"echo {answer}\n" if answer else "exit 127\n"))
    path.chmod(0o755)
    return path


def searching(*interpreters: Path) -> dict[str, str]:
    return {"PATH": os.pathsep.join(str(path.parent) for path in interpreters)}


def test_an_interpreter_is_asked_for_its_version_the_one_with_the_exact_name_first(tmp_path: Path) -> None:
    assert find_python(HERE) == Path(sys.executable)
    shim, other = interpreter(tmp_path / "a/python3.9", None), interpreter(tmp_path / "b/python3", "3.5")
    true = tmp_path / "c/python3"
    true.parent.mkdir()
    true.symlink_to(sys.executable)
    assert find_python(HERE, searching(shim, other, true)) == true
    assert find_python("3.9", searching(shim, other, true)) is None
    plain, exact = interpreter(tmp_path / "d/python3", "3.9"), interpreter(tmp_path / "e/python3.9", "3.9")
    assert find_python("3.9", searching(plain, exact)) == exact


def test_what_version_managers_keep_is_found_the_newest_patch_first(tmp_path: Path) -> None:
    home = {"PATH": str(tmp_path / "empty"), "HOME": str(tmp_path)}
    uv = interpreter(tmp_path / ".local/share/uv/python/cpython-3.9.20-linux-x86_64-gnu/bin/python3.9", "3.9")
    assert find_python("3.9", home) == uv
    for patch in ("7", "18"):
        newest = interpreter(tmp_path / f".pyenv/versions/3.9.{patch}/bin/python3.9", "3.9")
    assert find_python("3.9", home) == newest
    assert find_python("3.1", home) is None
    elsewhere = interpreter(tmp_path / "opt/versions/3.9.1/bin/python3.9", "3.9")
    assert find_python("3.9", home | {"PYENV_ROOT": str(tmp_path / "opt")}) == elsewhere
