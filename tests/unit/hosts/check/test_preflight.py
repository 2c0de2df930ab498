"""The script that looks at a host, run by a real shell, and what is understood of its answer."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.config import Connection, Host
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.check.clock import Skew, measure_skew, measure_skew_of, skew_of
from orchestrator.hosts.check.preflight import (
    SCRIPT,
    EngineSocket,
    GpuProcess,
    Preflight,
    PreflightGpu,
    PreflightQuestion,
    parse,
)
from orchestrator.hosts.connection import Connections
from tests.sshd import pretend_ssh

Run = Callable[..., Preflight]
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
GPUS = """\
GPU-11111111-2222-3333-4444-555555555555, NVIDIA A100-SXM4-80GB, 81920, 535.129.03, 00000000:3B:00.0, [N/A], 8.0
GPU-66666666-7777-8888-9999-000000000000, NVIDIA A100-SXM4-80GB, 81920, 535.129.03, 00000000:B1:00.0, Enabled, 8.0
"""


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the script, with programs of our own before those of the machine."""

    def run(
        shell: str = "sh", engine: str | None = None, directories: tuple[str, ...] = (), user: int | None = None,
        **programs: str,
    ) -> Preflight:  # fmt: skip
        binaries = tmp_path / "bin"
        binaries.mkdir(exist_ok=True)
        for name, text in programs.items():
            program = binaries / name.replace("_", "-")
            program.write_text(f"#!/bin/sh\n{text}\n")
            program.chmod(0o755)
        _, *rest = PreflightQuestion(engine, directories, 60.0).command
        command = [shell, "sh", *rest] if shell == "busybox" else [shell, *rest]
        variables = os.environ | {"PATH": f"{binaries}:{os.environ['PATH']}"}
        done = subprocess.run(
            command, input=SCRIPT, capture_output=True, text=True, env=variables, user=user, check=True
        )
        assert done.stderr == ""
        return parse(done.stdout)

    return run


@pytest.mark.parametrize("shell", SHELLS)
def test_this_machine(look: Run, shell: str) -> None:
    seen = look(shell, directories=("/", "/nonexistent/below/a b"))
    assert (seen.system, seen.release, seen.architecture) == ("Linux", os.uname().release, os.uname().machine)
    assert min(seen.threads or 0, (seen.memory_bytes or 0) >> 28) >= 1
    assert seen.load_1m is not None
    assert seen.has_os_release is Path("/etc/os-release").exists()
    # what is not there yet would be on the disk of what is
    assert set(seen.free_bytes) == {"/", "/nonexistent/below/a b"}
    assert all(free is not None and free > 0 for free in seen.free_bytes.values())


def test_gpus_and_what_runs_on_them(look: Run) -> None:
    processes = 'echo "1, 1024, python"; echo "999999999, [N/A], /usr/bin/a b, c"'
    seen = look(nvidia_smi=f"case \"$*\" in *compute-apps*) {processes};; *) cat <<'X'\n{GPUS}X\n;; esac")
    first, second = seen.gpus
    assert first == PreflightGpu(
        "GPU-11111111-2222-3333-4444-555555555555", "NVIDIA A100-SXM4-80GB", 81920 << 20, "8.0", "0000:3b:00.0"
    )
    assert (first.mig, second.mig, seen.driver_version) == (None, True, "535.129.03")
    assert seen.gpu_processes == (
        GpuProcess(1, "root", 1024 << 20, "python"),
        GpuProcess(999999999, "?", None, "/usr/bin/a b, c"),
    )


@pytest.mark.parametrize(
    ("unknown", "lost", "known"),
    [
        ("*compute_cap*|*mig*", (", 8.0", ", Enabled", ", [N/A]"), [(None, None), (None, None)]),
        ("*compute_cap*", (", 8.0",), [(None, None), (True, None)]),
    ],
    ids=["of before 2020", "of before 2022"],
)
def test_an_old_driver_tells_what_it_knows(look: Run, unknown: str, lost: tuple[str, ...], known: list[object]) -> None:
    rows = GPUS
    for field in lost:
        rows = rows.replace(field, "")
    program = f"case \"$*\" in {unknown}) echo no >&2; exit 2;; *compute-apps*) ;; *) cat <<'X'\n{rows}X\n;; esac"
    seen = look(nvidia_smi=program)
    assert [(gpu.mig, gpu.compute_capability) for gpu in seen.gpus] == known
    assert [gpu.pci_bus_id for gpu in seen.gpus] == ["0000:3b:00.0", "0000:b1:00.0"]
    assert seen.gpu_problem is None


def test_a_driver_that_fails_says_why(look: Run) -> None:
    seen = look(nvidia_smi='echo "NVIDIA-SMI has failed because it could not communicate with the driver"; exit 9')
    assert seen.gpus == ()
    assert "nvidia-smi fails (NVIDIA-SMI has failed because" in (seen.gpu_problem or "")


def test_the_socket_of_an_engine(look: Run) -> None:
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        Path(directory).chmod(0o755)  # others may enter, as they may not those of pytest
        path = Path(directory) / "docker.sock"
        engine = f"unix://{path}"
        assert look(engine=engine).socket is None
        listener.bind(str(path))
        assert look(engine=engine).socket == EngineSocket(str(path), "silent")
        listener.listen()
        assert look(engine=engine).socket == EngineSocket(str(path), "listening")
        path.chmod(0)
        of_another = 65534 if os.geteuid() == 0 else None
        assert look(engine=engine, user=of_another).socket == EngineSocket(str(path), "denied")


WHOLE = """\
Welcome to the lab!
@system\nLinux\n5.15.0\naarch64\nh1
@user\nbench\n1001\nbench docker
@cpu\nNeoverse-N1
@threads\n80
@memory\n65842544
@load\n1.50
@governors\nperformance\npowersave
@python
@pci\n0000:01:00.0\n0000:02:00.0
@gpus
@sockets\ndenied /var/run/docker.sock\nmissing /run/user/1001/docker.sock
@disks\n1024|UNKNOWN (0x1)|/var/lib/docker\n||/var/lib/taxmeter\n4|nfs|/home/bench/a|b
@end

"""


def test_an_answer_from_elsewhere() -> None:
    seen = parse(WHOLE)
    assert (seen.cpu_model, seen.memory_bytes, seen.load_1m) == ("Neoverse-N1", 65842544 * 1024, 1.5)
    assert (seen.governors, seen.python) == (("performance", "powersave"), None)
    assert seen.groups == ("bench", "docker")
    assert seen.gpu_problem == "2 NVIDIA GPUs on the bus, but there is no nvidia-smi: install NVIDIA's driver"
    assert seen.socket == EngineSocket("/var/run/docker.sock", "denied")
    assert seen.free_bytes == {"/var/lib/docker": 1 << 20, "/var/lib/taxmeter": None, "/home/bench/a|b": 4096}
    assert list(seen.filesystems.values()) == ["UNKNOWN (0x1)", None, "nfs"]
    fell_off = parse(WHOLE.replace("@gpus\n", f"@gpus\n{GPUS.splitlines()[0]}\n@nvidia-smi\n0\n@gpu-processes\n"))
    assert len(fell_off.gpus) == 1
    assert "2 NVIDIA GPUs on the bus, but nvidia-smi shows 1" in (fell_off.gpu_problem or "")


def test_where_gpus_and_processors_sit() -> None:
    places = "0000:3b:00.0 1 8-15\n0000:b1:00.0 -1 0-15\n@cores\n0,16\n1,17\n@nodes\n0 0-7,16-23\n1 8-15,24-31\n"
    text = WHOLE.replace("0000:01:00.0\n0000:02:00.0\n", places).replace("@gpus\n", f"@gpus\n{GPUS}@nvidia-smi\n0\n")
    seen = parse(text)
    assert seen.gpu_problem is None
    assert seen.topology.cores == ("0,16", "1,17")
    assert [(node.number, node.cpus) for node in seen.topology.nodes] == [(0, "0-7,16-23"), (1, "8-15,24-31")]
    assert [(gpu.pci_bus_id, gpu.numa_node, gpu.cpus, gpu.mig) for gpu in seen.topology.gpus] == [
        ("0000:3b:00.0", 1, "8-15", None),
        ("0000:b1:00.0", None, "0-15", True),
    ]


@pytest.mark.parametrize("text", ["", "This account is currently not available.\n", WHOLE.replace("@end", "")])
def test_a_shell_that_is_none(text: str) -> None:
    with pytest.raises(InfrastructureError, match="its shell did not run the script of the check"):
        parse(text)


def test_the_skew_is_that_of_the_quickest_answer_and_as_certain_as_that() -> None:
    waits = iter([0.3, 0.3, 0.0, 0.3, 0.3])

    def ask() -> str:
        wait_s = next(waits)
        time.sleep(wait_s)
        return f"{time.time() + 5:.6f}" if wait_s == 0 else "0"

    skew = measure_skew_of(ask)
    assert skew is not None
    assert skew.offset_s == pytest.approx(5.0, abs=0.1)
    assert skew.uncertainty_s < 0.1
    assert measure_skew_of(lambda: "sh: date: not found") is None
    assert skew_of(100.0, "107.5", 103.0) == Skew(6.0, 1.5)
    assert skew_of(100.0, "100.N", 103.0) == Skew(-1.0, 2.0), "whole seconds"


@pytest.mark.parametrize("before", ["", "Welcome", "Welcome to\nthis\nhost,\nbe\npolite\n\n"])
def test_what_a_login_shell_prints_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    pretend_ssh(tmp_path, before)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("orchestrator.hosts.connection.ssh._SOCKETS", {"docker": f"/nowhere {tmp_path}/engine"})
    hosts = {"far": Host(connection=Connection.SSH, address="10.0.0.9")}
    with Connections(hosts) as connections, socket.socket(socket.AF_UNIX) as engine:
        assert connections.engine_socket("far", 10) == "/nowhere"
        engine.bind(str(tmp_path / "engine"))
        assert connections.engine_socket("far", 10) == str(tmp_path / "engine")
        skew = measure_skew(connections, "far", 10)
        assert skew is not None
        assert abs(skew.offset_s) <= skew.uncertainty_s + 0.1
        question = PreflightQuestion(None, ("/",), 10)
        assert parse(connections.run("far", question.command, 10, stdin=SCRIPT).stdout).system == "Linux"
