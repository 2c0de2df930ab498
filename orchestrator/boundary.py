"""Bytes of others on their way in, and text of others on its way to a terminal.

Others are containers, hosts, imported directories, merged stores, object stores and whoever can write beside us.
"""

import io
import json
import math
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from orchestrator.errors import ForeignDataError, one_line

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError  # commands that read nothing do not wait for it

Value = TypeVar("Value")

_ADAPTERS: "Final[dict[Any, TypeAdapter[Any]]]" = {}

MAX_JSON_BYTES: Final = 64 * 2**20
"""No document of ours is longer."""

MAX_JSON_DEPTH: Final = 64
"""Ours have less than ten levels."""

_INT64: Final = 2**63

_SUSPECT: Final = re.compile(r"[0-9]{19}|[eE]\+?[0-9]{3}|\\u[dD][89a-fA-F]")
"""Only what has one of these can hold a number beyond 64 bits, an infinity or half of a surrogate pair."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,239}")

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0 without tab and newline, C1, line separators, what changes the direction of writing, halves of pairs."""


def open_foreign_file(path: Path, *, follows_links: bool = False) -> io.FileIO:
    """Opens a file that somebody else may have made, to read it without buffering; it never blocks.

    Args:
        path: of the file.
        follows_links: for a file that a person named; whoever owns a directory chooses where its links lead.

    Raises:
        FileNotFoundError: it is not there.
        ForeignDataError: it is a link, a pipe, a device or a directory, or cannot be opened.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | (0 if follows_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        is_link = not follows_links and path.is_symlink()
        problem = "is a link" if is_link else f"cannot be read: {error.strerror}"
        raise ForeignDataError(f"{path} {problem}; expected a regular file") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ForeignDataError(f"{path} is no regular file")
    return open(descriptor, "rb", buffering=0)


def read_foreign_file(path: Path, limit_bytes: int, *, follows_links: bool = False, is_private: bool = False) -> bytes:
    """Reads a whole file that somebody else may have made.

    Args:
        path: of the file.
        limit_bytes: a longer one is refused without being read.
        follows_links: see `open_foreign_file`.
        is_private: whether nobody else may have written or read it.

    Raises:
        FileNotFoundError: it is not there.
        ForeignDataError: it is no regular file, too long, not ours alone, or cannot be read.
    """
    with open_foreign_file(path, follows_links=follows_links) as stream:
        status = os.fstat(stream.fileno())
        if is_private and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
            raise ForeignDataError(f"{path} is not ours alone; find out who wrote it, and remove it")
        size = status.st_size
        pieces: list[bytes] = []
        left = limit_bytes + 1
        try:
            # By its size if it tells one, for it may be sparse; piece by piece because it may grow
            while size <= limit_bytes and left and (piece := stream.read(min(left, 2**20))):
                pieces.append(piece)
                left -= len(piece)
        except OSError as error:
            raise ForeignDataError(f"{path} cannot be read: {error.strerror}") from None
    if size > limit_bytes or not left:
        raise ForeignDataError(f"{path} is longer than {limit_bytes} bytes; no file of ours is")
    return b"".join(pieces)


def foreign_directory(root: Path, name: str) -> Path | None:
    """A directory below one that somebody else may have made; null if it is not there.

    Args:
        root: that a person named.
        name: relative to it, without `..`.

    Raises:
        ForeignDataError: it is a link, or lies behind one: whoever made it would choose what is read.
    """
    place = root
    for part in Path(name).parts:
        place /= part
        if place.is_symlink():
            raise ForeignDataError(f"{place} is a link; expected a directory")
    return place if place.is_dir() else None


def load_json(data: bytes | str, where: str, *, limit_bytes: int = MAX_JSON_BYTES) -> Any:
    """Reads one JSON document of somebody else.

    Args:
        data: UTF-8 if it is bytes.
        where: what it is, for the error: a file, or a column of a row.
        limit_bytes: the longest that is taken.

    Returns:
        What it says: integers have 64 bits, floats are finite, all text can be encoded.

    Raises:
        ForeignDataError: it is too long, too deep, no JSON, or holds NaN, an infinity, an integer beyond 64 bits or
            half of a surrogate pair.
    """
    if len(data) > limit_bytes:
        raise ForeignDataError(f"{where}: longer than {limit_bytes} bytes")
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        document = json.loads(text, parse_constant=_refuse_constant)
        if isinstance(data, str) and not text.isascii():
            text.encode()
    except RecursionError:
        raise ForeignDataError(f"{where}: nested more than {MAX_JSON_DEPTH} deep") from None
    except ValueError as error:
        raise ForeignDataError(f"{where}: no JSON: {error}") from None
    _check_values(document, where, is_suspect=_SUSPECT.search(text) is not None)
    return document


def adapter_of(kind: type[Value]) -> "TypeAdapter[Value]":
    """What turns values of a type into JSON and back; made when it is asked for first, for that takes long."""
    if kind not in _ADAPTERS:
        from pydantic import TypeAdapter

        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def validated(kind: type[Value], data: bytes | str, where: str, *, limit_bytes: int = MAX_JSON_BYTES) -> Value:
    """One JSON document of somebody else as the value that it has to be; nothing in it is converted.

    Args:
        kind: of the value.
        data: UTF-8 if it is bytes.
        where: what it is, for the error.
        limit_bytes: the longest that is taken.

    Raises:
        ForeignDataError: it is none, or see `load_json`.
    """
    from pydantic import ValidationError

    load_json(data, where, limit_bytes=limit_bytes)
    try:
        return adapter_of(kind).validate_json(data, strict=True)
    except ValidationError as error:
        raise ForeignDataError(f"{where}: {first_problem(error)}") from None


def first_problem(error: "ValidationError") -> str:
    """What is wrong with a document, in one line: the key, as far as it is known, and what was expected there."""
    first = error.errors(include_url=False, include_input=False)[0]
    key = one_line(".".join(map(str, first["loc"])), 200)
    return one_line(f"{key or 'the document'}: {first['msg']}", 500)


def plain_name(name: str, what: str) -> str:
    """A name of somebody else that becomes a part of paths: the name, if it is one plain component.

    Args:
        name: such as the identity of a campaign.
        what: it is, for the error.

    Raises:
        ForeignDataError: it is not.
    """
    if not _PLAIN_NAME.fullmatch(name):
        raise ForeignDataError(
            f"{what} {name[:80]!r} is no name that taxmeter gives: expected letters, digits, '.', '_', '+' and '-' "
            "after a first letter or digit, at most 240"
        )
    return name


def terminal_text(text: str) -> str:
    """Text of others as it may reach a terminal: characters that steer one are shown by their numbers."""
    return _CONTROL.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _check_values(document: Any, where: str, *, is_suspect: bool) -> None:
    level = [document]
    for _ in range(MAX_JSON_DEPTH):
        inner: list[Any] = []
        for value in level:
            children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
            if is_suspect:
                for scalar in (*children, *(value if isinstance(value, dict) else ())):
                    _check_scalar(scalar, where)
            inner += [child for child in children if isinstance(child, dict | list)]
        if not inner:
            return
        level = inner
    raise ForeignDataError(f"{where}: nested more than {MAX_JSON_DEPTH} deep")


def _check_scalar(value: Any, where: str) -> None:
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ForeignDataError(f"{where}: holds half of a surrogate pair") from None
    elif isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise ForeignDataError(f"{where}: holds an integer beyond 64 bits")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ForeignDataError(f"{where}: holds a number that is too large")
