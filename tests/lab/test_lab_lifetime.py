"""A lab comes up and goes: nothing of it is left, and nothing foreign is touched."""

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from docker import DockerClient

from orchestrator.errors import InfrastructureError
from tests.lab.image import PROJECT, ensure_lab_image
from tests.lab.lab import Lab
from tests.lab.objects import LABEL, LABEL_OWNER, current_owner, find_objects

pytestmark = [pytest.mark.engine, pytest.mark.lab]


def objects_of(client: DockerClient, lab: Lab) -> bool:
    return find_objects(client, lambda labels: labels[LABEL] == lab.name).any()


def test_nothing_is_left_and_nothing_foreign_is_touched(
    lab: Lab, small: Lab, client: DockerClient, tmp_path: Path
) -> None:
    small.up(hosts=1)
    marker = f"taxmeter-foreign-{uuid.uuid4().hex[:8]}"
    network = client.networks.create(marker)
    container = client.containers.create(ensure_lab_image(client, print), ["sleep", "60"], name=marker, network=marker)
    try:
        container.start()
        small.down()
        small.down()
        assert not objects_of(client, small)
        assert not small.inventory().exists()
        assert not small.directory.exists()
        container.reload()
        assert container.status == "running"
        assert marker in {one.name for one in client.networks.list()}
    finally:
        container.remove(force=True, v=True)
        network.remove()
    assert len(lab.status()) == 3


def test_a_foreign_container_in_the_network_of_a_lab_is_not_cut_off(small: Lab, client: DockerClient) -> None:
    small.up(hosts=1)
    network = small.host("h1").network
    image = ensure_lab_image(client, print)
    container = client.containers.run(image, ["sleep", "60"], network=network.name, detach=True)
    try:
        with pytest.raises(InfrastructureError, match=f"{network.name} cannot be removed: .*active endpoints"):
            small.down()
        container.reload()
        assert container.status == "running"
    finally:
        container.remove(force=True, v=True)


# The first argument is the directory, the second what is printed: when `up` returned, or when the first host exists.
KILLED = """
import signal, sys
from pathlib import Path
from tests.lab import creation
from tests.lab.lab import Lab
lab = Lab.of_this_process(Path(sys.argv[1]))
def wait(*_):
    print(lab.name, flush=True)
    signal.pause()
if sys.argv[2] == "starting":
    creation.give_host_key = wait
lab.up(hosts=2)
wait()
"""


@pytest.mark.parametrize("moment", ["starting", "up"])
def test_a_lab_whose_process_was_killed_is_reaped_by_the_next(
    small: Lab, client: DockerClient, tmp_path: Path, moment: str
) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed"), moment]
    (tmp_path / "killed").mkdir()
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        name = next(line.strip() for line in lines if line.startswith("test-"))
        os.kill(process.pid, signal.SIGKILL)
    assert find_objects(client, lambda labels: labels[LABEL] == name).any()
    small.up(hosts=1)
    assert not find_objects(client, lambda labels: labels[LABEL] == name).any()
    assert [one.state for one in small.status()] == ["running"]


def test_a_lab_of_the_same_name_that_was_left_half_made_is_made_anew(small: Lab, client: DockerClient) -> None:
    labels = {LABEL: small.name, LABEL_OWNER: current_owner()}
    client.networks.create(f"taxmeter-{small.name}", labels=labels)
    client.volumes.create(f"taxmeter-{small.name}", labels=labels)
    image = ensure_lab_image(client, print)
    client.containers.create(image, name=f"taxmeter-{small.name}-h1", labels=labels)
    small.up(hosts=1)
    assert [one.state for one in small.status()] == ["running"]


def test_a_lab_with_another_number_of_hosts_is_another_lab(small: Lab) -> None:
    small.up(hosts=2)
    small.up(hosts=1)
    assert [one.name for one in small.status()] == ["h1"]


def test_a_lab_that_another_checkout_holds_is_left_alone(small: Lab, tmp_path: Path) -> None:
    small.up(hosts=1)
    other = Lab(small.name, tmp_path / "other", tmp_path / "other.yaml", current_owner())
    with pytest.raises(InfrastructureError, match=f"of {small.directory} is up on this machine; take it down first"):
        other.up(hosts=1)
    assert [one.state for one in small.status()] == ["running"]


def test_the_command_says_how_the_hosts_are(client: DockerClient) -> None:
    command = [sys.executable, "-m", "tests.lab", "status"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"h1 +10\.|the lab is down", done.stdout)
