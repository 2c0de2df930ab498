"""What the lab decides without an engine."""

import os
import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lab import objects
from tests.lab.host import MAX_HOSTS, simulated_hardware
from tests.lab.keys import quoted
from tests.lab.objects import LABEL_OWNER, current_owner, is_abandoned, owner_of, routed_networks

ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t004DE70A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""


def test_networks_that_the_machine_routes_are_known() -> None:
    assert list(routed_networks(ROUTES)) == [IPv4Network("10.231.77.0/24")]
    assert list(routed_networks("")) == []


def test_a_lab_is_abandoned_when_its_process_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        labels = {LABEL_OWNER: owner_of(process.pid)}
        assert not is_abandoned(labels)
        process.kill()
    assert is_abandoned(labels)
    assert not is_abandoned({})
    assert not is_abandoned({LABEL_OWNER: current_owner()})
    # the number was given to another process
    assert is_abandoned({LABEL_OWNER: f"{os.getpid()}:1"})


@pytest.mark.parametrize("hosts", [0, -1, MAX_HOSTS + 1])
def test_the_number_of_hosts_is_limited(hosts: int) -> None:
    with pytest.raises(ValueError, match=f"1 to {MAX_HOSTS} hosts, not {hosts}"):
        simulated_hardware(hosts)


def test_hosts_repeat_their_kinds() -> None:
    hardware = simulated_hardware(4)
    assert list(hardware) == ["h1", "h2", "h3", "h4"]
    assert len(set(hardware.values())) == 3


def test_a_path_with_blanks_and_percent_signs_stays_one_value() -> None:
    assert quoted(Path("/a b/100%")) == '"/a b/100%%"'


def problem(monkeypatch: pytest.MonkeyPatch, address: str = "unix:///run/docker.sock", **changes: Any) -> str | None:
    answers: dict[str, Any] = {"OperatingSystem": "Debian", "SecurityOptions": [], "Components": []} | changes
    monkeypatch.setattr(objects.shutil, "which", lambda name: answers.get(name, f"/usr/bin/{name}"))
    monkeypatch.setenv("DOCKER_HOST", address)
    return objects.unsuitable(SimpleNamespace(info=lambda: answers, version=lambda: answers))  # type: ignore[arg-type]


def test_engines_that_cannot_carry_a_lab_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert problem(monkeypatch) is None
    assert "apt-get install openssh-client" in str(problem(monkeypatch, ssh=None))
    assert "another machine" in str(problem(monkeypatch, address="tcp://10.0.0.1:2375"))
    assert "rootless" in str(problem(monkeypatch, SecurityOptions=["name=seccomp", "name=rootless"]))
    assert "userns-remap" in str(problem(monkeypatch, SecurityOptions=["name=userns"]))
    assert "Docker Desktop" in str(problem(monkeypatch, OperatingSystem="Docker Desktop"))
    assert "Podman" in str(problem(monkeypatch, Components=[{"Name": "Podman Engine"}]))
