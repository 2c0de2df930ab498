"""The commands about images, as far as they need no engine."""

from pathlib import Path

import pytest

from orchestrator.cli import run
from orchestrator.environments import BuiltImage
from orchestrator.errors import ExitCode
from tests.conftest import Captured, Patch

IMAGE = BuiltImage(
    reference="taxmeter/cpu:1", image_id="sha256:" + "1" * 64, repo_digest=None, layers=("sha256:" + "2" * 64,),
    lock_sha256="0" * 64, recipe_sha256="12" * 32, base="x", config_sha256="c" * 64, versions={"torch": "2"}, facts={},
)  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(in_project: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")


@pytest.mark.parametrize(
    ("command", "found", "code", "printed"),
    [
        (["verify"], (), ExitCode.OK, "cpu: identical: 1 layers, settings, 1 versions\n"),
        (
            ["verify"],
            ("layer 1 …",),
            ExitCode.TRIALS_FAILED,
            f"cpu: not the recorded image {IMAGE.image_id}\n  layer 1",
        ),
        (["diff", "a", "b"], (), ExitCode.OK, "identical\n"),
        (["diff", "a", "b"], ("layer 1",), ExitCode.TRIALS_FAILED, "a (expected) and b (found) differ:\n"),
    ],
)
def test_verify_and_diff_say_so_by_their_exit_code(
    command: list[str], found: tuple[str, ...], code: int, printed: str, monkeypatch: Patch, capsys: Captured
) -> None:
    monkeypatch.setattr("orchestrator.cli.images.verify_images", lambda *_: {"cpu": found})
    monkeypatch.setattr("orchestrator.cli.images.read_built_images", lambda _: {"cpu": IMAGE})
    monkeypatch.setattr("orchestrator.cli.images.compare_images", lambda *_: found)
    assert run(["images", *command]) == code
    assert capsys.readouterr().out.startswith(printed)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["push", "--registry", "nothing"], ExitCode.USAGE, "--registry nothing is no registry: expected HOST"),
        (["load", "none.tar"], ExitCode.USAGE, "none.tar: no such file"),
        (["verify", "no-such"], ExitCode.USAGE, "images.lock.yaml: no"),
        (["build", "no-such"], ExitCode.USAGE, "unknown environment no-such; "),
        (["build", "cpu"], ExitCode.NO_USABLE_HOST, "no Docker engine answers at unix:///nonexistent/docker.sock"),
        (["diff", "cpu", "cpu-2022"], ExitCode.NO_USABLE_HOST, "no Docker engine answers"),
    ],
)
def test_an_error_is_one_line(arguments: list[str], code: int, expected: str, capsys: Captured) -> None:
    assert run(["images", *arguments]) == code
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
