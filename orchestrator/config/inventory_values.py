"""The kinds of text that an inventory holds, each with what is said about a wrong one."""

import base64
import binascii
import hashlib
import ipaddress
import re
from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

_NAME = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
# An inventory may be somebody else's, out of a store. What ssh is told of it must mean nothing to a shell, in whose
# command ssh writes a jump unquoted, and nothing to ssh, which expands `%` and `${}` and takes what begins with `-` for
# an option.
_ADDRESS = r"[A-Za-z0-9_:][A-Za-z0-9_.:-]*(%[A-Za-z0-9_.-]+)?"
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
# The configuration of ssh takes a domain before a user's name literally; a jump's way through a shell does not.
_LOGIN = rf"([A-Za-z0-9_][A-Za-z0-9_.-]*\\)?{_USER}"
_ALIAS = r"[A-Za-z0-9_][A-Za-z0-9_.+/-]*"
_JUMP = rf"({_USER}@)?([A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:]+\])(:[0-9]{{1,5}})?"
_ENGINE = r"docker|podman|unix:///[^\s:$%\\]+|(?!unix:///)[a-z]+://\S+"
_GPU = r"\d+(-\d+)?|GPU-[0-9a-fA-F*?\[\]-]+"
_RAY_ADDRESS = r"auto|[A-Za-z0-9_][A-Za-z0-9_.-]*:\d{1,5}"
_CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)")
_COMPARISONS: Final = {">=": ge, "<=": le, ">": gt, "<": lt, "==": eq, "!=": ne}
_KEY_TYPES = re.compile(r"(ssh-|ecdsa-sha2-|sk-)[a-z0-9@.-]+")


def _name(kind: str) -> Callable[[str], str]:
    def check(name: str) -> str:
        if not re.fullmatch(_NAME, name):
            raise ValueError(f"a {kind} name consists of a-z, 0-9, '-' and '.', not {name!r}")
        return name

    return check


def _matching(pattern: str, expected: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"expected {expected}, not {text!r}")
        return text

    return check


def _host_key(text: str) -> str:
    kind, _, rest = text.partition(" ")
    encoded = rest.partition(" ")[0]
    if not _KEY_TYPES.fullmatch(kind) or not encoded:
        raise ValueError(
            "expected the type and the text of a public key, such as `ssh-ed25519 AAAA…`; `taxmeter hosts key NAME` "
            "prints what the host offers"
        )
    try:
        # It begins with the length and the name of its type.
        whole = base64.b64decode(encoded, validate=True).startswith(len(kind).to_bytes(4, "big") + kind.encode())
    except binascii.Error:
        whole = False
    if not whole:
        raise ValueError(f"this is no whole {kind} key; copy it again, on one line")
    return f"{kind} {encoded}"


def _address(text: str) -> str:
    if text.startswith("["):
        bare = text[1:].partition("]")[0]
        raise ValueError(
            f"expected an address without brackets, not {text!r}; write {bare} (`port` is a key of its own)"
        )
    alone = "a name or an IP address alone (`user` and `port` are keys of their own)"
    if ":" in text:
        try:
            ipaddress.IPv6Address(text)
        except ValueError:
            raise ValueError(f"expected {alone}, not {text!r}") from None
    return _matching(_ADDRESS, alone)(text)


def _jump(text: str) -> str:
    match = re.fullmatch(_JUMP, text)
    port = match[match.re.groups] if match is not None else None
    if match is None or (port is not None and not 1 <= int(port[1:]) <= 65535):
        raise ValueError(
            "expected [user@]host[:port] or the name of another host, of A-Z, a-z, 0-9, '_' and, but not first, '.', "
            f"'-' (in the user also '+'), not {text!r}"
        )
    return text


def _version_range(text: str) -> str:
    if not all(_CLAUSE.fullmatch(part.strip()) for part in text.split(",")):
        raise ValueError(f"expected versions such as '>=535,<581', not {text!r}")
    return text


def _gpu(text: str) -> str:
    if text.upper().startswith("MIG-"):
        raise ValueError(
            f"{text} is a part of a GPU, which shares clocks, power and the bus with the other parts: name the GPU, "
            "and end its division with `nvidia-smi -mig 0`"
        )
    first, _, last = text.partition("-")
    if not re.fullmatch(_GPU, text) or (last.isdecimal() and int(last) < int(first)):
        raise ValueError(
            f"expected the UUID of a GPU (`nvidia-smi -L` prints it), a pattern such as 'GPU-1f*', a number or a range "
            f"such as 0-3, not {text!r}"
        )
    return text


def _number_as_text(value: object) -> object:
    """A number of a GPU needs no quotes."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _text(pattern: str, expected: str) -> AfterValidator:
    return AfterValidator(_matching(pattern, expected))


def _schema(pattern: str) -> object:
    return Field(json_schema_extra={"pattern": f"^{pattern}$"})


HostName = Annotated[str, AfterValidator(_name("host")), _schema(_NAME)]
GroupName = Annotated[str, AfterValidator(_name("group")), _schema(_NAME)]
Address = Annotated[str, AfterValidator(_address), _schema(_ADDRESS)]
RayAddress = Annotated[
    str, _text(_RAY_ADDRESS, "HOST:PORT of a Ray head (without ray://), or auto"), _schema(f"({_RAY_ADDRESS})")
]
UserName = Annotated[
    str,
    _text(_LOGIN, r"a user's name of A-Z, a-z, 0-9, '_' and, but not first, '.', '+', '-' (or DOMAIN\name)"),
    _schema(_LOGIN),
]
Alias = Annotated[
    str,
    _text(_ALIAS, "a Host of your SSH configuration, of A-Z, a-z, 0-9, '_' and, but not first, '.', '+', '/', '-'"),
    _schema(_ALIAS),
]
Jump = Annotated[str, AfterValidator(_jump), _schema(_JUMP)]
Port = Annotated[int, Field(ge=1, le=65535)]
LocalPath = Annotated[
    str, _text(r"""[^"'\\\x00-\x1f\x7f]+""", "a path without quotes, backslashes and control characters")
]
RemotePath = Annotated[str, _text(r"""/[^"'\n:]*[^"'\n:/]""", "an absolute path without quotes and colons")]
Engine = Annotated[
    str, _text(_ENGINE, "docker, podman or the engine's socket as unix:///path without ':', '$', '%' and backslashes")
]
HostKey = Annotated[str, AfterValidator(_host_key)]
VersionRange = Annotated[str, AfterValidator(_version_range)]
Pattern = Annotated[str, Field(min_length=1)]
GpuPattern = Annotated[str, BeforeValidator(_number_as_text, json_schema_input_type=str | int), AfterValidator(_gpu)]


def local_path(text: str) -> Path:
    """A path of this machine. Where no user here has the name behind its `~`, that stays."""
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def in_range(version: str, text: str) -> bool:
    """Whether a version is in a range such as `>=535,<581`.

    Only as many numbers are compared as the range names: 535.129 counts as 535 there. A version that is no number
    is in no range.
    """
    found = tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0].partition("-")[0]))
    return bool(found) and all(_holds(found, part.strip()) for part in text.split(","))


def _holds(found: tuple[int, ...], clause: str) -> bool:
    match = _CLAUSE.fullmatch(clause)
    assert match is not None, clause
    bound = tuple(map(int, match[2].split(".")))
    known = (found + (0,) * len(bound))[: len(bound)]
    return bool(_COMPARISONS[match[1]](known, bound))


def fingerprint_of(key: str) -> str:
    """The fingerprint of a public key (`type text`) as ssh-keygen prints it."""
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
