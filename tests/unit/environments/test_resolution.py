"""Resolving locks, with a stand-in for uv that pins what it is asked for."""

import zipfile
from pathlib import Path

import pytest

from orchestrator.cli import run
from orchestrator.environments import resolve_locks
from orchestrator.errors import ConfigurationError, InfrastructureError
from tests.refusals import refusal
from tests.scripted_engine import CATALOGUE, tiny_entry

A, B = "a" * 64, "b" * 64
RECORDED = f"""\
    wheel_index:
      url: file:///nonexistent
      distributions: [torch]
    recorded:
      torch: {{version: 1.0+cu116, sha256: {B}, source: a text, confidence: medium}}
"""
# Writes what it was asked for beside the lock, and each requirement with one hash into the lock.
UV = f"""\
#!/bin/sh
echo "$@" >"$UV_LOG"
for output; do :; done
echo "$PWD" >>"$UV_LOG"
[ -d wheels ] && ls -L wheels >"$UV_LOG.wheels"
[ -e "$output" ] && echo "preferences: $(cat "$output")" >>"$UV_LOG"
grep == tiny.in | sed 's/ *#.*//; s/$/ \\\\\\n    --hash=sha256:{A}\\n    # via -r tiny.in/' >"$output"
"""


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue with one environment that has no lock yet, in a project, with a stand-in for uv."""
    entry = tiny_entry(tmp_path)
    entry.lock_path.unlink()
    entry.requirements_path.write_text("# a head\nother==2\ntorch==1.0+cu116\n")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "uv").write_text(UV)
    (tools / "uv").chmod(0o755)
    monkeypatch.setattr("orchestrator.environments.packages.find_uv_bin", lambda: str(tools / "uv"))
    monkeypatch.setenv("UV_LOG", str(tmp_path / "uv.log"))
    monkeypatch.chdir(tmp_path)
    return entry.directory / "images.yaml"


def lock_of(catalogue: Path) -> Path:
    return catalogue.parent / "tiny.lock"


def test_a_lock_is_resolved_for_its_platform_from_wheels_alone(catalogue: Path, tmp_path: Path) -> None:
    [resolved] = resolve_locks(["tiny"], catalogue, print, check=False)
    assert resolved.changes == ("other 2 comes", "torch 1.0+cu116 comes")
    asked, directory = (tmp_path / "uv.log").read_text().splitlines()[:2]
    assert asked == (
        "pip compile --quiet --generate-hashes --no-header --only-binary :all: "
        "--python-version 3.11 --python-platform x86_64-manylinux_2_28 tiny.in --output-file tiny.lock"
    )
    assert not Path(directory).exists()
    assert lock_of(catalogue).read_text().startswith(f"other==2 \\\n    --hash=sha256:{A}\n    # via -r tiny.in\n")
    [again] = resolve_locks([], catalogue, print, check=False)
    assert again.changes == ()
    # what is locked already is kept where it can be
    assert "preferences: other==2" in (tmp_path / "uv.log").read_text()


def test_the_command_writes_or_only_checks(catalogue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["images", "lock"]) == 0
    assert "tiny: written\n  other 2 comes" in capsys.readouterr().out
    before = lock_of(catalogue).read_text()
    assert run(["images", "lock", "--check"]) == 0
    assert "tiny: unchanged" in capsys.readouterr().out
    (catalogue.parent / "tiny.in").write_text("other==3\nnew==1\n")
    assert run(["images", "lock", "--check"]) == 1
    assert "tiny: would change\n  new 1 comes\n  other 2 becomes 3\n  torch 1.0+cu116 goes\n" in capsys.readouterr().out
    assert lock_of(catalogue).read_text() == before


def test_an_environment_that_cannot_be_resolved_is_left_out_unless_it_is_named_and_nothing_is_written(
    catalogue: Path, tmp_path: Path
) -> None:
    (tmp_path / "bin/uv").write_text("#!/bin/sh\necho 'No solution:\n because of x' >&2; exit 1\n")
    with pytest.raises(InfrastructureError, match=r"uv cannot resolve .*/tiny\.in: No solution: because of x$"):
        resolve_locks([], catalogue, print, check=False)
    catalogue.write_text(CATALOGUE + "    unresolved: its wheels are nowhere\n")
    said: list[str] = []
    assert resolve_locks([], catalogue, said.append, check=False) == []
    assert said == ["tiny: left out: its wheels are nowhere"]
    (tmp_path / "bin/uv").write_text(UV)
    [resolved] = resolve_locks(["tiny"], catalogue, said.append, check=True)
    assert resolved.is_unresolved
    assert not lock_of(catalogue).exists()


@pytest.mark.parametrize(
    ("requirements", "told"),
    [
        ("a==1\ntorch==1.0\n", ":2: torch: expected torch==1.0+cu116, which `recorded` of the environment tiny has"),
        ("torch>=1.0+cu116\n", ":1: torch: expected torch==VERSION and no more"),
        ("a==1\n", ": no requirement of torch"),
        ("torch==1.0+cu116\nTorch==1.0\n", ":2: torch: line 1 requires it too"),
    ],
)
def test_requirements_that_are_missing_or_differ_from_what_is_recorded(
    catalogue: Path, requirements: str, told: str
) -> None:
    def resolve(_: Path) -> object:
        return resolve_locks([], catalogue, print, check=False)

    catalogue.write_text(CATALOGUE + RECORDED)
    path = catalogue.parent / "tiny.in"
    assert refusal(resolve, path, requirements).startswith(told)
    path.unlink()
    with pytest.raises(ConfigurationError, match=r"tiny\.in: no such file"):
        resolve(path)


HASHED = f" \\\n    --hash=sha256:{A}\n"


@pytest.mark.parametrize(
    ("resolved", "times"),
    [
        (f"torch==1.0 --hash=sha256:{A}\n", 0),  # on one line
        (f"torch==1.0 ; sys_platform == 'linux'{HASHED}", 0),
        *((f"torch=={version}{HASHED}", 0) for version in ("1.0.0", "1.0+cu102")),
        *(("torch==1.0\n", 0), ("", 0)),
        (f"torch==1.0{HASHED}" * 2, 2),
    ],
)
def test_a_stand_in_that_stays_is_an_error_and_no_lock_is_written(
    catalogue: Path, tmp_path: Path, resolved: str, times: int
) -> None:
    catalogue.write_text(CATALOGUE + RECORDED)
    (tmp_path / "resolved").write_text(resolved)
    (tmp_path / "bin/uv").write_text(f'#!/bin/sh\nfor output; do :; done\ncp {tmp_path / "resolved"} "$output"\n')
    with pytest.raises(InfrastructureError, match=f"torch==1.0 with its hashes {times} times, not once"):
        resolve_locks([], catalogue, print, check=False)
    assert not lock_of(catalogue).exists()


def test_a_recorded_wheel_is_resolved_by_its_stand_in_and_locked_with_its_own_digest(catalogue: Path) -> None:
    catalogue.write_text(CATALOGUE + RECORDED)
    (catalogue.parent / "tiny.in").write_text("Torch == 1.0+cu116  # of the paper\ntorch-x==1.0\n")
    resolve_locks(["tiny"], catalogue, print, check=False)
    assert lock_of(catalogue).read_text() == (
        f"torch==1.0+cu116 \\\n    --hash=sha256:{B}\n    # via -r tiny.in\n"
        f"torch-x==1.0 \\\n    --hash=sha256:{A}\n    # via -r tiny.in\n"
    )


def test_only_wheels_of_the_wheel_index_get_into_a_lock(
    catalogue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue.write_text(CATALOGUE + RECORDED[: RECORDED.index("    recorded:")])
    (catalogue.parent / "tiny.in").write_text("other==2\ntorch==1.0+cu116 # another comment\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    wheels = catalogue.parent / "wheels"
    wheels.mkdir()
    wanted = "torch-1.0+cu116-cp311-cp311-linux_x86_64.whl"
    for name in (wanted, wanted.replace("1.0", "1.1"), wanted.replace("cp311", "cp312"), "other-2-py3-none-any.whl"):
        zipfile.ZipFile(wheels / name, "w").close()
    resolve_locks(["tiny"], catalogue, print, check=False)
    assert (tmp_path / "uv.log.wheels").read_text().split() == [wanted]
    asked, directory = (tmp_path / "uv.log").read_text().splitlines()[:2]
    assert f" --find-links {directory}/wheels tiny.in " in asked
