"""Which base is taken, with a scripted engine, and which client builds."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from docker.errors import APIError, ImageNotFound

from orchestrator.environments import Catalogue, build
from orchestrator.environments.build import Builder, ensure_base, find_builder
from orchestrator.errors import InfrastructureError
from tests.conftest import PROJECT

UNREACHABLE = 'Get "https://registry.invalid/v2/": dial tcp: lookup registry.invalid: no such host'
ENTRY = Catalogue.load(PROJECT / "docker/images.yaml").entry("cpu")
BASE = ENTRY.base, ENTRY.debian_suite


class Engine:
    """Has these images; `answer` is what a pull ends with."""

    def __init__(self, *known: str, answer: str | None = None) -> None:
        self.known, self.answer, self.images = list(known), answer, self

    def get(self, reference: str) -> SimpleNamespace:
        if reference not in self.known:
            raise ImageNotFound("no such image")
        return SimpleNamespace(attrs={"Id": reference})

    def pull(self, reference: str) -> None:
        if self.answer is not None:
            raise APIError("500 Server Error", explanation=self.answer)
        self.known.append(reference)


@pytest.mark.parametrize(
    ("known", "answer", "expected", "told"),
    [
        ([ENTRY.base], "must not be asked", ENTRY.base, []),
        ([], None, ENTRY.base, [f"pulling {ENTRY.base}"]),
        (["taxmeter/base:bookworm"], UNREACHABLE, "taxmeter/base:bookworm", ["pulling", "no such host", "earlier"]),
    ],
    ids=["there", "pulled", "its stand-in, where the registry is out of reach"],
)
def test_the_pinned_base_is_taken_wherever_possible(
    known: list[str], answer: str | None, expected: str, told: list[str]
) -> None:
    said: list[str] = []
    engine = Engine(*known, answer=answer)
    assert ensure_base(*BASE, engine, said.append) == expected
    assert expected in engine.known
    assert all(part in line for part, line in zip(told, said, strict=True))


@pytest.mark.parametrize(
    "answer",
    [
        "manifest unknown: manifest unknown",
        "toomanyrequests: rate limit",
        "pull access denied, may require 'docker login'",
        'Get "https://registry-1.docker.io/v2/": tls: failed to verify certificate: x509: certificate has expired',
    ],
)
def test_a_registry_that_answers_no_is_an_error_and_no_reason_for_a_stand_in(answer: str) -> None:
    with pytest.raises(InfrastructureError, match="cannot be pulled"):
        ensure_base(*BASE, Engine("taxmeter/base:bookworm", answer=answer), lambda _: None)


@pytest.mark.parametrize(("user", "expected"), [(1000, "needs root"), (0, "apt-get install debootstrap")])
def test_a_stand_in_needs_root_and_debootstrap(monkeypatch: pytest.MonkeyPatch, user: int, expected: str) -> None:
    monkeypatch.setattr(build.os, "geteuid", lambda: user)
    monkeypatch.setattr(build.shutil, "which", lambda *_, **__: None)
    with pytest.raises(InfrastructureError, match=expected):
        ensure_base(*BASE, Engine(answer=UNREACHABLE), lambda _: None)


def fake_docker(directory: Path, version: str, *, buildx: bool) -> str:
    """A `docker` that answers to --version and to buildx version only."""
    client = directory / "docker"
    directory.mkdir()
    answer = "echo buildx" if buildx else "exit 1"
    client.write_text(f"#!/bin/sh\ncase $1 in buildx) {answer};; --version) echo '{version}';; esac\n")
    client.chmod(0o755)
    return str(client)


def test_the_first_client_that_builds_with_buildkit_is_taken_and_those_that_cannot_are_named(tmp_path: Path) -> None:
    """With buildx, or as old as to build without it."""
    newer, older = "Docker version 28.2.2, build e6534b4", "Docker version 20.10.24+dfsg1, build 297e128"
    unfit = fake_docker(tmp_path / "a", newer, buildx=False)
    old = fake_docker(tmp_path / "b", older, buildx=False)
    new = fake_docker(tmp_path / "c", newer, buildx=True)
    podman = fake_docker(tmp_path / "d", "podman version 4.3.1", buildx=False)
    found = find_builder(f"{tmp_path}/a:{tmp_path}/b:{tmp_path}/c")
    assert found == Builder((old, "build"), (("DOCKER_BUILDKIT", "1"),))
    found = find_builder(f"{tmp_path}/a:{tmp_path}/c:{tmp_path}/b")
    assert (found.command[:3], found.environment) == ((new, "buildx", "build"), ())
    with pytest.raises(InfrastructureError, match="there is no docker command on PATH"):
        find_builder(str(tmp_path))
    with pytest.raises(InfrastructureError, match=f"tried {unfit}, {podman}.*buildx"):
        find_builder(f"{tmp_path}/a:{tmp_path}/d")
