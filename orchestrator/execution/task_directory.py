"""Files on their way: a task's directory, and code to where it runs. One writer of tars, one unpacker."""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import orchestrator
import runners
from orchestrator.errors import InfrastructureError
from orchestrator.files import exclusive, read_tree, tar_of
from runners.contract import Task, TaskFiles, encode

PACKAGE = runners.__name__
INSTALLED = Path(runners.__file__).parent.parent
"""Where the runner's package lies that this process has imported."""

_DISTRIBUTION = "taxmeter"


@dataclass(frozen=True)
class PackedCode:
    """Code on its way to where it runs."""

    digest: str
    """Over the names and the content of all files."""
    archive: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """Of the directory that it lies in, wherever that is."""
        return self.digest[:12]


def pack_files(files: Mapping[str, bytes]) -> PackedCode:
    """Packs files by their relative paths; what is equal is packed alike, whenever that is."""
    return PackedCode(_digest(files), gzip.compress(tar_of(dict(sorted(files.items()))), mtime=0))


def pack_project() -> PackedCode:
    """Packs `orchestrator`, `runners` and what tells the version, as they are now.

    Each file is read once: one that is edited meanwhile is not one thing in the digest and another in the archive.
    """
    files = {
        f"{package.__name__}/{name}": content
        for package in (orchestrator, runners)
        for name, content in read_tree(Path(package.__path__[0])).items()
    }
    version = metadata.version(_DISTRIBUTION)
    told = f"Metadata-Version: 2.1\nName: {_DISTRIBUTION}\nVersion: {version}\n"
    return pack_files({**files, f"{_DISTRIBUTION}-{version}.dist-info/METADATA": told.encode()})


def unpack(packed: PackedCode, directory: Path) -> Path:
    """Unpacks code below a directory, unless it is there already and whole, and returns where it is.

    What is there under its name and differs is replaced. Others may do the same at once.

    Raises:
        InfrastructureError: the archive is not what its digest says.
        OSError: it cannot be written.
    """
    place = directory / packed.name
    with exclusive(directory / ".lock", lambda: None):
        if place.is_dir() and _digest(read_tree(place)) == packed.digest:
            return place
        files = _files_in(packed)
        whole = Path(tempfile.mkdtemp(prefix=f".{packed.name}-", dir=directory))
        try:
            for name, content in files.items():
                (whole / name).parent.mkdir(parents=True, exist_ok=True)
                (whole / name).write_bytes(content)
            whole.chmod(0o755)
            shutil.rmtree(place, ignore_errors=True)
            whole.rename(place)  # only whole code has this name
        except BaseException:
            shutil.rmtree(whole, ignore_errors=True)
            raise
    return place


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


def _files_in(packed: PackedCode) -> dict[str, bytes]:
    """File by file: early versions of Python 3.11 cannot be told to take nothing but files."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(packed.archive), mode="r:gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is None or ".." in Path(member.name).parts or member.name.startswith("/"):
                raise InfrastructureError(f"{member.name} does not belong into the code")
            files[member.name] = content.read()
    if _digest(files) != packed.digest:
        raise InfrastructureError(f"the code that was sent is not {packed.name}")
    return files


def _digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
