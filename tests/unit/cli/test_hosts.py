"""`taxmeter hosts`, as a person sees it, where no host needs to be reached."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from orchestrator.cli import run
from orchestrator.errors import ExitCode
from tests.conftest import Captured, Patch

LAB = """\
version: 1
defaults: {user: bench}
groups:
  ampere: {hosts: ["a*"], labels: {generation: ampere}, expect: {gpu_count: 4}}
hosts:
  a1:
    connection: ssh
    address: 10.0.0.7
    labels: {rack: b}
  b1: {connection: ssh, ssh_alias: b1.lab, state: drain}
  here: {connection: local, expect: {gpu_count: 99}}
"""


@pytest.fixture
def inventory(tmp_path: Path, in_project: Path) -> str:
    path = tmp_path / "hosts.yaml"
    path.write_text(LAB)
    return str(path)


def test_a_list_asks_nobody(inventory: str, capsys: Captured) -> None:
    assert run(["hosts", "list", "--inventory", inventory]) == ExitCode.OK
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["a1", "ssh", "10.0.0.7", "active", "ampere", "generation=ampere", "rack=b"],
        ["b1", "ssh", "b1.lab", "drain", "-"],
        ["here", "local", "-", "active", "-"],
    ]


def test_show_says_where_each_setting_comes_from(inventory: str, capsys: Captured) -> None:
    assert run(["hosts", "show", "a1", "--inventory", inventory]) == ExitCode.OK
    printed = capsys.readouterr().out
    shown = {line.split()[0]: line.split()[1:] for line in printed.splitlines()[1:]}
    assert printed.startswith("a1  groups: ampere\n")
    assert shown["user"] == ["bench", f"{inventory}:2", "(defaults)"]
    assert shown["labels.generation"] == ["ampere", f"{inventory}:4", "(group", "ampere)"]
    assert shown["labels.rack"] == ["b", f"{inventory}:9", "(host)"]
    assert shown["expect.gpu_count"] == ["4", f"{inventory}:4", "(group", "ampere)"]
    assert shown["port"] == ["-", "built", "in"]


def test_the_schema_is_printed_as_it_is_published(project: Path, capsys: Captured) -> None:
    assert run(["hosts", "schema"]) == ExitCode.OK
    assert capsys.readouterr().out == (project / "docs" / "hostinventory.schema.json").read_text()


def test_a_host_that_cannot_be_asked_is_told(inventory: str, capsys: Captured) -> None:
    nobody = "no host is called a2; known: a1, b1, here"
    for command, words in (
        *((["show", "a2"], nobody), (["facts", "a2"], nobody), (["diff", "a1", "a2"], nobody), (["key", "a2"], nobody)),
        (["key", "here"], "here is this machine, which needs no host key"),
    ):
        assert run(["hosts", *command, "--inventory", inventory]) == ExitCode.USAGE
        assert words in capsys.readouterr().err


def test_this_machine_tells_its_facts_and_differs_in_nothing_from_itself(inventory: str, capsys: Captured) -> None:
    assert run(["hosts", "facts"]) == ExitCode.OK
    assert '"system_id"' in capsys.readouterr().out
    assert run(["hosts", "diff", "here", "here", "--inventory", inventory]) == ExitCode.OK
    assert "the same hardware, and nothing else differs" in capsys.readouterr().out


def test_a_machine_that_is_not_as_expected(inventory: str, capsys: Captured, monkeypatch: Patch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    assert run(["hosts", "check", "--inventory", inventory, "--limit", "here"]) == ExitCode.NO_USABLE_HOST
    printed = capsys.readouterr().out
    assert "✗ here: expect: expected 99 GPUs, found " in printed
    assert "! here: engine: no Docker engine answers at unix:///nonexistent/docker.sock" in printed
    assert "0 of 1 hosts can be used" in printed


def test_a_command_that_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    inventory = tmp_path / "lab.yaml"
    # short, because the paths of sockets have a limit
    with socket.create_server(("127.0.0.1", 0)) as silent, TemporaryDirectory(prefix="t", dir="/tmp") as own:
        silent.settimeout(60)
        port = silent.getsockname()[1]
        inventory.write_text(f"version: 1\nhosts:\n  h1: {{connection: ssh, address: 127.0.0.1, port: {port}}}\n")
        command = [sys.executable, "-m", "orchestrator", "hosts", "key", "h1", "--inventory", str(inventory)]
        environment = {**os.environ, "TMPDIR": own}
        with subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.PIPE) as running:
            connection, _ = silent.accept()
            with connection:
                assert len(list(Path(own).iterdir())) == 1
                running.send_signal(signal.SIGTERM)
                assert running.wait(30) == ExitCode.INTERRUPTED
        assert list(Path(own).iterdir()) == []
        with pytest.raises(ProcessLookupError):
            os.killpg(running.pid, 0)
