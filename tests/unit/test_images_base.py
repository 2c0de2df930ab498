"""Which base is taken, with a scripted engine."""

from pathlib import Path

import pytest
from docker.errors import APIError, ImageNotFound

from orchestrator.environments import Catalogue, base, ensure_base
from orchestrator.errors import InfrastructureError

UNREACHABLE = 'Get "https://registry.invalid/v2/": dial tcp: lookup registry.invalid: no such host'
ENTRY = Catalogue.load(Path(__file__).parents[2] / "docker/images.yaml").entry("cpu")


class Images:
    """An engine's images; `answer` is what a pull ends with."""

    def __init__(self, known: list[str], answer: str | None) -> None:
        self.known = known
        self.answer = answer

    def get(self, reference: str) -> str:
        if reference not in self.known:
            raise ImageNotFound("no such image")
        return reference

    def pull(self, reference: str) -> None:
        if self.answer is not None:
            raise APIError("500 Server Error", explanation=self.answer)
        self.known.append(reference)


class Engine:
    def __init__(self, *known: str, answer: str | None = None) -> None:
        self.images = Images(list(known), answer)


def test_a_base_that_is_there_is_not_pulled():
    said: list[str] = []
    assert ensure_base(ENTRY, Engine(ENTRY.base, answer="must not be asked"), said.append) == ENTRY.base
    assert said == []


def test_the_pinned_base_is_pulled():
    engine = Engine()
    assert ensure_base(ENTRY, engine, lambda _: None) == ENTRY.base
    assert engine.images.known == [ENTRY.base]


def test_the_stand_in_is_taken_and_said_when_the_registry_is_out_of_reach():
    said: list[str] = []
    reference = ensure_base(ENTRY, Engine("taxmeter/base:bookworm", answer=UNREACHABLE), said.append)
    assert reference == "taxmeter/base:bookworm"
    assert any("cannot be reached" in line and "no such host" in line for line in said)


@pytest.mark.parametrize(
    "answer",
    [
        "manifest unknown: manifest unknown",
        "toomanyrequests: rate limit",
        "pull access denied, may require 'docker login'",
        'Get "https://registry-1.docker.io/v2/": tls: failed to verify certificate: x509: certificate has expired',
    ],
)
def test_a_registry_that_answers_no_is_an_error_and_no_reason_for_a_stand_in(answer: str):
    with pytest.raises(InfrastructureError, match="cannot be pulled"):
        ensure_base(ENTRY, Engine("taxmeter/base:bookworm", answer=answer), lambda _: None)


def test_a_stand_in_needs_root(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(base.os, "geteuid", lambda: 1000)
    with pytest.raises(InfrastructureError, match="needs root"):
        ensure_base(ENTRY, Engine(answer=UNREACHABLE), lambda _: None)


def test_a_stand_in_needs_debootstrap(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(base.os, "geteuid", lambda: 0)
    monkeypatch.setattr(base.shutil, "which", lambda *_, **__: None)
    with pytest.raises(InfrastructureError, match="apt-get install debootstrap"):
        ensure_base(ENTRY, Engine(answer=UNREACHABLE), lambda _: None)
