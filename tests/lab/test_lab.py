"""The hosts of a lab: what they are, who gets in, and what can be done to them."""

import re
import socket
import subprocess
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from docker import DockerClient

from orchestrator.config import load_inventory
from orchestrator.environments import Catalogue, connect
from orchestrator.environments.build import ensure_base
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.executing import run_in
from orchestrator.hosts.connection import Connections
from tests.lab.host import LabHost
from tests.lab.image import PROJECT
from tests.lab.keys import IDENTITY, make_key
from tests.lab.lab import Lab

pytestmark = [pytest.mark.engine, pytest.mark.lab]


def test_three_hosts_come_up_with_names_and_hardware_of_their_own(lab: Lab) -> None:
    assert [(one.name, one.state) for one in lab.status()] == [(name, "running") for name in ("h1", "h2", "h3")]
    seen = set()
    for host in lab.hosts():
        said = host.run("sh", "-c", "hostname; grep -m1 'model name' /proc/cpuinfo; grep MemTotal /proc/meminfo")
        name, processor, memory = said.stdout.splitlines()
        assert name == host.name
        assert processor.endswith(host.hardware.cpu_model)
        assert int(memory.split()[1]) << 10 <= host.hardware.memory_bytes
        seen.add((processor, host.run("docker", "info", "--format", "{{.ID}}").stdout, host.address))
    assert len(seen) == 3


def test_the_inventory_pins_the_keys_of_the_hosts(lab: Lab) -> None:
    inventory = load_inventory(lab.inventory())
    for host in lab.hosts():
        entry = inventory.hosts[host.name]
        key = run_in(host.container, ["ssh-keygen", "-y", "-f", "/etc/lab/ssh_host_ed25519_key"]).stdout
        assert entry.host_key == " ".join(key.split()[:2])
        assert (entry.address, entry.user) == (host.address, "bench")
        assert entry.labels["gpu_generation"] == host.hardware.gpu_generation
        assert entry.expect.cpu_model == host.hardware.cpu_model
    assert len({entry.host_key for entry in inventory.hosts.values()}) == 3
    assert lab.directory.stat().st_mode & 0o777 == 0o700
    assert (lab.directory / IDENTITY).stat().st_mode & 0o777 == 0o600


def test_the_inventory_is_enough_to_reach_the_hosts_and_their_engines(lab: Lab) -> None:
    with Connections(load_inventory(lab.inventory()).hosts) as connections:
        for host in lab.hosts():
            assert connections.run(host.name, ["hostname"], 30).stdout == f"{host.name}\n"
            with connections.forward_engine(host.name, 30) as forward, closing(connect(forward.address)) as engine:
                assert engine.info()["Name"] == host.name


def test_another_client_key_is_refused(lab: Lab, tmp_path: Path) -> None:
    host = lab.host("h1")
    make_key(tmp_path / "other", "other")
    text = (lab.directory / "ssh_config").read_text()
    (tmp_path / "config").write_text(re.sub(r"IdentityFile .*", f'IdentityFile "{tmp_path}/other"', text))
    command = ["ssh", "-F", str(tmp_path / "config"), host.name, "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, "Permission denied (publickey)" in done.stderr) == (255, True)


def test_another_host_key_is_refused_until_it_is_pinned(lab: Lab) -> None:
    host = lab.host("h2")
    key = host.rotate_key()
    done = host.run("true")
    assert (done.returncode, "Host key verification failed" in done.stderr) == (255, True)
    with pytest.raises(InfrastructureError, match="(?s)h2: .*Host key verification failed"), host.engine():
        pass
    lab.pin({"h2": key})
    assert host.run("hostname").stdout == "h2\n"
    assert load_inventory(lab.inventory()).hosts["h2"].host_key == key


def test_the_hosts_reach_this_machine_and_each_other(lab: Lab) -> None:
    gateway = str(lab.host("h1").network.attrs["IPAM"]["Config"][0]["Gateway"])
    with socket.create_server((gateway, 0)) as server:
        doors = [(host.address, 22) for host in lab.hosts()] + [(gateway, server.getsockname()[1])]
        for host in lab.hosts():
            for address, port in doors:
                done = host.run("timeout", "5", "bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}")
                assert done.returncode == 0, done.stderr


def test_an_image_of_one_engine_is_on_no_other(lab: Lab) -> None:
    reference = f"taxmeter/test-{uuid.uuid4().hex[:8]}:1"
    with lab.host("h1").engine() as one, lab.host("h2").engine() as other:
        repository, _, tag = reference.partition(":")
        one.api.import_image_from_data(b"\0" * 1024, repository=repository, tag=tag)
        assert one.images.list(reference)
        assert not other.images.list(reference)
        one.images.remove(reference)


def layered(client: DockerClient, reference: str, directory: Path) -> None:
    """An image whose second layer replaces a directory of the first."""
    entry = Catalogue.load(PROJECT / "docker" / "images.yaml").entry("cpu")
    base = ensure_base(entry.base, entry.debian_suite, client, print)
    lines = [f"FROM {base}", "RUN mkdir /replaced && touch /replaced/old"]
    lines += ["RUN rm -r /replaced && mkdir /replaced && touch /replaced/new", "ENTRYPOINT []"]
    (directory / "Dockerfile").write_text("\n".join(lines))
    client.images.build(path=str(directory), tag=reference, rm=True)


def test_images_reach_all_hosts_and_stay_independent(small: Lab, client: DockerClient, tmp_path: Path) -> None:
    reference = f"taxmeter/test-{uuid.uuid4().hex[:8]}:1"
    context = tmp_path / "context"
    context.mkdir()
    layered(client, reference, context)
    try:
        wanted = client.images.get(reference).id
        small.up(hosts=3)
        small.seed([reference])
        small.seed([reference])
    finally:
        client.images.remove(reference, force=True)
    script = "ls /replaced; grep -m1 'model name' /proc/cpuinfo; echo spoilt >/usr/bin/env"
    for host in small.hosts():
        with host.engine() as engine:
            assert engine.images.get(reference).id == wanted
            said = engine.containers.run(reference, ["sh", "-c", script], remove=True, network_mode="none").decode()
            assert said.splitlines()[0] == "new"
            assert said.splitlines()[1].endswith(host.hardware.cpu_model)
    with small.host("h2").engine() as engine:
        engine.images.remove(reference, force=True)
    with small.host("h3").engine() as engine:
        assert (
            engine.containers.run(reference, ["env", "echo", "whole"], remove=True, network_mode="none") == b"whole\n"
        )
    with pytest.raises(InfrastructureError, match="does not have taxmeter/not-there:1"):
        small.seed(["taxmeter/not-there:1"])


@pytest.mark.parametrize(
    ("away", "back", "state"),
    [
        (LabHost.pause, LabHost.unpause, "paused"),
        (LabHost.disconnect, LabHost.connect, "disconnected"),
        (LabHost.kill, LabHost.start, "exited"),
    ],
    ids=["paused", "disconnected", "killed"],
)
def test_a_host_goes_and_comes_back(
    lab: Lab, away: Callable[[LabHost], None], back: Callable[[LabHost], None], state: str
) -> None:
    host, other = lab.host("h3"), lab.host("h1")
    engine = host.run("docker", "info", "--format", "{{.ID}}").stdout
    away(host)
    assert {one.name: one.state for one in lab.status()} == {"h1": "running", "h2": "running", "h3": state}
    assert not answers(host, within_s=3)
    assert answers(other, within_s=30)
    back(host)
    host.wait_ready()
    assert host.run("docker", "info", "--format", "{{.ID}}").stdout == engine
    away(host)
    before = [one.container.id for one in lab.hosts()]
    lab.up(hosts=3)
    assert answers(host, within_s=30)
    assert [one.container.id for one in lab.hosts()] == before


def answers(host: LabHost, within_s: float) -> bool:
    try:
        return host.run("true", timeout_s=within_s).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def test_a_killed_engine_comes_back_and_a_stopped_one_does_not(lab: Lab) -> None:
    host = lab.host("h1")
    started = "stat -c %Y.%Z /run/docker.pid; cat /run/docker.pid"
    before = host.run("sh", "-c", started).stdout
    host.kill_engine()
    host.wait_ready()
    assert host.run("sh", "-c", started).stdout != before
    host.stop_engine()
    assert host.run("docker", "version").returncode == 1
    assert host.run("hostname").stdout == "h1\n"
    host.start_engine()
    assert host.run("docker", "version").returncode == 0
