"""The directory of a task: the task, and a copy of the runner's code."""

import json
import shutil
import uuid
from pathlib import Path

import runners
from orchestrator.execution.archive import PackedCode, pack_files, read_tree
from runners.contract import Task, TaskFiles, encode

PACKAGE = runners.__name__
INSTALLED = Path(runners.__file__).parent.parent
"""Where the runner's package lies that this process has imported."""


def pack(code: Path) -> PackedCode:
    """Packs the runner's package that lies in a directory, for a host that does not have it."""
    return pack_files({f"{PACKAGE}/{name}": content for name, content in read_tree(code / PACKAGE).items()})


def keep_code(directory: Path) -> bool:
    """Copies the runner's code, unless a copy is there already: then that one stays as it is.

    The trials of a campaign are comparable because one code measured them, though somebody edits it meanwhile.

    Returns:
        Whether the copy is the code as it is now.
    """
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        whole = directory.with_name(f"{directory.name}-{uuid.uuid4().hex[:8]}")
        copy_code(INSTALLED, whole)
        whole.rename(directory)  # a driver that dies while it copies leaves no half of it under this name
    return pack(directory) == pack(INSTALLED)


def copy_code(code: Path, directory: Path) -> None:
    """Copies the runner's package from one directory into another, without compiled files."""
    shutil.copytree(code / PACKAGE, directory / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))


def stage(task: Task, directory: Path, code: Path = INSTALLED, origin: object = None) -> None:
    """Makes a task directory: the task, a copy of the runner's code and what its rows need, nothing else.

    Args:
        task: what the directory is for.
        directory: must not exist yet.
        code: the directory that holds the runner's package.
        origin: what `origin.json` is to say; null for a directory of which nobody but its owner makes rows.
    """
    files = TaskFiles(str(directory))
    directory.mkdir(parents=True)
    copy_code(code, Path(files.code))
    if origin is not None:
        Path(files.origin).write_text(json.dumps(origin), encoding="utf-8")
    Path(files.task).write_text(json.dumps(encode(task), indent=1), encoding="utf-8")
    # Whatever the umask says: in a container another user reads them.
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
