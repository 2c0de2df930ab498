"""The hosts of a lab: what they are, what can be done to them, and that nothing of a lab is left or foreign is touched."""

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from docker import DockerClient

from orchestrator.config import load_inventory
from orchestrator.environments import Catalogue
from orchestrator.environments.build import ensure_base
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.commands import run_in
from tests.lab.image import PROJECT, ensure_lab_image
from tests.lab.keys import IDENTITY
from tests.lab.lab import Lab
from tests.lab.objects import LABEL, LABEL_OWNER, current_owner, find_objects

pytestmark = [pytest.mark.engine, pytest.mark.lab]


def test_three_hosts_come_up_with_names_hardware_and_keys_of_their_own(lab: Lab) -> None:
    assert [(found.name, found.state) for found in lab.status()] == [(name, "running") for name in ("h1", "h2", "h3")]
    inventory = load_inventory(lab.inventory())
    seen = set()
    for host in lab.hosts():
        said = host.run("sh", "-c", "hostname; grep -m1 'model name' /proc/cpuinfo; grep MemTotal /proc/meminfo")
        name, processor, memory = said.stdout.splitlines()
        assert name == host.name
        assert processor.endswith(host.hardware.cpu_model)
        assert int(memory.split()[1]) << 10 <= host.hardware.memory_bytes
        entry = inventory.hosts[host.name]
        key = run_in(host.container, ["ssh-keygen", "-y", "-f", "/etc/lab/ssh_host_ed25519_key"]).stdout
        assert entry.host_key == " ".join(key.split()[:2])
        assert (entry.address, entry.user) == (host.address, "bench")
        assert entry.labels["gpu_generation"] == host.hardware.gpu_generation
        assert entry.expect.cpu_model == host.hardware.cpu_model
        with host.engine() as engine:
            assert engine.info()["Name"] == host.name
            seen.add((processor, engine.info()["ID"], host.address, entry.host_key))
        # as a person looks around
        command = ["ssh", "-F", str(lab.directory / "ssh_config"), host.name, "hostname"]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{host.name}\n"
    assert [len(set(column)) for column in zip(*seen, strict=True)] == [3, 3, 3, 3]
    assert lab.directory.stat().st_mode & 0o777 == 0o700
    assert (lab.directory / IDENTITY).stat().st_mode & 0o777 == 0o600


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
        whole = engine.containers.run(reference, ["env", "echo", "whole"], remove=True, network_mode="none")
        assert whole == b"whole\n"
    with pytest.raises(InfrastructureError, match="does not have taxmeter/not-there:1"):
        small.seed(["taxmeter/not-there:1"])


def has_objects(client: DockerClient, name: str) -> bool:
    return find_objects(client, lambda labels: labels[LABEL] == name).any()


def test_nothing_is_left_and_nothing_foreign_is_touched(lab: Lab, small: Lab, client: DockerClient) -> None:
    small.up(hosts=1)
    image, inside = ensure_lab_image(client, print), small.host("h1").network
    outside = client.networks.create(f"taxmeter-foreign-{uuid.uuid4().hex[:8]}")
    foreign = [client.containers.create(image, ["sleep", "60"], network=net.name) for net in (outside, inside)]
    try:
        for container in foreign:
            container.start()
        with pytest.raises(InfrastructureError, match=f"{inside.name} cannot be removed: .*active endpoints"):
            small.down()
        for container in foreign:
            container.reload()
            assert container.status == "running"
        foreign.pop().remove(force=True, v=True)
        small.down()
        small.down()
        assert not has_objects(client, small.name)
        assert not small.inventory().exists()
        assert not small.directory.exists()
        foreign[0].reload()
        assert foreign[0].status == "running"
        assert outside.name in {network.name for network in client.networks.list()}
    finally:
        for container in foreign:
            container.remove(force=True, v=True)
        outside.remove()
    assert len(lab.status()) == 3


# It is killed when the first host exists, but not yet its keys.
KILLED = """
import signal, sys
from pathlib import Path
from tests.lab import lab
made = lab.Lab.of_this_process(Path(sys.argv[1]))
def wait(*_):
    print(made.name, flush=True)
    signal.pause()
lab.give_host_key = wait
made.up(hosts=2)
"""


def test_a_lab_whose_process_was_killed_is_reaped_by_the_next(small: Lab, client: DockerClient, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed")]
    (tmp_path / "killed").mkdir()
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        name = next(line.strip() for line in lines if line.startswith("test-"))
        os.kill(process.pid, signal.SIGKILL)
    assert has_objects(client, name)
    small.up(hosts=1)
    assert not has_objects(client, name)
    assert [found.state for found in small.status()] == ["running"]


def test_what_was_left_half_made_or_is_another_lab_is_made_anew_but_not_that_of_another_checkout(
    small: Lab, client: DockerClient, tmp_path: Path
) -> None:
    labels = {LABEL: small.name, LABEL_OWNER: current_owner()}
    client.networks.create(f"taxmeter-{small.name}", labels=labels)
    client.volumes.create(f"taxmeter-{small.name}", labels=labels)
    client.containers.create(ensure_lab_image(client, print), name=f"taxmeter-{small.name}-h1", labels=labels)
    for hosts in (2, 1):
        small.up(hosts=hosts)
        assert [found.state for found in small.status()] == ["running"] * hosts
    other = Lab(small.name, tmp_path / "other", tmp_path / "other.yaml", current_owner())
    with pytest.raises(InfrastructureError, match=f"of {small.directory} is up on this machine; take it down first"):
        other.up(hosts=1)
    assert [found.state for found in small.status()] == ["running"]


def test_the_command_says_how_the_hosts_are(client: DockerClient) -> None:
    command = [sys.executable, "-m", "tests.lab", "status"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"h1 +10\.|the lab is down", done.stdout)
