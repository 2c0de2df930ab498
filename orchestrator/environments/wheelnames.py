"""What the file name of a wheel says: its distribution, and which Pythons and processors it is for."""

import re
from dataclasses import dataclass
from itertools import product
from typing import Self

from orchestrator.environments.locks import canonical_name

# name-version(-build)?-python-abi-platform, in which each of the last three may be several, joined by dots
_FILE = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-\d[^-]*)?-(?P<pythons>[^-]+)-(?P<abis>[^-]+)-(?P<platforms>[^-]+)\.whl"
)
_PYTHON = re.compile(r"(?P<kind>cp|py)(?P<major>\d)(?P<minor>\d*)")
_PLATFORM = re.compile(r"(?:linux|manylinux(?:1|2010|2014|_(?P<major>\d+)_(?P<minor>\d+)))_(?P<architecture>.+)")


@dataclass(frozen=True)
class WheelName:
    """A file name, taken apart."""

    distribution: str
    """In its canonical spelling."""
    version: str
    pythons: tuple[str, ...]
    abis: tuple[str, ...]
    platforms: tuple[str, ...]

    @classmethod
    def parse(cls, file_name: str) -> Self | None:
        """Takes a file name apart; None if it is not one of a wheel."""
        match = _FILE.fullmatch(file_name)
        if match is None:
            return None
        tags = (tuple(match[part].split(".")) for part in ("pythons", "abis", "platforms"))
        return cls(canonical_name(match["name"]), match["version"], *tags)

    def serves(self, python: str, platform: str) -> bool:
        """Whether it installs for a CPython and a platform.

        Args:
            python: such as `3.11`.
            platform: the newest that will do, such as `manylinux_2_28_x86_64`.
        """
        pairs = product(self.pythons, self.abis)
        return any(_fits_python(tag, abi, python) for tag, abi in pairs) and any(
            _fits_platform(one, platform) for one in self.platforms
        )


def _fits_python(tag: str, abi: str, python: str) -> bool:
    match = _PYTHON.fullmatch(tag)
    major, minor = (int(part) for part in python.split("."))
    if match is None or int(match["major"]) != major:
        return False
    oldest = int(match["minor"] or 0)
    if match["kind"] == "py" or abi == "abi3":
        return abi in ("none", "abi3") and oldest <= minor
    return oldest == minor and abi in (tag, "none")


def _fits_platform(tag: str, platform: str) -> bool:
    found, wanted = _PLATFORM.fullmatch(tag), _PLATFORM.fullmatch(platform)
    if found is None or wanted is None:
        return tag == "any"
    newest = (int(wanted["major"] or 0), int(wanted["minor"] or 0))
    return found["architecture"] == wanted["architecture"] and (
        found["major"] is None or (int(found["major"]), int(found["minor"])) <= newest
    )
