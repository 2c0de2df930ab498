"""What is said with `runner_process` on a host: orders go there, words and data come back, all of it validated."""

import json
import os
import re
import select
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from subprocess import Popen
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, StringConstraints

from orchestrator.boundary import load_json, validated
from orchestrator.errors import ForeignDataError, InfrastructureError, one_line
from orchestrator.execution import TaskOutcome, runner_process

Listener = Callable[[str, bytes], None]
Value = TypeVar("Value")

_MAX_BEFORE_BYTES: Final = 2**20
_ANSWER_S: Final = 60.0
_LOOK_S: Final = 0.5
_MAX_PIECE_BYTES: Final = 64 * 2**20
_LONGEST_WORD: Final = 40


@dataclass(frozen=True)
class _Ended:
    """How a task ended there, see `runner_process`."""

    exit_code: Annotated[int, Field(ge=-255, le=255)] | None
    ended_because: Annotated[str, Field(max_length=1000)] | None
    log_tail: str


_MAX_LOG: Final = 8192
_Text = Annotated[str, StringConstraints(max_length=10_000)]
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,254}")
_WORD: Final = re.compile(rb"([a-z.]+) (\d{1,9})")


def converse(
    started: "Popen[bytes]", order: Mapping[str, object], heard: Listener, connection: socket.socket | None
) -> Any:
    """Gives an order, and takes what is said until the last word.

    Raises:
        EOFError: it ended before that.
        InfrastructureError: it failed, or says what nobody understands.
    """
    assert started.stdin is not None
    assert started.stdout is not None
    try:
        started.stdin.write(json.dumps(order).encode() + b"\n")
        started.stdin.flush()
    except BrokenPipeError:
        raise EOFError from None
    descriptor, pending, is_greeted = started.stdout.fileno(), b"", False
    until_s = time.monotonic() + _ANSWER_S
    while True:
        watched = [descriptor] if connection is None else [descriptor, connection.fileno()]
        ready, _, _ = select.select(watched, [], [], _LOOK_S)
        if connection is not None and connection.fileno() in ready and not connection.recv(1):
            connection = None
            started.stdin.close()  # it ends there, and says how
        if descriptor not in ready:
            if time.monotonic() > until_s:
                raise EOFError
            continue
        piece = os.read(descriptor, 2**16)
        if not piece:
            raise EOFError
        until_s = time.monotonic() + _ANSWER_S
        pending += piece
        if not is_greeted:
            before, found, after = pending.partition(runner_process.GREETING)
            is_greeted, pending = bool(found), after if found else before
            if len(before) > _MAX_BEFORE_BYTES:
                raise InfrastructureError(f"its shell prints without end: {before[:80]!r}")
        while is_greeted and (answer := next_word(pending)) is not None:
            word, data, pending = answer
            if word == "ended":
                return read_document(data)
            if word == "failed":
                raise InfrastructureError(_line(data.decode("utf-8", "replace")))
            heard(word, data)


def next_word(pending: bytes) -> tuple[str, bytes, bytes] | None:
    """The first word with its data, and the rest; null until it is whole."""
    line, separator, rest = pending.partition(b"\n")
    match = _WORD.fullmatch(line)
    if (separator or len(line) > _LONGEST_WORD) and (match is None or int(match[2]) > _MAX_PIECE_BYTES):
        raise InfrastructureError(f"it says what nobody understands: {line[:80]!r}")
    if match is None:
        return None
    size = int(match[2])
    return (match[1].decode(), rest[:size], rest[size:]) if separator and len(rest) >= size else None


def read_document(data: bytes) -> Any:
    """What a host answers, as JSON."""
    try:
        return load_json(data, "what it answered")
    except ForeignDataError as error:
        raise InfrastructureError(str(error)) from None


def outcome_in(answer: object) -> TaskOutcome:
    """How a task ended, as a host tells it."""
    said = _validated(_Ended, answer)
    return TaskOutcome(said.exit_code, None, said.ended_because, said.log_tail[-_MAX_LOG:])


def texts_in(answer: object) -> list[str]:
    """Lines for a person, as a host tells them."""
    return [_line(text) for text in _validated(list[_Text], answer)]


def names_in(found: object) -> list[tuple[str, str]]:
    """Campaign and name of task directories, as a host tells them."""
    names = _validated(list[tuple[str, str]], found)
    if not all(_NAME.fullmatch(name) for pair in names for name in pair):
        raise InfrastructureError(one_line(f"it tells of a directory that is none of ours: {names}"))
    return names


def _validated(kind: type[Value], answer: object) -> Value:
    try:
        return validated(kind, json.dumps(answer), "what it tells")
    except ForeignDataError as error:
        raise InfrastructureError(str(error)) from None


def _line(text: str) -> str:
    return one_line(text, 500)
