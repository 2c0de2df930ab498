"""Our own code as the hosts get it: one archive, named by its digest, so that no two versions can mix."""

import io
import tarfile
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import orchestrator
import runners
from orchestrator.hosts.cluster.boot import install, tree_digest

_DISTRIBUTION = "taxmeter"


@dataclass(frozen=True)
class CodeArchive:
    """The code of this installation."""

    digest: str
    """Of `boot.tree_digest`."""
    tar: bytes

    @property
    def name(self) -> str:
        """Of the directory that it lies in, wherever that is."""
        return self.digest[:12]


def pack_code() -> CodeArchive:
    """Packs `orchestrator`, `runners` and what tells the version, as they are now."""
    with tempfile.TemporaryDirectory(prefix="taxmeter-code-") as directory:
        root = Path(directory)
        # Read once: a file that is edited meanwhile must not be one thing in the digest and another in the archive.
        for package in (orchestrator, runners):
            source = Path(package.__path__[0])
            for path in source.rglob("*"):
                if path.is_file() and "__pycache__" not in path.parts:
                    _write(root / package.__name__ / path.relative_to(source), path.read_bytes())
        version = metadata.version(_DISTRIBUTION)
        told = f"Metadata-Version: 2.1\nName: {_DISTRIBUTION}\nVersion: {version}\n"
        _write(root / f"{_DISTRIBUTION}-{version}.dist-info" / "METADATA", told.encode())
        return CodeArchive(tree_digest(root), _tar(root))


def packed_again(directory: Path) -> CodeArchive:
    """The code that `install_here` put into a directory, whatever this installation has become meanwhile."""
    return CodeArchive(tree_digest(directory), _tar(directory))


def install_here(code: CodeArchive, directory: Path) -> Path:
    """Puts the code below `directory` on this machine, and returns where it is."""
    place = directory / code.name
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory, suffix=".tar") as file:
        file.write(code.tar)
        file.flush()
        install(Path(file.name), place, code.digest)
    return place


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _tar(root: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                information = tarfile.TarInfo(str(path.relative_to(root)))
                information.size = path.stat().st_size
                information.mode = 0o644
                archive.addfile(information, io.BytesIO(path.read_bytes()))
    return buffer.getvalue()
