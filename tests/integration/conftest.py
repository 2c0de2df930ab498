"""What the tests share that run whole commands."""

import gc
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from docker import DockerClient
from playwright.sync_api import Browser

from orchestrator.environments import Catalogue, EnvironmentEntry, connect
from tests.browser import browser
from tests.conftest import PROJECT
from tests.object_service import SERVER, ObjectService
from tests.scripted_campaign import Lab


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectService]:
    """A running S3 service; skips where it cannot be installed, and fails where everything is required."""
    directory = tmp_path_factory.mktemp("swift")
    pipe = subprocess.PIPE
    command = [sys.executable, str(SERVER), str(directory)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield ObjectService(process)
        except RuntimeError as error:
            if os.environ.get("TAXMETER_REQUIRE_ENGINE") == "1":
                pytest.fail(f"TAXMETER_REQUIRE_ENGINE=1, but {error}")
            pytest.skip(str(error))
        finally:
            process.stdin.close()  # type: ignore[union-attr]


@pytest.fixture
def object_service(swift: ObjectService, monkeypatch: pytest.MonkeyPatch) -> ObjectService:
    """The S3 service, with its credentials in the environment."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    for name, value in zip(names, ObjectService.credentials, strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return swift


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    """A browser; of a module, because the event loop that it runs in would be in the way of other tests."""
    with browser() as found:
        yield found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB; only root can have one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting needs root")
    yield place
    gc.collect()  # the traceback of an interrupt keeps what it passed, and with it files
    # lazily: a reader that is not collected yet may have a file of it open
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture(autouse=True)
def sql_of_its_own() -> Iterator[None]:
    """A default connection of DuckDB for each test: views that one makes there must not answer another."""
    connection = duckdb.connect()
    duckdb.set_default_connection(connection)
    yield
    connection.close()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture
def client(engine: None) -> Iterator[DockerClient]:
    with closing(connect()) as found:
        yield found


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentEntry:
    """The `cpu` environment with another lock: one package, which lies in the wheel directory of a new project."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    directory = tmp_path / "project/docker"
    (directory / "wheels").mkdir(parents=True)
    shutil.copy(PROJECT / "docker/Dockerfile", directory)
    wheel, info = directory / "wheels/tiny_pkg-1.0-py3-none-any.whl", "tiny_pkg-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_pkg.py", "answer = 42\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-pkg\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"tiny_pkg.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (directory / "tiny.lock").write_text(f"tiny-pkg==1.0 --hash=sha256:{digest}\n")
    changes = {"name": "test-tiny", "directory": directory, "lock": "tiny.lock", "wheel_index": None}
    return Catalogue.load(PROJECT / "docker/images.yaml").entry("cpu").model_copy(update=changes)
