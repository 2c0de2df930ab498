"""Nested columns: the fingerprint as Arrow has it."""

import dataclasses
from typing import Any, Optional

import pyarrow as pa
import pytest

from orchestrator.errors import StoreError
from orchestrator.store import SYSTEMS, system_row
from orchestrator.store.schema.nested import fitted, struct_of
from orchestrator.store.schema.tables import with_nested
from runners.contract import encode
from runners.system import Fingerprint, collect

DETAILS = SYSTEMS.field("details").type


@dataclasses.dataclass(frozen=True)
class Cache:
    level: int
    size_bytes: Optional[int]  # noqa: UP045 - as the runners write it, for Python 3.8


@dataclasses.dataclass(frozen=True)
class Machine:
    name: str
    caches: tuple[Cache, ...]
    labels: dict[str, str]
    max_frequency_hz: int | None
    secret: Cache | None


MACHINE = struct_of(Machine, without=("secret",))


def paths(kind: pa.DataType, place: str = "") -> dict[str, pa.Field]:
    """Every field below a type, by its path."""
    found = {}
    for field in kind if pa.types.is_struct(kind) else ():
        inner = field.type.value_type if pa.types.is_list(field.type) else field.type
        found |= {f"{place}{field.name}": field, **paths(inner, f"{place}{field.name}.")}
    return found


def test_a_dataclass_becomes_a_struct() -> None:
    assert [field.name for field in MACHINE] == ["name", "caches", "labels", "max_frequency_hz"]
    assert MACHINE.field("caches").type.value_type == pa.struct([("level", pa.int64()), ("size_bytes", pa.int64())])
    assert MACHINE.field("labels").type == pa.map_(pa.string(), pa.string())
    assert all(field.nullable for field in MACHINE)


def test_the_units_of_fields_follow_from_their_names() -> None:
    fields = paths(MACHINE)
    assert fields["caches.size_bytes"].metadata == {b"unit": b"bytes"}
    assert fields["max_frequency_hz"].metadata == {b"unit": b"Hz"}
    assert fields["caches"].metadata is None
    details = paths(DETAILS)
    assert details["gpus.power_limit_mw"].metadata == {b"unit": b"mW"}
    assert details["gpus.sm_clock_max_mhz"].metadata == {b"unit": b"MHz"}
    assert details["limits.cpu_millicores"].metadata == {b"unit": b"millicores"}


def test_a_field_without_a_counterpart_in_arrow_is_refused() -> None:
    other = dataclasses.make_dataclass("Other", [("value", complex)])
    with pytest.raises(TypeError, match="complex.* has no Arrow type"):
        struct_of(other)


def test_a_whole_fingerprint_comes_back_as_it_was_but_for_what_is_private() -> None:
    fingerprint = encode(collect())
    row = system_row("s1", "h1", {}, fingerprint)
    back = pa.RecordBatch.from_pylist([row], SYSTEMS).column("details").to_pylist(maps_as_pydicts="strict")[0]
    assert back == {name: value for name, value in fingerprint.items() if name != "private"}
    assert {field.name for field in dataclasses.fields(Fingerprint)} - set(back) == {"private"}


def test_what_the_type_does_not_know_is_dropped_and_what_is_missing_is_null() -> None:
    value = {"name": "m", "caches": [{"level": 1, "colour": "red"}], "fan": 3}
    assert fitted(value, MACHINE, "m") == {
        "name": "m",
        "caches": [{"level": 1, "size_bytes": None}],
        "labels": None,
        "max_frequency_hz": None,
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"name": 3}, "m.name is 3, where a value of type string was expected"),
        ({"caches": [{"level": 1}, {"level": True}]}, r"m.caches\[1\].level is True"),
        ({"caches": {"level": 1}}, "m.caches is {'level': 1}, where a value of type list"),
        ({"labels": ["a"]}, r"m.labels is \['a'\], where an object was expected"),
        ({"max_frequency_hz": 1.5}, "m.max_frequency_hz is 1.5, where a value of type int64"),
        ("text", "m is 'text', where an object was expected"),
    ],
)
def test_a_value_of_another_type_is_named(value: Any, expected: str) -> None:
    with pytest.raises(StoreError, match=expected):
        fitted(value, MACHINE, "m")


def test_a_text_that_does_not_fit_is_named_with_its_system() -> None:
    row = system_row("s1", "h1", {}, {}) | {"fingerprint": '{"cpu": {"cores": "two"}}', "details": None}
    with pytest.raises(StoreError, match="system s1: fingerprint.cpu.cores is 'two'"):
        with_nested("systems", pa.Table.from_pylist([row], SYSTEMS))
