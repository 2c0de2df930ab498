"""`taxmeter hosts check` on lab hosts: an unprivileged user, engines of their own, no Python, and real faults."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from orchestrator.cli import run
from orchestrator.environments import BuiltImage
from orchestrator.errors import ExitCode
from tests.lab.lab import Lab

pytestmark = [pytest.mark.engine, pytest.mark.lab]


@pytest.fixture
def check(
    lab: Lab, in_project: object, cpu_image: BuiltImage, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """Checks hosts of the lab; returns the exit code and, by host and check, what was found."""

    def checked(limit: str = "all", timeout_s: int = 60) -> tuple[int, dict[str, dict[str, dict[str, str]]]]:
        capsys.readouterr()
        options = ["--inventory", str(lab.inventory()), "--limit", limit, "--timeout", str(timeout_s)]
        code = run(["hosts", "check", "--format", "json", *options])
        hosts = json.loads(capsys.readouterr().out)["hosts"]
        return code, {one["host"]: one["checks"] for one in hosts}

    return checked


def test_faults_are_told_apart_and_the_rest_is_usable(lab: Lab, check: Callable[..., Any]) -> None:
    frozen, stopped = lab.host("h1"), lab.host("h2")
    with ExitStack() as mend:
        mend.callback(frozen.unpause)
        frozen.pause()
        mend.callback(stopped.start_engine)
        stopped.stop_engine()
        code, hosts = check(timeout_s=45)
    assert code == ExitCode.TRIALS_FAILED
    assert hosts["h1"]["ssh"]["level"] == "failure"
    assert "no answer (Connection timed out during banner exchange)" in hosts["h1"]["ssh"]["problem"]
    assert hosts["h2"]["ssh"]["level"] == "ok"
    assert hosts["h2"]["engine"]["level"] == "failure"
    assert "engine" in hosts["h2"]["engine"]["problem"]
    assert hosts["h3"]["engine"]["level"] == "ok"


def test_a_user_who_may_not_use_the_engine(lab: Lab, check: Callable[..., Any]) -> None:
    host = lab.host("h1").container
    host.exec_run(["gpasswd", "--delete", "bench", "docker"])
    try:
        code, hosts = check("h1")
    finally:
        host.exec_run(["usermod", "--append", "--groups", "docker", "bench"])
    assert code == ExitCode.NO_USABLE_HOST
    assert hosts["h1"]["engine"]["problem"] == (
        "permission denied: bench may not use /var/run/docker.sock: `sudo usermod -aG docker bench` there, then log in "
        "anew"
    )


def test_fingerprints_without_python_show_the_simulated_hardware(
    seeded_lab: Lab, lab: Lab, in_project: object, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(["hosts", "diff", "h1", "h2", "--inventory", str(lab.inventory())]) == ExitCode.TRIALS_FAILED
    printed = capsys.readouterr().out
    assert "h1: read in a container of the image cpu (python3 is missing there)" in printed
    assert f"h1: {lab.host('h1').hardware.cpu_model}\n" in printed
    assert f"h2: {lab.host('h2').hardware.cpu_model}\n" in printed
    assert "cpu.flags" not in printed
