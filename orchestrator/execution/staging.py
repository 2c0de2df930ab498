"""The directory of a task: the task, and a copy of the runner's code."""

import hashlib
import io
import json
import shutil
import uuid
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import runners
from runners.contract import Task, TaskFiles, encode

PACKAGE = runners.__name__
INSTALLED = Path(runners.__file__).parent.parent
"""Where the runner's package lies that this process has imported."""


@dataclass(frozen=True)
class PackedCode:
    """The runner's code on its way to another host."""

    digest: str
    archive: bytes = field(repr=False)


def pack(code: Path) -> PackedCode:
    """Packs the runner's package that lies in a directory; what is equal is packed alike, whenever that is."""
    buffer = io.BytesIO()
    digest = hashlib.sha256()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted(_sources(code).items()):
            digest.update(f"{name} {len(content)}\n".encode() + content)
            # told by name alone, it would carry the time of the packing
            archive.writestr(zipfile.ZipInfo(f"{PACKAGE}/{name}"), content, zipfile.ZIP_DEFLATED)
    return PackedCode(digest.hexdigest(), buffer.getvalue())


def unpack(packed: PackedCode, directory: Path) -> Path:
    """Unpacks code below a directory, unless it is there already, and returns where it is."""
    place = directory / packed.digest[:12]
    if not place.exists():
        directory.mkdir(parents=True, exist_ok=True)
        whole = directory / f".{place.name}-{uuid.uuid4().hex[:8]}"
        with zipfile.ZipFile(io.BytesIO(packed.archive)) as archive:
            archive.extractall(whole)
        try:
            whole.rename(place)  # only whole code has this name
        except OSError:
            # a task of another slot was faster
            shutil.rmtree(whole)
            if not place.is_dir():
                raise
    return place


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
    return _sources(directory) == _sources(INSTALLED)


def copy_code(code: Path, directory: Path) -> None:
    """Copies the runner's package from one directory into another, without compiled files."""
    shutil.copytree(code / PACKAGE, directory / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))


def stage(task: Task, directory: Path, code: Path = INSTALLED) -> None:
    """Makes a task directory: the task and a copy of the runner's code, nothing else.

    Args:
        task: what the directory is for.
        directory: must not exist yet.
        code: the directory that holds the runner's package.
    """
    files = TaskFiles(str(directory))
    directory.mkdir(parents=True)
    copy_code(code, Path(files.code))
    Path(files.task).write_text(json.dumps(encode(task), indent=1), encoding="utf-8")
    # Whatever the umask says: in a container another user reads them.
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def _sources(code: Path) -> dict[str, bytes]:
    package = code / PACKAGE
    return {str(path.relative_to(package)): path.read_bytes() for path in package.rglob("*.py")}
