"""JSON for the contract's dataclasses, with nothing but the standard library."""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import re
import typing
import zlib
from enum import Enum
from json.encoder import encode_basestring
from typing import Any, Callable, Dict, Iterable, Optional, Tuple, Type, TypeVar, Union

from runners.contract import record

T = TypeVar("T")

_CHECK = b',"crc32":"%08x"}'
"""Ends each line of `records.jsonl`: the checksum of all that stands before it."""

_CHECK_BYTES = len(_CHECK % 0)

_MAX_PROCESSES = 2**31 - 1


_LONGEST_PROBLEM = 300


class ContractError(ValueError):
    """A document does not have the shape that the contract gives it. What it says may stand in the one short line."""

    def __init__(self, problem: str) -> None:
        line = " ".join(problem.split())
        super().__init__(line if len(line) <= _LONGEST_PROBLEM else line[:_LONGEST_PROBLEM] + "...")


def encode(value: Any) -> Any:
    """Turns a contract value into plain dictionaries, lists and scalars."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    return value


def compact_json(value: Any) -> bytes:
    """A contract value as JSON without blanks. Not-a-number is refused: JSON has none."""
    return json.dumps(encode(value), ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def encode_line(value: "record.Line") -> bytes:
    """One line of `records.jsonl`, checksum and newline included. Not-a-number is refused: JSON has none."""
    body = compact_json(value)[:-1]
    return body + _CHECK % zlib.crc32(body) + b"\n"


def decode(cls: Type[T], document: Any, where: str = "document") -> T:
    """Builds `cls` from plain JSON data.

    Raises:
        ContractError: a key is unknown or missing, or a value has the wrong type.
    """
    return typing.cast(T, _decode(cls, document, where))


def decode_line(line: bytes) -> "record.Line":
    """Reads one line of `records.jsonl`, with its newline or without.

    Raises:
        ContractError: the line is damaged, or no JSON object of a known type.
    """
    whole = line[:-1] if line.endswith(b"\n") else line
    body = whole[:-_CHECK_BYTES]
    if whole[-_CHECK_BYTES:] != _CHECK % zlib.crc32(body):
        raise ContractError("damaged: the line does not end in its checksum")
    try:
        document = _DECODER.decode(body.decode("utf-8") + "}")
    except (ValueError, RecursionError) as error:
        raise ContractError("not a line of JSON: %s" % error) from None
    kinds = {
        "environment": record.Environment,
        "begin": record.Begin,
        "record": record.TrialRecord,
        "end": record.End,
    }
    kind = document.get("type") if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        raise ContractError("type must be one of %s, not %r" % (", ".join(kinds), kind))
    said = typing.cast("record.Line", decode(kinds[kind], document, kind))
    if isinstance(said, record.TrialRecord):
        check_turns(said.series, kind)
        if said.session is not None:
            _check_session(said.session, kind)
    return said


def check_turns(series: "Iterable[record.Series]", where: str) -> None:
    """Refuses turns that do not divide the samples of their series.

    Raises:
        ContractError: a turn but the first ones has no sample, or all turns have more or fewer than the series.
    """
    for taken in series:
        own = list(itertools.dropwhile(lambda count: count == 0, taken.turns))
        if taken.turns and (min(own, default=0) < 1 or sum(own) != len(taken.durations_ns)):
            raise ContractError("%s.series: the turns of %s do not add up to its samples" % (where, taken.mode))


def _check_session(session: "record.Session", where: str) -> None:
    if re.fullmatch("[0-9a-f]{32}", session.session_id) is None:
        raise ContractError("%s.session.session_id: expected 32 hexadecimal digits" % where)
    if not 0 <= session.processes <= _MAX_PROCESSES:
        raise ContractError("%s.session.processes: %d is no number of processes" % (where, session.processes))
    if (session.reason is None) != (session.interleaving is record.Interleaving.TURNS):
        raise ContractError("%s.session.reason: needed for every interleaving but turns" % where)


Known = Dict[int, Tuple[Any, str]]
"""By the id of a value the value, which keeps its id for so long, and its text."""


def canonical_json(value: Any, known: Optional[Known] = None) -> str:
    """The one text of a value, equal to RFC 8785 for what the contract allows in identities.

    Args:
        value: to write.
        known: of parts that several values share.

    Raises:
        ContractError: the value holds a float, an integer beyond 2**53 or a key outside ASCII.
    """
    write = _SCALARS.get(type(value))
    if write is not None:
        return write(value)
    if known and id(value) in known:
        return known[id(value)][1]
    if isinstance(value, Enum):
        return canonical_json(value.value)
    if isinstance(value, (str, int)):  # of a subclass
        return _SCALARS[str if isinstance(value, str) else int](value)
    if isinstance(value, dict):
        members = [start + canonical_json(value[key], known) for key, start in _sorted_keys(tuple(value))]
        return "{%s}" % ",".join(members)
    if isinstance(value, (list, tuple)):
        return "[%s]" % ",".join([canonical_json(item, known) for item in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [start + canonical_json(getattr(value, name), known) for name, start in _sorted_fields(type(value))]
        return "{%s}" % ",".join(fields)
    if isinstance(value, float):
        raise ContractError("a float has no place in an identity: %r" % value)
    raise TypeError("%s is no value of the contract" % type(value).__name__)


def digest(value: Any, known: Optional[Known] = None) -> str:
    """SHA-256 of the canonical text, in hexadecimal; `known` as there."""
    return hashlib.sha256(canonical_json(value, known).encode("utf-8")).hexdigest()


def _integer(value: int) -> str:
    if abs(value) >= 2**53:
        raise ContractError("integer too large for an identity: %r" % value)
    return str(value)


_SCALARS: Dict[type, Callable[[Any], str]] = {
    str: encode_basestring,
    int: _integer,
    bool: {False: "false", True: "true"}.__getitem__,
    type(None): {None: "null"}.__getitem__,
}


@functools.lru_cache(maxsize=1000)
def _sorted_keys(keys: Tuple[Any, ...]) -> Tuple[Tuple[str, str], ...]:
    """The keys of a mapping in their order, each with the text before its value."""
    for key in keys:
        if not isinstance(key, str) or not key.isascii():
            raise ContractError("keys of an identity are ASCII text: %r" % (key,))
    return tuple((key, encode_basestring(key) + ":") for key in sorted(keys))


@functools.lru_cache(maxsize=None)
def _sorted_fields(cls: Any) -> Tuple[Tuple[str, str], ...]:
    """The names of the fields of a dataclass in their order, each with the text before its value."""
    return tuple((name, '"%s":' % name) for name in sorted(f.name for f in dataclasses.fields(cls)))


def _refuse_constant(name: str) -> Any:
    raise ValueError("%s is no JSON" % name)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("%s is too large" % text)
    return number


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant)


def _decode(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin is Union:
        return _decode_union(arguments, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ContractError("%s: expected a list, got %s" % (where, _kind_of(value)))
        if arguments[0] is int and all(type(item) is int for item in value):
            return tuple(value)  # samples: thousands
        return tuple(_decode(arguments[0], item, "%s[%d]" % (where, i)) for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ContractError("%s: expected an object, got %s" % (where, _kind_of(value)))
        return {key: _decode(arguments[1], item, "%s.%s" % (where, key)) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(str(member.value) for member in kind)
            raise ContractError("%s: expected one of %s, got %r" % (where, known, value)) from None
    if kind is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise ContractError("%s: too large for a float" % where) from None
    if type(value) is not kind:
        raise ContractError("%s: expected %s, got %s" % (where, kind.__name__, _kind_of(value)))
    return value


def _decode_dataclass(cls: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ContractError("%s: expected an object, got %s" % (where, _kind_of(value)))
    fields = _fields(cls)
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise ContractError("%s: unknown key %s" % (where, ", ".join(unknown)))
    arguments = {}
    for name, (kind, is_given, is_required) in fields.items():
        if not is_given:
            continue
        if name in value:
            arguments[name] = _decode(kind, value[name], "%s.%s" % (where, name))
        elif is_required:
            raise ContractError("%s: key %s is missing" % (where, name))
    return cls(**arguments)


@functools.lru_cache(maxsize=None)
def _fields(cls: Any) -> Dict[str, Tuple[Any, bool, bool]]:
    """By name the type of a field, whether its value is given, and whether it must be."""
    hints = typing.get_type_hints(cls)
    missing = dataclasses.MISSING
    return {
        f.name: (hints[f.name], f.init, f.default is missing and f.default_factory is missing)
        for f in dataclasses.fields(cls)
    }


def _decode_union(members: Any, value: Any, where: str) -> Any:
    if type(value) in members:
        return value
    problems = []
    for member in members:
        if member is not type(None):
            try:
                return _decode(member, value, where)
            except ContractError as problem:
                problems.append(str(problem))
    raise ContractError("; ".join(problems))


def _kind_of(value: Any) -> str:
    return "null" if value is None else type(value).__name__
