"""Commands in the head's container: their output, exit codes and signals are as if they ran here."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster import Cluster, execute_in_head
from orchestrator.hosts.cluster.executing import execution
from tests.lab.clusters import Site, free_ports
from tests.lab.image import PROJECT
from tests.lab.lab import Lab

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster]

OUTSIDE = """
import sys
from pathlib import Path
from orchestrator.hosts.cluster import Cluster, execute_in_head
cluster = Cluster(sys.argv[1], 1, Path("/nowhere"), Path("/nowhere"), "127.0.0.1", Path(sys.argv[2]))
sys.exit(execute_in_head(cluster, sys.argv[3:]))
"""
# Says that it is ready, and what ended it.
INSIDE = """
import os, signal, sys, time
def end(number, frame):
    print("ended by", number, flush=True)
    if len(sys.argv) > 1:
        open(sys.argv[1], "w").write(str(number))
    sys.exit(7)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
print("ready", os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster(shared_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One host is enough."""
    shared_lab.up(hosts=3)
    site = Site(shared_lab, tmp_path_factory.mktemp("executing") / "state", free_ports())
    yield site.up("h1")
    site.down()


def run(cluster: Cluster, *argv: str) -> tuple[int, bytes, bytes]:
    said = {1: b"", 2: b""}

    with execution(cluster, argv) as running:
        for stream, data in running.frames():
            said[stream] += data
        return running.exit_code(), said[1], said[2]


def outside(cluster: Cluster, *argv: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", OUTSIDE, cluster.id, str(cluster.code), *argv]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=PROJECT)


def test_output_and_exit_code_are_the_commands(cluster: Cluster) -> None:
    assert run(cluster, "sh", "-c", "printf out; printf err >&2; exit 3") == (3, b"out", b"err")
    assert run(cluster, "sh", "-c", "kill -9 $$")[0] == 128 + 9
    code, said, _ = run(cluster, "python", "-c", "import sys; sys.stdout.buffer.write(bytes(range(256)) * 40000)")
    assert (code, said) == (0, bytes(range(256)) * 40000)
    assert run(cluster, "cat") == (0, b"", b"")


def test_the_command_has_the_projects_directory_but_the_code_that_was_sent(cluster: Cluster) -> None:
    program = "import orchestrator, os; print(os.getcwd()); print(orchestrator.__file__)"
    directory, file = run(cluster, "python", "-c", program)[1].decode().splitlines()
    assert directory == str(PROJECT)
    assert Path(file).is_relative_to(cluster.code)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_command(cluster: Cluster, number: signal.Signals) -> None:
    with outside(cluster, "python", "-c", INSIDE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready")
        process.send_signal(number)
        assert process.stdout.read() == f"ended by {int(number)}\n".encode()
        assert process.wait() == 7


def test_the_command_ends_when_nobody_waits_for_it_any_more(cluster: Cluster) -> None:
    told = cluster.token_path.with_name("told")
    with outside(cluster, "python", "-c", INSIDE, str(told)) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready")
        process.kill()
    while not (told.exists() and told.read_text()):
        time.sleep(0.05)
    assert told.read_text() == str(int(signal.SIGTERM))


def test_a_terminal_here_is_a_terminal_there(cluster: Cluster) -> None:
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-c",
        OUTSIDE,
        cluster.id,
        str(cluster.code),
        "python",
        "-c",
        "import sys; print(sys.stdout.isatty())",
    ]
    with subprocess.Popen(command, stdout=theirs, stdin=subprocess.DEVNULL, cwd=PROJECT) as process:
        process.wait()
    assert b"True" in os.read(ours, 4096)
    os.close(theirs)
    os.close(ours)


def test_a_cluster_that_is_gone_is_named(shared_lab: Lab, tmp_path: Path) -> None:
    gone = Cluster("0badcafe", 1, tmp_path, tmp_path)
    with pytest.raises(InfrastructureError, match="taxmeter-head-0badcafe; `taxmeter cluster up`"):
        execute_in_head(gone, ["true"])
