"""Nested Arrow types from frozen dataclasses, and their values from JSON documents.

The dataclasses of `runners.system` are the one definition of a fingerprint. What is derived here follows them, so that
a field that is added there is a column for every reader.
"""

import dataclasses
import types
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from orchestrator.errors import StoreError

_SCALARS: dict[object, pa.DataType] = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), float: pa.float64()}
_UNITS = {
    "_bytes": "bytes",
    "_hz": "Hz",
    "_mhz": "MHz",
    "_mw": "mW",
    "_ns": "ns",
    "_s": "s",
    "_millicores": "millicores",
}


def struct_of(declared: type, *, without: Collection[str] = ()) -> pa.StructType:
    """The Arrow struct of a dataclass, nullable throughout; names that end in a unit have it in their metadata.

    Args:
        declared: the dataclass.
        without: fields that are left out.

    Raises:
        TypeError: a field has a type that has no counterpart here.
    """
    hints = get_type_hints(declared)
    return pa.struct(
        [
            pa.field(field.name, _arrow(hints[field.name]), metadata=_unit(field.name))
            for field in dataclasses.fields(declared)
            if field.name not in without
        ]
    )


def fitted(value: object, kind: pa.DataType, place: str) -> Any:
    """A JSON value as Arrow takes it for `kind`: what the type does not know is dropped, what is missing is null.

    Args:
        value: of a JSON document.
        kind: a type that `struct_of` gave, or a part of one.
        place: name of the value, for the error.

    Raises:
        StoreError: a value has another type than `kind` says.
    """
    if value is None:
        return None
    if pa.types.is_struct(kind):
        known = _mapping(value, kind, place)
        return {field.name: fitted(known.get(field.name), field.type, f"{place}.{field.name}") for field in kind}
    if pa.types.is_map(kind):
        pairs = _mapping(value, kind, place).items()
        return [(key, fitted(item, kind.item_type, f"{place}.{key}")) for key, item in sorted(pairs)]
    if pa.types.is_list(kind):
        if not isinstance(value, list | tuple):
            raise _unfit(value, kind, place)
        return [fitted(item, kind.value_type, f"{place}[{number}]") for number, item in enumerate(value)]
    if not _is_scalar(value, kind):
        raise _unfit(value, kind, place)
    return value


def _arrow(declared: Any) -> pa.DataType:
    if declared in _SCALARS:
        return _SCALARS[declared]
    if dataclasses.is_dataclass(declared) and isinstance(declared, type):
        return struct_of(declared)
    if isinstance(declared, type) and issubclass(declared, str) and issubclass(declared, Enum):
        return _SCALARS[str]
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        return _arrow(next(argument for argument in arguments if argument is not type(None)))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return pa.list_(pa.field("element", _arrow(arguments[0])))
    if origin is dict and arguments[0] is str:
        return pa.map_(pa.string(), _arrow(arguments[1]))
    raise TypeError(
        f"{declared} has no Arrow type; use str, int, bool, float, an enum of texts, a dataclass, "
        "or tuples and dicts of them"
    )


def _unit(name: str) -> dict[str, str] | None:
    return next(({"unit": unit} for suffix, unit in _UNITS.items() if name.endswith(suffix)), None)


def _mapping(value: object, kind: pa.DataType, place: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise _unfit(value, kind, place)
    return value


def _is_scalar(value: object, kind: pa.DataType) -> bool:
    if isinstance(value, bool) or pa.types.is_boolean(kind):
        return isinstance(value, bool) and pa.types.is_boolean(kind)
    if pa.types.is_string(kind):
        return isinstance(value, str)
    return isinstance(value, int) or (isinstance(value, float) and pa.types.is_floating(kind))


def _unfit(value: object, kind: pa.DataType, place: str) -> StoreError:
    expected = "an object" if pa.types.is_struct(kind) or pa.types.is_map(kind) else f"a value of type {kind}"
    return StoreError(f"{place} is {value!r}, where {expected} was expected")
