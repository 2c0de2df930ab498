"""What an agent's container starts with, before any of our code is there: standard library alone, sent as one file.

    python boot.py start TAR DIRECTORY DIGEST COMMAND...    installs the code if it is not there, then becomes COMMAND
    python boot.py report DIRECTORY                         says which code and which versions are there, as JSON
    python boot.py prune PARENT NAME...                     removes old code below PARENT, but none of these

The driver's machine imports it too, so that both sides have one idea of what the code is.
"""

import compileall
import fcntl
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import sys
import tarfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

_COMPILED = "__pycache__"
_NAME = re.compile(r"[0-9a-f]{12}")
_UNFINISHED = re.compile(r"\.[0-9a-f]{12}\..+")
_KEPT = 2
_UNFINISHED_S = 3600


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
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _alone(directory.parent):
        if directory.is_dir() and tree_digest(directory) == digest:
            os.utime(directory)  # in use from now on, so that it does not count as old
            return
        # Process numbers tell nothing apart: each agent is the first process of its container.
        whole = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}")
        _unpack(archive, whole, digest)
        broken = directory.with_name(f".{directory.name}.broken-{secrets.token_hex(4)}")
        if directory.exists():
            directory.rename(broken)
        whole.rename(directory)
    shutil.rmtree(broken, ignore_errors=True)


def _unpack(archive: Path, whole: Path, digest: str) -> None:
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


def prune(parent: Path, used: Collection[str]) -> list[str]:
    """Removes code that nobody uses any more, but the newest two, and what was left half unpacked; returns the names.

    Args:
        parent: has a directory for each digest of code, of whichever cluster.
        used: names of those that are in use.
    """
    with _alone(parent):
        entries = sorted(parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        code = [path for path in entries if _NAME.fullmatch(path.name) and path.is_dir()]
        old = [path for path in code[_KEPT:] if path.name not in used]
        before = time.time() - _UNFINISHED_S
        old += [path for path in entries if _UNFINISHED.fullmatch(path.name) and path.stat().st_mtime < before]
        for path in old:
            # whoever looks for this name from now on does not find half of it
            gone = path.with_name(f".{path.name.strip('.')[:12]}.gone-{secrets.token_hex(4)}")
            path.rename(gone)
            shutil.rmtree(gone)
        return [path.name for path in old]


@contextmanager
def _alone(parent: Path) -> Iterator[None]:
    """Whoever begins to use code, or removes it, does so alone on its host."""
    descriptor = os.open(parent / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def report(directory: Path) -> dict[str, str]:
    """What decides whether this node fits the others: digests of the code and of the token, and the versions."""
    return {
        "code": tree_digest(directory),
        "python": platform.python_version(),
        "ray": metadata.version("ray"),
        "token": token_digest(Path(os.environ.get("RAY_AUTH_TOKEN_PATH", ""))),
    }


def token_digest(file: Path) -> str:
    """Tells tokens apart and does not tell them: they are random. `none` where there is no file."""
    return hashlib.sha256(file.read_bytes().strip()).hexdigest() if file.is_file() else "none"


def main(arguments: list[str]) -> None:
    """Does what the arguments say; see above."""
    if arguments[0] == "report":
        print(json.dumps(report(Path(arguments[1]))))  # noqa: T201 - read by whoever ran this in the container
        return
    if arguments[0] == "prune":
        print(json.dumps(prune(Path(arguments[1]), arguments[2:])))  # noqa: T201 - as above
        return
    archive, directory, digest, *command = arguments[1:]
    install(Path(archive), Path(directory), digest)
    os.execvp(command[0], command)  # noqa: S606 - it is to be this process


if __name__ == "__main__":
    main(sys.argv[1:])
