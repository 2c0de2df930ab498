"""Reading /proc and /sys below any root. What is missing or unreadable is None: every kernel lacks some of it."""

import os
import re
from typing import Dict, FrozenSet, List, Optional, Set

_SIZE = re.compile(r"(\d+)([KMG]?)")
_FACTOR = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def read_text(root: str, path: str) -> Optional[str]:
    """The stripped text of a file, or None if it cannot be read or is empty."""
    try:
        with open(below(root, path), encoding="utf-8", errors="replace") as file:
            return file.read().strip("\0\n\t ") or None
    except OSError:
        return None


def read_int(root: str, path: str) -> Optional[int]:
    """A decimal number, or None if the file has none."""
    return parse_int(read_text(root, path))


def read_flag(root: str, path: str) -> Optional[bool]:
    """True for 1, false for 0, None for anything else."""
    return {"1": True, "0": False}.get(read_text(root, path) or "")


def read_fields(root: str, path: str, separator: str = ":") -> Dict[str, str]:
    """`key: value` lines; the first of a repeated key counts."""
    fields: Dict[str, str] = {}
    for line in (read_text(root, path) or "").splitlines():
        key, found, value = line.partition(separator)
        if found:
            fields.setdefault(key.strip(), value.strip())
    return fields


def list_names(root: str, path: str, pattern: str) -> List[str]:
    """Names in a directory that match the whole pattern, in natural order (`cpu2` before `cpu10`)."""
    try:
        names = os.listdir(below(root, path))
    except OSError:
        return []
    matching = [name for name in names if re.fullmatch(pattern, name)]
    return sorted(matching, key=lambda name: [int(part) if part.isdecimal() else part for part in _split(name)])


def exists(root: str, path: str) -> bool:
    return os.path.exists(below(root, path))


def below(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))


def parse_int(text: Optional[str]) -> Optional[int]:
    """A decimal number, or None."""
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def parse_bytes(text: Optional[str]) -> Optional[int]:
    """`36608K`, `1M` or `64 kB` in bytes, or None."""
    match = _SIZE.match((text or "").replace(" ", "").upper())
    return int(match.group(1)) * _FACTOR[match.group(2)] if match else None


def parse_list(text: Optional[str]) -> FrozenSet[int]:
    """The numbers of a kernel list such as `0-3,8`; empty if there is none."""
    numbers: Set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text or ""):
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def parse_choice(text: Optional[str]) -> Optional[str]:
    """The selected word of `always [madvise] never`, or None."""
    match = re.search(r"\[([^\]]+)\]", text or "")
    return match.group(1) if match else None


def _split(name: str) -> List[str]:
    return re.split(r"(\d+)", name)
