"""Virtual environments, really built, from a lock with one small wheel."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.environments import (
    EnvironmentEntry,
    Pin,
    ensure_virtualenv,
    lock_differences,
    lock_sha256,
    virtualenv_problem,
)
from orchestrator.environments.virtualenv import MARKER
from orchestrator.errors import ConfigurationError, InfrastructureError

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def entry(tiny: EnvironmentEntry) -> EnvironmentEntry:
    """An environment of this very Python with one package, which lies in the wheel directory."""
    return tiny.model_copy(update={"name": "tiny", "python": HERE})


def test_a_half_built_one_is_replaced_and_a_whole_one_is_kept(
    entry: EnvironmentEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # what lies in the wheel directory needs no index
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "https://127.0.0.1:9/simple")
    stray = tmp_path / "root" / f"tiny-{lock_sha256(entry)[:12]}" / "stray"
    stray.parent.mkdir(parents=True)
    stray.touch()
    said: list[str] = []
    built = ensure_virtualenv(entry, tmp_path / "root", said.append)
    assert built.parents[1] == stray.parent
    assert not stray.exists()
    done = subprocess.run([built, "-c", "import tiny_pkg; print(tiny_pkg.answer)"], capture_output=True, check=True)
    assert done.stdout == b"42\n"
    assert ensure_virtualenv(entry, tmp_path / "root", said.append) == built
    assert len(said) == 1


def test_one_that_is_there_needs_no_python_until_its_own_was_removed(entry: EnvironmentEntry, tmp_path: Path):
    assert virtualenv_problem(entry, tmp_path / "root") is None
    assert not (tmp_path / "root").exists()
    entry = entry.model_copy(update={"python": "3.99"})
    directory = tmp_path / "root" / f"tiny-{lock_sha256(entry)[:12]}"
    (directory / "bin").mkdir(parents=True)
    (directory / MARKER).write_text(json.dumps({"lock_sha256": lock_sha256(entry), "python": "3.99"}))
    (directory / "bin/python").symlink_to(sys.executable)
    assert virtualenv_problem(entry, tmp_path / "root") is None
    assert ensure_virtualenv(entry, tmp_path / "root", lambda _: None) == directory / "bin/python"
    (directory / "bin/python").unlink()
    (directory / "bin/python").symlink_to("/nonexistent/python3.99")
    problem = virtualenv_problem(entry, tmp_path / "root")
    assert problem is not None
    assert problem.startswith("the environment tiny needs Python 3.99 ")
    assert "uv python install 3.99" in problem
    assert "start a Docker engine, or leave tiny out of the sweep's environments" in problem
    with pytest.raises(ConfigurationError) as error:
        ensure_virtualenv(entry, tmp_path / "root", lambda _: None)
    assert str(error.value) == problem


def test_a_package_with_another_hash_is_refused_and_nothing_counts_as_built(entry: EnvironmentEntry, tmp_path: Path):
    entry.lock_path.write_text(f"tiny-pkg==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(
        InfrastructureError,
        match=r"packages of tiny\.lock cannot be installed: tiny-pkg==1\.0: the lock expects sha256 0{64}, ",
    ):
        ensure_virtualenv(entry, tmp_path / "root", lambda _: None)
    assert list((tmp_path / "root").glob(f"*/{MARKER}")) == []


def test_a_package_that_cannot_be_fetched_is_one_line(
    entry: EnvironmentEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    entry.lock_path.write_text(f"tiny-pkg==2.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(
        InfrastructureError, match=r"^the packages of tiny\.lock cannot .*: No solution .* tiny-pkg==2\.0"
    ):
        ensure_virtualenv(entry, tmp_path / "root", lambda _: None)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "https://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(InfrastructureError) as error:
        ensure_virtualenv(entry, tmp_path / "root", lambda _: None)
    assert "https://127.0.0.1:9/simple/tiny-pkg/" in str(error.value)
    assert "\n" not in str(error.value)


def test_every_difference_from_the_lock_is_told():
    pins = {name: Pin(name, "1.0", frozenset()) for name in ("same", "older", "gone")}
    listed = [("Same", "1.0"), ("older", "0.9"), ("extra_one", "3"), ("pip", "25"), ("pkg_resources", "0.0.0")]
    assert lock_differences(pins, [{"name": name, "version": version} for name, version in listed]) == [
        "older is 0.9 instead of 1.0",
        "gone is absent instead of 1.0",
        "extra-one is not in the lock",
    ]
