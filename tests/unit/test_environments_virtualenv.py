"""Where a Python of another version is looked for."""

import os
import sys
from pathlib import Path

from orchestrator.environments.virtualenv import find_python, missing_python

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def interpreter(path: Path, answer: str | None) -> Path:
    """A command that says it is Python `answer`; without one it fails, as a shim of a version that is not selected."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + (f"echo {answer}\n" if answer else "exit 127\n"))
    path.chmod(0o755)
    return path


def test_our_own_interpreter_will_do():
    assert find_python(HERE) == Path(sys.executable)


def test_an_interpreter_is_asked_for_its_version(tmp_path: Path):
    shim = interpreter(tmp_path / "a/python3.9", None)
    other = interpreter(tmp_path / "b/python3", "3.5")
    true = tmp_path / "c/python3"
    true.parent.mkdir()
    true.symlink_to(sys.executable)
    path = os.pathsep.join(str(p.parent) for p in (shim, other, true))
    assert find_python(HERE, {"PATH": path}) == true
    assert find_python("3.9", {"PATH": path}) is None


def test_the_exact_name_comes_before_python3(tmp_path: Path):
    interpreter(tmp_path / "a/python3", "3.9")
    exact = interpreter(tmp_path / "b/python3.9", "3.9")
    path = f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}"
    assert find_python("3.9", {"PATH": path}) == exact


def test_what_version_managers_keep_is_found_the_newest_patch_first(tmp_path: Path):
    home = {"PATH": str(tmp_path / "empty"), "HOME": str(tmp_path)}
    uv = interpreter(tmp_path / ".local/share/uv/python/cpython-3.9.20-linux-x86_64-gnu/bin/python3.9", "3.9")
    assert find_python("3.9", home) == uv
    interpreter(tmp_path / ".pyenv/versions/3.9.7/bin/python3.9", "3.9")
    newest = interpreter(tmp_path / ".pyenv/versions/3.9.18/bin/python3.9", "3.9")
    assert find_python("3.9", home) == newest
    assert find_python("3.1", home) is None
    elsewhere = interpreter(tmp_path / "opt/versions/3.9.1/bin/python3.9", "3.9")
    assert find_python("3.9", home | {"PYENV_ROOT": str(tmp_path / "opt")}) == elsewhere


def test_what_is_missing_is_told_in_one_line_with_remedies():
    message = missing_python("old", "3.9")
    assert "the environment old needs Python 3.9 " in message
    assert "python3.9 nor python3 on PATH" in message
    assert "uv python install 3.9" in message
    assert "Docker engine" in message
    assert "leave old out" in message
    assert "\n" not in message
