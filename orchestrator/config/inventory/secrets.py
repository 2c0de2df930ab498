"""Finds what must not stand in a file that is copied into every campaign."""

import re
from typing import Any

from orchestrator.config.documents import Location

_KEY = re.compile(
    r"(.*[_-])?(pass(word|wd|phrase)|secret|token|api[_-]?key|private[_-]?key|credentials?)([_-].*)?", re.IGNORECASE
)
_PRIVATE_KEY = re.compile(r"PRIVATE KEY-----|PuTTY-User-Key-File|b3BlbnNzaC1rZXktdjE")
_ADDRESS_WITH_PASSWORD = re.compile(r"[a-z]+://[^/\s:@]*:[^/\s@]+@")


def secret_in(tree: Any, location: Location = ()) -> tuple[Location, str] | None:
    """The first secret of a document: where it stands and of which kind it is, but never its text; None without one."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            place = (*location, key)
            # Names of hosts and groups are theirs: a host may well be called token-ring.
            is_name = len(place) == 2 and place[0] in ("hosts", "groups")
            if isinstance(key, str) and not is_name and _KEY.fullmatch(key):
                return place, f"a {key.lower()}"
            found = secret_in(value, place)
            if found is not None:
                return found
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            found = secret_in(value, (*location, number))
            if found is not None:
                return found
    elif isinstance(tree, str):
        if _PRIVATE_KEY.search(tree):
            return location, "a private key"
        if _ADDRESS_WITH_PASSWORD.search(tree):
            return location, "a password in an address"
    return None
