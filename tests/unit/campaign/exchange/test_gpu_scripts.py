"""Scripts for machines with a GPU: a file that travels in parts, and what an export says about its GPU."""

import subprocess
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
