"""What the tests share that run whole commands."""

import os
import subprocess
import sys
from collections.abc import Iterator

import duckdb
import pytest

from tests.object_service import SERVER, ObjectService


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


@pytest.fixture(autouse=True)
def sql_of_its_own() -> Iterator[None]:
    """A default connection of DuckDB for each test: views that one makes there must not answer another."""
    connection = duckdb.connect()
    duckdb.set_default_connection(connection)
    yield
    connection.close()
