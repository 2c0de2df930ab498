"""What the tests share that run whole commands."""

import pytest


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.engine)])
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The isolation that `executor: auto` takes, with its environment built."""
    kind = str(request.param)
    if kind == "docker":
        request.getfixturevalue("cpu_image")
    else:
        request.getfixturevalue("cpu_python")
        monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    return kind
