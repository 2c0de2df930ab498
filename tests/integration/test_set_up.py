"""`requirements/sync` brings `.venv` to a lock, and empties nothing else."""

import shutil
import subprocess
from pathlib import Path

from tests.conftest import PROJECT


def test_a_link_in_place_of_the_virtual_environment_is_not_followed(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    shutil.copytree(PROJECT / "requirements", project / "requirements")
    shutil.copy(PROJECT / "pyproject.toml", project)
    other.mkdir()
    (other / "kept").touch()
    (project / ".venv").symlink_to(other)
    command = [project / "requirements/sync", "base"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "remove the link" in done.stderr
    assert [path.name for path in other.iterdir()] == ["kept"]
