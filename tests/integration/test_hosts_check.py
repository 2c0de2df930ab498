"""`taxmeter hosts check`, `facts`, `diff` and `key` against a real sshd and a real engine."""

import getpass
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from orchestrator.cli import run
from orchestrator.config import fingerprint_of
from orchestrator.environments import BuiltImage, connect, read_built_images
from orchestrator.errors import ExitCode
from orchestrator.hosts import describe_here
from orchestrator.hosts.check.engine import CHECK_LABEL as LABEL
from tests.sshd import Sshd, make_key, public, running_sshd

pytestmark = pytest.mark.engine
WriteInventory = Callable[..., str]
SOCKET = "/var/run/docker.sock"


@pytest.fixture(scope="module")
def sshd(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    if not Path(SOCKET).is_socket():
        pytest.skip("the engine of this machine is not at its usual place, as hosts have it")
    with running_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def write(tmp_path: Path, in_project: Path, cpu_image: BuiltImage) -> WriteInventory:
    """Writes an inventory of these hosts; returns its path as the commands take it."""

    def inventory(**hosts: dict[str, object]) -> str:
        path = tmp_path / "hosts.yaml"
        named = {name.replace("_", "-"): settings for name, settings in hosts.items()}
        YAML(typ="safe").dump({"version": 1, "hosts": named}, path)
        return str(path)

    return inventory


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory with the programs of every Linux, without any Python, for the PATH of a host."""
    directory = tmp_path / "bin"
    directory.mkdir()
    names = "sh id uname sed head lscpu getconf grep cat sort df tr cut date timeout"
    for name in names.split():
        found = shutil.which(name)
        if found is not None:
            (directory / name).symlink_to(found)
    return directory


def checked(inventory: str, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code and, by host, what the check found."""
    capsys.readouterr()
    code = run(["hosts", "check", "--inventory", inventory, "--format", "json", *options])
    captured = capsys.readouterr()
    assert captured.err == ""
    return code, {one["host"]: one for one in json.loads(captured.out)["hosts"]}


def containers() -> list[str]:
    with closing(connect()) as client:
        return [found.id for found in client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)]


def test_a_host_over_ssh_is_found_good(sshd, write, capsys, cpu_image) -> None:
    """What a check finds is that of every kind of host (tests/conformance/test_hosts.py); here is what only SSH has."""
    inventory = write(h1=sshd.settings(expect={"gpu_count": 0}), here={"connection": "local"})
    code, hosts = checked(inventory, capsys)
    assert code == ExitCode.OK
    far = hosts["h1"]
    assert far["engine"]["images"]["cpu"]["layers"] == list(cpu_image.layers)
    # both look at the same machine
    assert far["reading"]["memory_bytes"] == hosts["here"]["reading"]["memory_bytes"]
    assert abs(far["clock"]["offset_s"]) <= far["clock"]["uncertainty_s"]
    assert hosts["here"]["clock"] is None


def test_each_kind_of_failure_has_its_line(sshd, write, capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    other = make_key(tmp_path / "other")
    silent = tmp_path / "silent.sock"
    with socket.socket() as reserved, socket.socket(socket.AF_UNIX) as unheard, socket.socket() as mute:
        reserved.bind(("127.0.0.1", 0))
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        unheard.bind(str(silent))
        inventory = write(
            good=sshd.settings(),
            wrong_key=sshd.settings(address="127.0.0.2", host_key=public(other)),
            unknown_key=sshd.settings(address="127.0.0.3", host_key=None),
            refused=sshd.settings(address="127.0.0.4", identity_file=str(other)),
            closed=sshd.settings(address="127.0.0.1", port=reserved.getsockname()[1]),
            unnamed=sshd.settings(address="host.invalid"),
            mute=sshd.settings(address="127.0.0.1", port=mute.getsockname()[1]),
            no_engine=sshd.settings(address="127.0.0.5", engine="unix:///nonexistent/docker.sock"),
            engine_down=sshd.settings(address="127.0.0.6", engine=f"unix://{silent}"),
            unexpected=sshd.settings(address="127.0.0.7", expect={"gpu_count": 4, "cpu_model": "Abacus*"}),
            drained=sshd.settings(address="127.0.0.8", state="drain"),
        )
        assert run(["hosts", "check", "--inventory", inventory, "--timeout", "45"]) == ExitCode.TRIALS_FAILED
    printed = capsys.readouterr().out
    failures = {line.split()[1]: line for line in printed.splitlines() if line.startswith("✗")}
    expected = {
        "wrong-key:": "ssh: wrong host key: it offers ED25519 ",
        "unknown-key:": "ssh: its host key is not known: `taxmeter hosts key unknown-key`",
        "refused:": f"ssh: it refuses {getpass.getuser()} (Permission denied (publickey)",
        "closed:": "ssh: unreachable (connect to host 127.0.0.1",
        "unnamed:": "ssh: unreachable (Could not resolve hostname host.invalid",
        "mute:": "ssh: no answer (Connection timed out during banner exchange)",
        "no-engine:": "engine: no engine: there is no socket /nonexistent/docker.sock. Install",
        "engine-down:": f"engine: the engine is down: nobody answers behind {silent}",
        "unexpected:": "expect: expected 4 GPUs, found 0; expected processor Abacus*, found ",
    }
    assert failures.keys() == expected.keys()
    for name, line in expected.items():
        assert line in failures[name]
    assert "drained (drain)" in printed
    assert "1 of 11 hosts can be used, 1 take no new trials" in printed


@pytest.mark.parametrize(
    ("setting", "check", "problem"),
    [
        ("AllowStreamLocalForwarding no", "engine", "allow it there with `AllowStreamLocalForwarding yes`"),
        ("ForceCommand sleep 600", "ssh", "no answer within"),
        (
            "ForceCommand echo This account is not available",
            "ssh",
            "its shell did not run the script of the check; it said: This account is not available",
        ),
    ],
)
def test_what_a_host_forbids_is_told_apart(
    write, capsys, tmp_path: Path, setting: str, check: str, problem: str
) -> None:
    timeout_s = "3" if "sleep" in setting else "45"
    with running_sshd(tmp_path / "strict", setting) as strict:
        code, hosts = checked(write(h1=strict.settings()), capsys, "--timeout", timeout_s)
    assert code == ExitCode.NO_USABLE_HOST
    assert problem in hosts["h1"]["checks"][check]["problem"]


def test_a_host_without_the_image(
    sshd, write, capsys, project: Path, tmp_path: Path, cpu_image: BuiltImage, monkeypatch
) -> None:
    elsewhere = tmp_path / "project"
    shutil.copytree(project / "docker", elsewhere / "docker", ignore=shutil.ignore_patterns("wheels"))
    lost = cpu_image.model_copy(
        update={
            "layers": (*cpu_image.layers, "sha256:" + "0" * 64),
            "image_id": "sha256:" + "1" * 64,
            "repo_digest": None,
        }
    )
    record = {"images": {"cpu": lost.model_dump(mode="json")}}
    YAML(typ="safe").dump(record, elsewhere / "docker" / "images.lock.yaml")
    inventory = write(h1=sshd.settings())
    monkeypatch.chdir(elsewhere)
    assert set(read_built_images(Path("docker/images.yaml"))) == {"cpu"}
    code, hosts = checked(inventory, capsys)
    assert code == ExitCode.NO_USABLE_HOST
    assert hosts["h1"]["checks"]["images"]["shown"] == "0/1"
    assert (
        "the engine does not have cpu, and neither this machine nor a registry has cpu"
        in (hosts["h1"]["checks"]["images"]["problem"])
    )


def test_gpus_that_containers_do_not_see(write, capsys, tmp_path: Path, tools: Path) -> None:
    (tools / "nvidia-smi").write_text(
        '#!/bin/sh\ncase "$*" in *compute-apps*) echo "1, 10, python";; '
        "*) echo 'GPU-1, NVIDIA A100-SXM4-80GB, 81920, 535.129.03, 8.0';; esac\n"
    )
    (tools / "nvidia-smi").chmod(0o755)
    with running_sshd(tmp_path / "gpus", f"SetEnv PATH={tools}") as with_gpus:
        code, hosts = checked(write(h1=with_gpus.settings(expect={"gpu_model": "NVIDIA A100*"})), capsys)
    checks = hosts["h1"]["checks"]
    assert checks["expect"]["level"] == "ok"
    assert checks["driver"]["shown"] == "535.129.03"
    assert "its GPUs are in use: " in checks["gpu users"]["problem"]
    # this machine's engine has no toolkit: the container was asked for and refused
    assert checks["gpu"]["level"] == "failure"
    assert "containers see none of the 1 GPUs" in checks["gpu"]["problem"]
    assert "install NVIDIA's container toolkit there" in checks["gpu"]["problem"]
    assert code == ExitCode.NO_USABLE_HOST
    assert containers() == []


def test_the_fingerprint_of_a_host_without_python_is_read_in_a_container(
    write, capsys, tmp_path: Path, tools: Path
) -> None:
    with running_sshd(tmp_path / "bare", f"SetEnv PATH={tools}") as bare:
        inventory = write(h1=bare.settings(), here={"connection": "local"})
        capsys.readouterr()
        assert run(["hosts", "facts", "h1", "--inventory", inventory]) == ExitCode.OK
        facts = json.loads(capsys.readouterr().out)
        code = run(["hosts", "diff", "h1", "here", "--inventory", inventory])
        printed = capsys.readouterr().out
    here = json.loads(json.dumps(describe_here().document))
    assert facts["read"].startswith("in a container of the image cpu (python3 is missing there): C library unknown")
    assert facts["hw_id"] == here["hw_id"]
    assert facts["fingerprint"]["private"]["host_name"] == os.uname().nodename
    assert facts["fingerprint"]["kernel"]["distribution"] == here["fingerprint"]["kernel"]["distribution"]
    assert facts["fingerprint"]["kernel"]["libc"] is None
    assert code == ExitCode.TRIALS_FAILED
    assert "the same hardware; what differs:" in printed
    assert "kernel.libc" in printed
    assert "cpu.model_name" not in printed
    assert containers() == []


def test_the_offered_key_is_compared_with_the_pinned_one(sshd, write, capsys, tmp_path: Path) -> None:
    other = public(make_key(tmp_path / "other"))
    inventory = write(
        none=sshd.settings(host_key=None),
        same=sshd.settings(address="127.0.0.2"),
        wrong=sshd.settings(address="127.0.0.3", host_key=other),
    )
    for name, code, line in (
        ("none", ExitCode.OK, "pins none yet"),
        ("same", ExitCode.OK, "pins the same"),
        ("wrong", ExitCode.TRIALS_FAILED, f"pins another: {fingerprint_of(other)}"),
    ):
        assert run(["hosts", "key", name, "--inventory", inventory]) == code
        printed = capsys.readouterr().out
        assert f"host_key: {sshd.host_key}\n" in printed
        assert f"{name} offers {fingerprint_of(sshd.host_key)}\n" in printed
        assert line in printed


def test_a_host_that_cannot_be_asked_is_one_line_and_exit_code_3(sshd, write, capsys) -> None:
    inventory = write(h1=sshd.settings(host_key=None))
    assert run(["hosts", "facts", "h1", "--inventory", inventory]) == ExitCode.NO_USABLE_HOST
    error = capsys.readouterr().err
    assert error.startswith("taxmeter: h1: its host key is not known")
    assert error.count("\n") == 1
