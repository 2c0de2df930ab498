"""The commands about images, as far as they need no engine."""

from pathlib import Path

import pytest

from orchestrator.cli import run
from orchestrator.environments import BuiltImage
from orchestrator.errors import ExitCode

IMAGE = BuiltImage(
    reference="taxmeter/cpu:1", image_id="sha256:" + "1" * 64, repo_digest=None, layers=("sha256:" + "2" * 64,),
    lock_sha256="0" * 64, recipe_sha256="12" * 32, base="x", config_sha256="c" * 64, versions={"torch": "2"}, facts={},
)  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(in_project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")


@pytest.mark.parametrize(
    ("problems", "code", "printed"),
    [
        ((), ExitCode.OK, "cpu: identical: 1 layers, settings, 1 versions\n"),
        (("layer 1 of 1: …",), ExitCode.TRIALS_FAILED, f"cpu: not the recorded image {IMAGE.image_id}\n  layer 1 of 1"),
    ],
)
def test_verify_says_so_by_its_exit_code(
    problems: tuple[str, ...], code: int, printed: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr("orchestrator.cli.images.verify_images", lambda *_: {"cpu": problems})
    monkeypatch.setattr("orchestrator.cli.images.read_built_images", lambda _: {"cpu": IMAGE})
    assert run(["images", "verify"]) == code
    assert capsys.readouterr().out.startswith(printed)


@pytest.mark.parametrize(
    ("lines", "code", "printed"),
    [((), ExitCode.OK, "identical\n"), (("layer 1",), ExitCode.TRIALS_FAILED, "a (expected) and b (found) differ:\n")],
)
def test_diff_says_so_by_its_exit_code(lines, code, printed, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("orchestrator.cli.images.compare_images", lambda *_: lines)
    assert run(["images", "diff", "a", "b"]) == code
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
def test_an_error_is_one_line(arguments: list[str], code: int, expected: str, capsys) -> None:
    assert run(["images", *arguments]) == code
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
