"""Scripts for machines with a GPU: a file that travels in parts, and what an export says about its GPU."""

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from orchestrator.campaign.exchange.script import run_script
from orchestrator.cli import run
from orchestrator.errors import ExitCode
from tests.conftest import PROJECT

PARTS = PROJECT / "docker" / "wheel-parts"
UUID = "GPU-34bf77d1-c686-6821-79a8-32d326c5039c"


def test_a_file_travels_in_parts_and_a_damaged_part_is_noticed(tmp_path: Path) -> None:
    wheel, parts = tmp_path / "a-1.0-cp312.whl", tmp_path / "parts"
    wheel.write_bytes(bytes(range(256)) * 10_000)
    subprocess.run([PARTS, "split", wheel, parts, "1"], check=True, capture_output=True)
    assert sorted(path.name for path in parts.iterdir())[:3] == [f"{wheel.name}.part-00{n}" for n in range(3)]
    subprocess.run(["sh", parts / "wheel-parts", "join", parts], check=True, capture_output=True)
    assert (parts / wheel.name).read_bytes() == wheel.read_bytes()
    (parts / wheel.name).unlink()
    (parts / f"{wheel.name}.part-001").write_bytes(b"something else")
    joined = subprocess.run(["sh", parts / "wheel-parts", "join", parts], capture_output=True, text=True)
    assert joined.returncode != 0
    assert "part-001: FAILED" in joined.stdout
    assert not (parts / wheel.name).exists()


def stub(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return path


def test_a_lease_ends_in_time_with_as_much_of_the_export_as_fits(tmp_path: Path) -> None:
    lease = tmp_path / "docker" / "gpu-lease"
    lease.parent.mkdir()
    shutil.copy(PROJECT / "docker" / "gpu-lease", lease)
    python = stub(tmp_path / "python", 'echo "checks $*"')

    def run_it(**variables: str) -> str:
        environ = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHON": str(python), **variables}
        return subprocess.run([lease, "out"], env=environ, check=True, capture_output=True, text=True).stdout

    told = run_it()
    assert "checks -m runners.check out --seconds 400" in told
    assert f"{tmp_path}/gpu-run/run.sh is not there" in told
    stub(tmp_path / "gpu-run" / "run.sh", "exit 0")
    stub(tmp_path / "bin" / "timeout", 'echo "timeout $*"; exit 124')
    told = run_it(CHECK_S="0", LEASE_S="50")
    assert told.startswith("50 s are left, too few for the export; go on with CHECK_S=0")
    stub(tmp_path / "gpu-run" / "cache" / "reference", "")
    told = run_it(CHECK_S="0", LEASE_S="100")
    assert re.fullmatch(r"timeout -k 10 (8[345]) gpu-run/run.sh\nrun.sh ended with 124\n", told)
    with tarfile.open(tmp_path / "out" / "gpu-run.tar") as archive:
        assert archive.getnames() == ["gpu-run", "gpu-run/run.sh"]


def test_checks_in_an_image_get_the_gpu_the_code_and_a_place_for_rows_and_nothing_of_an_earlier_run(
    tmp_path: Path,
) -> None:
    commands, out = tmp_path / "commands", tmp_path / "out"
    docker = f"""[ "$1" = image ] && echo sha256:cuda13
echo "$*" >>{commands}
[ "$1" = image ] || exit 1
"""
    stub(tmp_path / "bin" / "docker", docker)
    out.mkdir()
    (out / "rows.tar").write_text("of an earlier run: no tar")
    environ = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = [PROJECT / "docker" / "gpu-check", out, "--quick"]
    done = subprocess.run(command, cwd=PROJECT, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    asked, started = commands.read_text().splitlines()
    assert "label=org.taxmeter.environment=cuda13" in asked
    for part in (
        "--gpus all --network none",
        f"--user {os.getuid()}:{os.getgid()}",
        f"{PROJECT}/runners:/code/runners:ro",
        f"{out}:/out",
        "sha256:cuda13 python -m runners.check /out --quick",
    ):
        assert part in started


def test_an_export_names_its_gpu_and_takes_no_number_for_one(
    tmp_path: Path, in_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def export(gpu: str) -> int:
        output = str(tmp_path / gpu)
        return run(["task", "export", "sweeps/gpu.yaml", "--environment", "cuda13", "--gpu", gpu, "--output", output])

    assert export(UUID) == ExitCode.OK
    assert f"export CUDA_VISIBLE_DEVICES={UUID}" in (tmp_path / UUID / "run.sh").read_text()
    assert "CUDA_VISIBLE_DEVICES" not in run_script([("r1", "cuda13", 60)], None)
    assert export("0") == ExitCode.USAGE
    assert "--gpu 0: expected a UUID" in capsys.readouterr().err
