"""Bills of materials in CycloneDX's form, and what a vulnerability database knows of what they list.

python -m tests.sbom write DIRECTORY                  of `.venv` and of the Python of each image that was built here
python -m tests.sbom audit DIRECTORY --database PATH  a record of OSV, a list of them, or a directory or .zip of such files

Packages of Debian are not listed: `docker run IMAGE dpkg --list` does that.
"""

import argparse
import base64
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from docker.errors import ImageNotFound
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from orchestrator.environments import connect, read_built_images
from tests.conftest import PROJECT

TOOL: Final = PROJECT / ".taxmeter" / "audit"
LOCK: Final = PROJECT / "requirements" / "audit.lock"
FOUND, UNUSABLE = 1, 2
"""Exit codes of an audit."""
_METADATA: Final = (
    'cd "$(python -c \'import sysconfig; print(sysconfig.get_path("purelib"))\')" && tar -czf - ./*.dist-info | base64'
)


class UnusableError(Exception):
    """What was given is no bill or no database."""


@dataclass(frozen=True)
class Component:
    """A package that is installed."""

    bill: str
    name: str
    version: str
    licences: tuple[str, ...]


def write(directory: Path) -> None:
    """Writes a bill for each place that has packages of Python."""
    directory.mkdir(parents=True, exist_ok=True)
    program = tool()
    describe(program, PROJECT / ".venv", directory / "venv.cdx.json", "--pyproject", str(PROJECT / "pyproject.toml"))
    built = read_built_images(PROJECT / "docker" / "images.yaml")
    with closing(connect()) as client:
        for name, image in built.items():
            try:
                data = client.containers.run(image.image_id, ["sh", "-c", _METADATA], network_mode="none", remove=True)
            except ImageNotFound:
                print(f"{name}: this engine does not have its image")
                continue
            with tempfile.TemporaryDirectory() as place:
                venv.create(place)
                [packages] = Path(place).glob("lib/python*/site-packages")
                with tarfile.open(fileobj=io.BytesIO(base64.b64decode(data))) as archive:
                    archive.extractall(packages, filter="data")
                describe(program, Path(place), directory / f"{name}.cdx.json")


def tool() -> Path:
    """CycloneDX's program, installed as its lock says."""
    program = TOOL / "bin" / "cyclonedx-py"
    if not program.exists() or program.stat().st_mtime < LOCK.stat().st_mtime:
        venv.create(TOOL, clear=True)
        settings = PROJECT / "orchestrator" / "environments" / "site_settings.py"
        uv = [sys.executable, settings, PROJECT / ".venv" / "bin" / "uv", "pip", "--quiet", "install", "--python", TOOL]
        subprocess.run([*uv, "--require-hashes", "--only-binary", ":all:", "-r", LOCK], check=True)
        program.touch()
    return program


def describe(program: Path, environment: Path, bill: Path, *options: str) -> None:
    command = [program, "environment", environment, "--output-reproducible", "--output-file", bill, *options]
    subprocess.run(command, check=True)
    listed = list(components([bill]))
    silent = sorted(component.name for component in listed if not component.licences)
    print(f"{bill}: {len(listed)} packages, {len(silent)} of which say no licence: {', '.join(silent) or 'none'}")


def components(bills: Iterable[Path]) -> Iterator[Component]:
    """What bills list.

    Raises:
        UnusableError: one is no bill.
    """
    for bill in bills:
        document = _document(bill.read_bytes(), str(bill))
        if not isinstance(document, dict) or document.get("bomFormat") != "CycloneDX":
            raise UnusableError(f"{bill}: no bill of CycloneDX; `make sbom` writes them")
        for part in document.get("components", ()):
            said = [entry.get("license", entry) for entry in part.get("licenses", ())]
            licences = tuple(str(one.get("id") or one.get("expression") or one.get("name")) for one in said)
            yield Component(bill.name.partition(".")[0], canonicalize_name(part["name"]), part["version"], licences)


def advisories(database: Path) -> Iterator[Mapping[str, Any]]:
    """The records of a database in OSV's form.

    Raises:
        UnusableError: it is no such database.
    """
    for place, data in _files(database):
        document = _document(data, place)
        records = document if isinstance(document, list) else document.get("vulns", [document])
        for record in records:
            if not isinstance(record, dict) or "id" not in record:
                raise UnusableError(f"{place}: a record without an id is none of OSV")
            yield record


def _files(database: Path) -> Iterator[tuple[str, bytes]]:
    if database.is_dir():
        yield from ((str(path), path.read_bytes()) for path in sorted(database.rglob("*.json")))
    elif database.suffix == ".zip":
        with zipfile.ZipFile(database) as archive:
            yield from (
                (f"{database}:{name}", archive.read(name)) for name in archive.namelist() if name.endswith(".json")
            )
    else:
        yield str(database), database.read_bytes()


def _document(data: bytes, place: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise UnusableError(f"{place}: no JSON: {error}") from None


def problems(installed: Sequence[Component], known: Iterable[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """How many records there were, and a line for each package that one of them is about."""
    by_name: dict[str, list[Component]] = {}
    for component in installed:
        by_name.setdefault(component.name, []).append(component)
    count, lines = 0, []
    for record in known:
        count += 1
        if "withdrawn" in record:
            continue
        for affected in record.get("affected", ()):
            package = affected.get("package", {})
            if package.get("ecosystem") != "PyPI":
                continue
            for component in by_name.get(canonicalize_name(package.get("name", "")), ()):
                if is_affected(component.version, affected):
                    aliases = " ".join([record["id"], *record.get("aliases", ())])
                    summary = re.sub(r"\s+", " ", str(record.get("summary", "")))[:100]
                    lines.append(f"{component.bill}: {component.name} {component.version}: {aliases}: {summary}")
    return count, sorted(set(lines))


def is_affected(version: str, affected: Mapping[str, Any]) -> bool:
    """Whether a version is listed, or lies in a range; one that cannot be compared counts as affected."""
    if version in affected.get("versions", ()):
        return True
    ranges = [found["events"] for found in affected.get("ranges", ()) if found.get("type") == "ECOSYSTEM"]
    try:
        return any(_is_within(Version(version), events) for events in ranges)
    except InvalidVersion:
        return True


def _is_within(version: Version, events: Sequence[Mapping[str, str]]) -> bool:
    """By OSV's rule: the last event at or below the version decides."""
    is_in = False
    at = {"introduced": Version, "fixed": Version, "last_affected": Version}
    known = [(kind, at[kind](text)) for event in events for kind, text in event.items() if kind in at]
    for kind, bound in sorted(known, key=lambda event: event[1]):
        if kind == "introduced" and version >= bound:
            is_in = True
        elif (kind == "fixed" and version >= bound) or (kind == "last_affected" and version > bound):
            is_in = False
    return is_in


def _bills(directory: Path) -> list[Path]:
    if bills := sorted(directory.glob("*.cdx.json")):
        return bills
    raise UnusableError(f"{directory}: no bills; `make sbom` writes them")


def audit(directory: Path, database: Path | None) -> int:
    """Prints what a database knows of what is installed."""
    if database is None:
        print("no vulnerability database: make audit DATABASE=FILE, of OSV's records (its export of PyPI is one)")
        return UNUSABLE
    try:
        bills = _bills(directory)
        installed = list(components(bills))
        count, found = problems(installed, advisories(database))
    except (UnusableError, OSError, zipfile.BadZipFile) as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    if not count:
        print(f"{database}: no record of OSV in it", file=sys.stderr)
        return UNUSABLE
    print(
        "\n".join([*found, f"{len(installed)} packages of {len(bills)} bills, {count} records, {len(found)} matches"])
    )
    return FOUND if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sbom")
    parser.add_argument("command", choices=("write", "audit"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--database", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "write":
        write(arguments.directory)
        return 0
    return audit(arguments.directory, arguments.database)


if __name__ == "__main__":
    sys.exit(main())
