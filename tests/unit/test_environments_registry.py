"""Registries and progress, without either."""

import pytest

from orchestrator.environments.registry import check_registry, follow
from orchestrator.environments.transfer import INTERVAL_S, counted
from orchestrator.errors import ConfigurationError, InfrastructureError


@pytest.mark.parametrize("good", ["lab:5000", "127.0.0.1:5000/bench", "ghcr.io/a/b-c", "localhost", "r.lab/x/"])
def test_a_registry_is_a_host_with_a_port_or_prefix(good: str) -> None:
    assert check_registry(good) == good.removesuffix("/")


@pytest.mark.parametrize("bad", ["", "myuser", "lab/bench", "https://lab:5000", "lab:5000/Upper", "lab:port"])
def test_what_is_no_registry(bad: str) -> None:
    with pytest.raises(ConfigurationError, match=r"expected HOST\[:PORT\]\[/PREFIX\]"):
        check_registry(bad)


class Clock:
    """Goes on by `step` at each look."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def pushing(layer: str, current: int, total: int, status: str = "Pushing") -> dict[str, object]:
    return {"status": status, "id": layer, "progressDetail": {"current": current, "total": total}}


def test_progress_sums_the_layers_and_leaves_out_unpacking() -> None:
    said: list[str] = []
    events = [
        *(pushing("a", 1_000_000, 4_000_000), pushing("b", 2_000_000, 6_000_000)),
        *(pushing("b", 1, 6_000_000, "Extracting"), {"status": "Pushed", "id": "a"}),
    ]
    follow(events, "pushing x", said.append, Clock(INTERVAL_S))
    assert said == [
        "pushing x: 1 of 4 MB",
        "pushing x: 3 of 10 MB",
        "pushing x: 3 of 10 MB",
        "pushing x: 6 of 10 MB",
    ]


def test_progress_is_told_every_few_seconds_only() -> None:
    said: list[str] = []
    list(counted([b"x" * 1_000_000] * 50, "copying x", said.append, Clock(INTERVAL_S / 20)))
    assert 1 <= len(said) <= 3
    assert list(counted([b"a", b"b"], "copying x", said.append)) == [b"a", b"b"]


def test_the_digest_of_a_push_is_found() -> None:
    events = [pushing("a", 1, 2), {"aux": {"Tag": "1", "Digest": "sha256:1", "Size": 3}}]
    assert follow(events, "pushing x", print) == "sha256:1"
    assert follow([], "pulling x", print) is None


def test_an_error_among_the_events_is_raised() -> None:
    events = [{"errorDetail": {"message": "m"}, "error": "denied: requested access to the resource is denied"}]
    with pytest.raises(InfrastructureError, match="pushing x failed: the registry refuses: .*docker login"):
        follow(events, "pushing x", print)
