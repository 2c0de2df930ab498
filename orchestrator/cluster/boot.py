"""What an agent's container starts with, before any of our code is there: standard library alone, sent as one file.

    python boot.py start TAR DIRECTORY DIGEST COMMAND...    installs the code if it is not there, then becomes COMMAND
    python boot.py report DIRECTORY                         says which code and which versions are there, as JSON

The driver's machine imports it too, so that both sides have one idea of what the code is.
"""

import compileall
import hashlib
import json
import os
import platform
import shutil
import sys
import tarfile
from importlib import metadata
from pathlib import Path

_COMPILED = "__pycache__"


def tree_digest(directory: Path) -> str:
    """Digest over the names and the content of all files, compiled ones left out; of nothing if there is no such."""
    digest = hashlib.sha256()
    for name, path in sorted((str(path.relative_to(directory)), path) for path in directory.rglob("*")):
        if path.is_file() and _COMPILED not in path.parts:
            content = path.read_bytes()
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def install(archive: Path, directory: Path, digest: str) -> None:
    """Unpacks the code, unless it is there already and whole. What is there and differs is replaced.

    Raises:
        SystemExit: the archive does not hold the code of this digest.
    """
    if directory.is_dir() and tree_digest(directory) == digest:
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    whole = directory.with_name(f".{directory.name}.{os.getpid()}")
    shutil.rmtree(whole, ignore_errors=True)
    with tarfile.open(archive) as packed:
        for member in packed.getmembers():
            # file by file: early versions of Python 3.11 cannot be told to take nothing but files
            content = packed.extractfile(member)
            if content is None or ".." in Path(member.name).parts or member.name.startswith("/"):
                sys.exit(f"taxmeter: {member.name} does not belong into the code")
            (whole / member.name).parent.mkdir(parents=True, exist_ok=True)
            (whole / member.name).write_bytes(content.read())
    if tree_digest(whole) != digest:
        shutil.rmtree(whole)
        sys.exit(f"taxmeter: the code that was sent is not {digest[:12]}")
    # here and now, with the Python that will run it; else every worker compiles it again
    compileall.compile_dir(whole, quiet=2)
    broken = directory.with_name(f".{directory.name}.broken-{os.getpid()}")
    if directory.exists():
        directory.rename(broken)
    whole.rename(directory)
    shutil.rmtree(broken, ignore_errors=True)


def report(directory: Path) -> dict[str, str]:
    """The digest of the code and the versions that decide whether this node fits the others."""
    return {"code": tree_digest(directory), "python": platform.python_version(), "ray": metadata.version("ray")}


def main(arguments: list[str]) -> None:
    """Does what the arguments say; see above."""
    if arguments[0] == "report":
        print(json.dumps(report(Path(arguments[1]))))  # noqa: T201 - read by whoever ran this in the container
        return
    archive, directory, digest, *command = arguments[1:]
    install(Path(archive), Path(directory), digest)
    os.execvp(command[0], command)  # noqa: S606 - it is to be this process


if __name__ == "__main__":
    main(sys.argv[1:])
