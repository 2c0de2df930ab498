"""Errors reach a person as one line on standard error, with the right exit code."""

import os
import shutil
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from orchestrator.campaign.control import CampaignPhase, CampaignProgressState, ControlFiles, HostPhase, HostProgress
from orchestrator.campaign.reproduce.stored import StoredTrials
from orchestrator.campaign.run import RunOutcome
from orchestrator.cli import run
from orchestrator.cli.sweep import exit_code
from orchestrator.environments import BuiltImage
from orchestrator.errors import ExitCode
from orchestrator.hosts.lock import HostLock, this_machine_to_ourselves
from orchestrator.store import Attempt
from runners.contract import Status
from tests.conftest import PROJECT, Captured, Patch

SWEEP, HOSTS = "sweeps/quickstart.yaml", "hostinventory.yaml"


@pytest.fixture
def project_copy(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: Patch) -> Path:
    # A sweep that runs on this machine meanwhile holds the lock in the usual place.
    lock = HostLock(directory=tmp_path_factory.mktemp("locks"))
    monkeypatch.setattr(sys.modules["orchestrator.hosts.lock"], "HOST_LOCK", lock)
    (tmp_path / "docker").symlink_to(PROJECT / "docker")
    (tmp_path / "sweeps").mkdir()
    for name in (HOSTS, SWEEP):
        shutil.copy(PROJECT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def one_error_line(capsys: Captured) -> str:
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    return captured.err


def test_a_plan_is_printed_and_nothing_runs(project_copy: Path, capsys: Captured) -> None:
    assert run(["sweep", "plan"]) == ExitCode.OK
    printed = capsys.readouterr().out
    assert "at least 57 trials, about " in printed
    assert "isolation process (no Docker engine answers" in printed
    assert sorted(path.name for path in project_copy.iterdir()) == ["docker", "hostinventory.yaml", "sweeps"]


ELSEWHERE = (HOSTS, "connection: local", "connection: ssh\n    address: 127.0.0.1.invalid")
NO_CONTAINERS = (HOSTS, "executor: auto", "executor: process")
TOO_FEW_CORES = (HOSTS, "reserved_cores: 0", "reserved_cores: 4096")
ANOTHER = (HOSTS, "site: here\n", "site: here\n  other: {connection: ssh, address: 127.0.0.1, port: 1}\n")
DRAINED = (HOSTS, "connection: local", "connection: local\n    state: drain")
LABELLED = (SWEEP, "seed: 2023", "seed: 2023\ntargets: {gpu: H100}")
USAGE, UNUSABLE = ExitCode.USAGE, ExitCode.NO_USABLE_HOST


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("edits", "code", "words"),
    [
        ([(SWEEP, "budget:", "bugdet:")], USAGE, f"{SWEEP}:16: bugdet: unknown key"),
        ([(SWEEP, "[cpu]", "[cup]")], USAGE, f"{SWEEP}:4: environments: unknown environment cup; did you mean cpu?"),
        ([(SWEEP, "seed: 2023", "seed: [2023")], USAGE, "not valid YAML"),
        ([TOO_FEW_CORES], USAGE, f"{HOSTS}:11: hosts.this-machine.reserved_cores: 4096 cores are reserved, but"),
        ([ELSEWHERE, NO_CONTAINERS], USAGE, f"{HOSTS}:10: hosts.this-machine.executor: … --limit '!this-machine'"),
        (
            [ELSEWHERE, ANOTHER],
            UNUSABLE,
            "this-machine: unreachable (Could not resolve … ; other: unreachable (connect",
        ),
        ([(HOSTS, "executor: auto", "executor: docker")], UNUSABLE, "executor is docker, but no Docker engine answers"),
        ([DRAINED], UNUSABLE, "the state of this-machine is drain; write `state: active` for one"),
        ([LABELLED], UNUSABLE, "this-machine: label gpu is not set, not H100"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_stored_or_built(
    project_copy: Path, capsys: Captured, command: str, edits: list[tuple[str, str, str]], code: ExitCode, words: str
) -> None:
    for file, old, new in edits:
        edit(project_copy / file, old, new)
    assert run(["sweep", command]) == code
    line = one_error_line(capsys)
    assert all(part in line for part in words.split(" … "))
    assert not (project_copy / "results").exists()
    made = {path.name for path in (project_copy / ".taxmeter").rglob("*") if path.is_file()}
    assert made <= (set() if command == "plan" else {"sweep"}), "a lock, and nothing else"


def test_the_store_of_a_sweep_elsewhere_must_lie_in_the_project(
    project_copy: Path, tmp_path_factory: pytest.TempPathFactory, capsys: Captured
) -> None:
    edit(project_copy / HOSTS, *ELSEWHERE[1:])
    outside = tmp_path_factory.mktemp("outside")
    assert run(["sweep", "run", "--results", str(outside)]) == ExitCode.USAGE
    assert f"writes its store inside the project, {project_copy}; name a directory" in one_error_line(capsys)


def test_the_exit_code_comes_from_all_trials_of_the_campaign() -> None:
    for statuses, expected in (
        ((Status.OK, Status.SKIPPED, Status.UNSUPPORTED), ExitCode.OK),
        ((Status.OK, Status.CRASHED), ExitCode.TRIALS_FAILED),
        ((Status.OK, Status.INFRASTRUCTURE_ERROR), ExitCode.TRIALS_FAILED),
        ((Status.UNSUPPORTED,), ExitCode.TRIALS_FAILED),
    ):
        assert exit_code([Attempt(1, status) for status in statuses]) == expected


def test_two_sweeps_and_a_task_of_a_cluster_exclude_each_other(project_copy: Path, capsys: Captured) -> None:
    lock: HostLock = sys.modules["orchestrator.hosts.lock"].HOST_LOCK
    task = replace(lock, part="GPU-1")  # as a worker of an agent holds it, whoever runs that
    with task.hold() as held:
        assert held.wait(20)
        assert run(["sweep", "run"]) == ExitCode.NO_USABLE_HOST
    assert "another sweep runs on this machine" in one_error_line(capsys)
    control = ControlFiles(project_copy / ".taxmeter" / "control")
    with this_machine_to_ourselves(project_copy), task.hold() as held, control.driving():
        works = HostProgress("lab1", HostPhase.RUNNING, 0, left=9)
        state = CampaignProgressState(
            "c-7", "quick", time.time_ns(), 2, CampaignPhase.RUNNING, (works,), 0, 9, 0, 42, "here", "results"
        )
        for estimate_s, left in ((None, ""), (400.0, ", about 7 min left"), (1.0, ", about 1 min left")):
            control.publish(replace(state, estimate_s=estimate_s))
            assert run(["sweep", "run"]) == ExitCode.NO_USABLE_HOST
            said = f"project {project_copy}, process {os.getpid()}, campaign c-7{left}; wait"
            assert said in one_error_line(capsys)
        assert not held.wait(0.3)


def test_what_is_not_there_is_one_line_and_nothing_runs(project_copy: Path, capsys: Captured) -> None:
    (project_copy / "results").mkdir()
    for arguments, expected in (
        (["sweep", "plan", "--limit", "a100"], "no host is called a100; known: this-machine"),
        (["reproduce", "abc", "--results", "none"], "no such store"),
        (["reproduce", "abc"], "no trial and no campaign is called 'abc'"),
    ):
        assert run(arguments) == USAGE
        assert expected in one_error_line(capsys)
        assert list((project_copy / "results").iterdir()) == []


def test_an_unknown_command(capsys: Captured) -> None:
    assert run(["swep"]) == ExitCode.USAGE
    assert "No such command 'swep'" in capsys.readouterr().err


def test_a_killed_driver_ends_a_reproduction_with_its_exit_code(project_copy: Path, monkeypatch: Patch) -> None:
    module = sys.modules["orchestrator.cli.reproduce"]
    for name in ("open_existing", "refuse_another_method", "load_inventory", "git_commit"):
        monkeypatch.setattr(module, name, lambda *_, **__: None)
    monkeypatch.setattr(module, "find", lambda *_: StoredTrials({"campaign_id": "c"}, None, ()))
    monkeypatch.setattr(module, "targets", lambda *_: [])
    monkeypatch.setattr(module, "open_hosts", lambda *_: nullcontext())
    monkeypatch.setattr(module, "run_reproduction", lambda *_: (None, RunOutcome("c", {}, 137)))
    assert run(["reproduce", "t"]) == 137


IMAGE = BuiltImage(
    reference="taxmeter/cpu:1", image_id="sha256:" + "1" * 64, repo_digest=None, layers=("sha256:" + "2" * 64,),
    lock_sha256="0" * 64, recipe_sha256="12" * 32, base="x", config_sha256="c" * 64, versions={"torch": "2"}, facts={},
)  # fmt: skip


def test_verify_and_diff_say_so_by_their_exit_code(project_copy: Path, monkeypatch: Patch, capsys: Captured) -> None:
    monkeypatch.setattr("orchestrator.cli.images.read_built_images", lambda _: {"cpu": IMAGE})
    verify, diff, differs = ["verify"], ["diff", "a", "b"], ("layer 1 …",)
    for command, found, code, printed in (
        (verify, (), ExitCode.OK, "cpu: identical: 1 layers, settings, 1 versions\n"),
        (verify, differs, ExitCode.TRIALS_FAILED, f"cpu: not the recorded image {IMAGE.image_id}\n  layer 1"),
        (diff, (), ExitCode.OK, "identical\n"),
        (diff, differs, ExitCode.TRIALS_FAILED, "a (expected) and b (found) differ:\n"),
    ):
        monkeypatch.setattr("orchestrator.cli.images.verify_images", Mock(return_value={"cpu": found}))
        monkeypatch.setattr("orchestrator.cli.images.compare_images", Mock(return_value=found))
        assert run(["images", *command]) == code
        assert capsys.readouterr().out.startswith(printed)


def test_an_error_about_images_is_one_line(project_copy: Path, capsys: Captured) -> None:
    for arguments, code, expected in (
        (["push", "--registry", "nothing"], USAGE, "--registry nothing is no registry: expected HOST"),
        (["load", "none.tar"], USAGE, "none.tar: no such file"),
        (["verify", "no-such"], USAGE, "images.lock.yaml: no"),
        (["build", "no-such"], USAGE, "unknown environment no-such; "),
        (["build", "cpu"], UNUSABLE, "no Docker engine answers at unix:///nonexistent/docker.sock"),
        (["diff", "cpu", "cpu-2022"], UNUSABLE, "no Docker engine answers"),
    ):
        assert run(["images", *arguments]) == code
        assert expected in one_error_line(capsys)
