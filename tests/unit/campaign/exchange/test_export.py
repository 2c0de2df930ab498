"""`taxmeter task export`: what it writes, what it refuses before it writes anything, and the scripts beside it."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from orchestrator.campaign.exchange.export import parse_cores
from orchestrator.campaign.exchange.manifest import LockedEnvironment, read_manifest
from orchestrator.campaign.exchange.script import BUSY, run_script
from orchestrator.cli import run
from orchestrator.environments import Catalogue
from orchestrator.errors import ConfigurationError, ExitCode
from runners.contract import Task, decode
from runners.supervision.start import EXIT_BUSY
from tests.conftest import PROJECT, Captured, Patch
from tests.exporting import SWEEP, edit


@pytest.fixture
def sweep_file(tmp_path: Path, in_project: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SWEEP.replace("rounds: 2", "rounds: 10"))
    return path


def export(sweep_file: Path, output: Path, *options: str) -> int:
    return run(["task", "export", str(sweep_file), "--output", str(output), *options])


def task_of(directory: Path) -> Task:
    return decode(Task, json.loads((directory / "task.json").read_bytes()))


def test_an_export_holds_all_that_the_machine_and_the_import_need(sweep_file: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "out"
    assert export(sweep_file, output, "--host", "gpu-box", "--label", "gpu=h200") == ExitCode.OK
    manifest = read_manifest(output)
    assert manifest.host == "gpu-box"
    assert manifest.labels == {"gpu": "h200"}
    assert manifest.sweep_document == sweep_file.read_text()
    assert manifest.planned_trials == 20
    assert [task.directory for task in manifest.tasks] == [f"tasks/r{number:02d}-cpu" for number in range(1, 11)]
    trials = [trial.trial_id for task in manifest.tasks for trial in task_of(output / task.directory).trials]
    assert len(set(trials)) == len(trials) == 20
    for exported in manifest.tasks:
        data = (output / exported.directory / "task.json").read_bytes()
        assert hashlib.sha256(data).hexdigest() == exported.task_sha256
        task = task_of(output / exported.directory)
        assert (task.task_id, task.campaign_id) == (exported.task_id, manifest.campaign_id)
    assert len(manifest.skips) == 2
    assert "eager" in manifest.skips[0].reason
    entry = Catalogue.load(Path("docker/images.yaml")).entry("cpu")
    assert manifest.environments["cpu"].versions["torch"].startswith("2.")
    assert (output / "environments" / "cpu.lock").read_bytes() == entry.lock_path.read_bytes()
    copied = {path.relative_to(output / "code") for path in (output / "code").rglob("*") if path.is_file()}
    assert Path("runners/__main__.py") in copied
    assert not any("__pycache__" in path.parts for path in copied)
    assert (output / "run.sh").stat().st_mode & 0o777 == 0o755
    assert "pip install --require-hashes -r environments/cpu.lock" in (output / "README.txt").read_text()
    assert [path.name for path in output.parent.iterdir()] == ["out"]


def test_the_device_of_a_sweep_reaches_its_trials(sweep_file: Path, tmp_path: Path) -> None:
    edit(sweep_file, "[python, eager]", "[eager]")
    edit(sweep_file, "synthetic-null, batch: [1, 2]", "bert-base, batch: 1")
    sweep_file.write_text(sweep_file.read_text() + "device: cuda\n")
    assert export(sweep_file, tmp_path / "out") == ExitCode.OK
    assert {trial.spec.device for trial in task_of(tmp_path / "out" / "tasks" / "r01-cpu").trials} == {"cuda"}


def test_any_suitable_cannot_be_chosen_for_a_machine_that_nobody_looks_at(
    sweep_file: Path, tmp_path: Path, capsys: Captured
) -> None:
    edit(sweep_file, "environments: [cpu]", "environments: [any-suitable]")
    for options, told in (
        ((), f"{sweep_file}:3: environments: any-suitable is chosen by what a machine has"),
        ((), "add --environment NAME with one of cpu, cpu-2022, cpu-"),
        (("--environment", "cuda"), "--environment cuda: the sweep does not name it; did you mean cuda13"),
        (("--environment", "tensorrt"), "the environment tensorrt has no lock: "),
    ):
        assert export(sweep_file, tmp_path / "out", *options) == ExitCode.USAGE
        assert told in capsys.readouterr().err
    assert export(sweep_file, tmp_path / "out", "--environment", "cuda126") == ExitCode.OK
    assert {task.environment for task in read_manifest(tmp_path / "out").tasks} == {"cuda126"}


def test_an_empty_directory_is_taken_and_a_full_one_is_not(sweep_file: Path, tmp_path: Path, capsys: Captured) -> None:
    output = tmp_path / "out"
    output.mkdir()
    assert export(sweep_file, output) == ExitCode.OK
    before = (output / "export.json").read_bytes()
    assert export(sweep_file, output) == ExitCode.USAGE
    assert f"{output}: this exists already" in capsys.readouterr().err
    assert (output / "export.json").read_bytes() == before


def test_an_export_that_fails_half_way_leaves_nothing(
    sweep_file: Path, tmp_path: Path, monkeypatch: Patch, capsys: Captured
) -> None:
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(shutil, "copyfile", Mock(side_effect=full))
    assert export(sweep_file, tmp_path / "out") == ExitCode.USAGE
    error = capsys.readouterr().err
    assert f"{tmp_path / 'out'}: cannot be written: " in error
    assert "No space left on device" in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.yaml"]


@pytest.mark.parametrize("threads", ["threads: [all]\n", ""])
def test_all_threads_need_a_number_of_cores_and_chosen_ones_bind_the_runner(
    sweep_file: Path, tmp_path: Path, capsys: Captured, threads: str
) -> None:
    edit(sweep_file, "threads: [1]\n", threads)
    assert export(sweep_file, tmp_path / "out") == ExitCode.USAGE
    place = f"{sweep_file}:6: threads: " if threads else f"{sweep_file}: threads: "
    error = capsys.readouterr().err
    assert place in error
    assert "such as --cores 16" in error
    assert export(sweep_file, tmp_path / "out", "--cores", "16") == ExitCode.OK
    assert {trial.spec.threads for trial in task_of(tmp_path / "out" / "tasks" / "r01-cpu").trials} == {16}
    assert "taskset" not in (tmp_path / "out" / "run.sh").read_text()
    assert export(sweep_file, tmp_path / "bound", "--cores", "4-5,7") == ExitCode.OK
    assert 'taskset -c 4-5,7 "$python" -m runners' in (tmp_path / "bound" / "run.sh").read_text()


def test_a_wrong_option_is_one_line(sweep_file: Path, tmp_path: Path, capsys: Captured) -> None:
    for option, value, expected in (
        ("--cores", "many", "expected a number such as 16"),
        ("--label", "gpu", "expected NAME=VALUE"),
        ("--host", "GPU box", "a host name consists of"),
        ("--environment", "cpx", "the sweep does not name it; did you mean cpu?"),
    ):
        assert export(sweep_file, tmp_path / "out", option, value) == ExitCode.USAGE
        error = capsys.readouterr().err
        assert f"{option} {value}: {expected}" in error
        assert error.count("\n") == 1
        assert not (tmp_path / "out").exists()


def test_targets_ask_for_labels_and_a_sweep_for_a_trial_that_can_run(
    sweep_file: Path, tmp_path: Path, capsys: Captured
) -> None:
    sweep_file.write_text(sweep_file.read_text() + "targets: {gpu: h200}\n")
    assert export(sweep_file, tmp_path / "out") == ExitCode.NO_USABLE_HOST
    assert "label gpu is not set, not h200" in capsys.readouterr().err
    assert export(sweep_file, tmp_path / "out", "--label", "gpu=h200") == ExitCode.OK
    edit(sweep_file, "[python, eager]", "[eager]")
    assert export(sweep_file, tmp_path / "other", "--label", "gpu=h200") == ExitCode.USAGE
    assert "every trial is skipped" in capsys.readouterr().err


def test_cores_are_a_number_or_a_list() -> None:
    for text, numbers, are_chosen in (
        ("2", (0, 1), False),
        ("0-2", (0, 1, 2), True),
        ("6,0-1", (0, 1, 6), True),
        ("3-3", (3,), True),
    ):
        cores = parse_cores(text)
        assert (cores.numbers, cores.are_chosen) == (numbers, are_chosen)
    for text in ("", "0", "-1", "1-", "5-2", "a", "1,,2", "99999"):
        with pytest.raises(ConfigurationError, match="expected a number"):
            parse_cores(text)


def test_another_python_is_a_difference() -> None:
    locked = LockedEnvironment(python="3.11", lock_sha256="0" * 64, versions={"torch": "2.13.0+cpu"})
    for python, differs in (("3.11.4", False), ("3.12.1", True), ("3.1.1", True)):
        expected = [f"python is {python} instead of 3.11"] if differs else []
        assert locked.differences({**locked.versions, "python": python, "pip": "26.0"}) == expected


def test_the_script_is_a_posix_shell_script() -> None:
    script = run_script([("r1-cpu", "cpu", 600), ("r1-cpu-2022", "cpu-2022", 700)], "0-3")
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    assert "@" not in script.replace('"$@"', "")
    assert 'run r1-cpu-2022 cpu-2022 700 "${PYTHON_CPU_2022:-$PYTHON}"' in script
    assert BUSY == EXIT_BUSY


def test_what_is_no_export_is_refused(tmp_path: Path) -> None:
    for text, expected in (
        (None, "it has no export.json"),
        ("{", "damaged"),
        ("[]", "damaged"),
        ('{"format": 2}', "format: damaged: Input should be less than or equal to 1"),
    ):
        if text is not None:
            (tmp_path / "export.json").write_text(text)
        with pytest.raises(ConfigurationError, match=expected) as refused:
            read_manifest(tmp_path)
        assert "\n" not in str(refused.value)


UUID = "GPU-34bf77d1-c686-6821-79a8-32d326c5039c"


def test_an_export_names_its_gpu_and_takes_no_number_for_one(
    tmp_path: Path, in_project: Path, capsys: Captured
) -> None:
    sweep, options = in_project / "sweeps" / "gpu.yaml", ("--environment", "cuda13", "--gpu")
    assert export(sweep, tmp_path / "out", *options, UUID) == ExitCode.OK
    assert f"export CUDA_VISIBLE_DEVICES={UUID}" in (tmp_path / "out" / "run.sh").read_text()
    assert "CUDA_VISIBLE_DEVICES" not in run_script([("r1", "cuda13", 60)], None)
    assert export(sweep, tmp_path / "0", *options, "0") == ExitCode.USAGE
    assert "--gpu 0: expected a UUID" in capsys.readouterr().err


def test_a_file_travels_in_parts_and_a_damaged_part_is_noticed(tmp_path: Path) -> None:
    wheel, parts, program = tmp_path / "a-1.0-cp312.whl", tmp_path / "parts", PROJECT / "docker" / "wheel-parts"
    wheel.write_bytes(bytes(range(256)) * 10_000)
    subprocess.run([program, "split", wheel, parts, "1"], check=True, capture_output=True)
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


def test_checks_in_an_image_get_the_gpu_the_code_and_a_place_for_rows_and_nothing_of_before(tmp_path: Path) -> None:
    commands, out = tmp_path / "commands", tmp_path / "out"
    script = f'[ "$1" = image ] && echo sha256:cuda13\necho "$*" >>{commands}\n[ "$1" = image ] || exit 1\n'
    stub(tmp_path / "bin" / "docker", script)
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
