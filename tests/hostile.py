"""What strangers write: documents derived from schemas, and what becomes of them by spoilt values and bytes."""

import copy
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st
from pydantic import TypeAdapter

Files = dict[str, bytes | str]
"""By relative path the content of a file, or where a link leads."""

# What no `json.dumps` writes stands for itself until the text is there.
_LONG: Final = {
    "@deep lists@": "[" * 100_000 + "]" * 100_000,
    "@deep objects@": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "@deeper than allowed@": "[" * 70 + "]" * 70,
    "@digits@": "9" * 5000,
    "@exponent@": "1e999",
    "@long@": '"' + "x" * 2**21 + '"',
    "@wide@": "[" + "0," * 200_000 + "0]",
}
_SPOILT: Final = [
    *(None, True, False, 0, 1, -1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 10**400),
    *(0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", " ", "\0", "\x1b[2J", "\u202e", "\u2028", "\ud800", "a\nb", "a\r\nb", "..", "../../x", "/etc/passwd", "-rf"),
    *("x" * 300, "x" * 5000, "é" * 300, "1", "1e5", "null", "%s%n", "{}", "'; DROP TABLE trials; --", "2099-01-01"),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": {"c": 1}}}, ["x"] * 100, {"\n": 1}, {"\ud800": 1}, {"x" * 5000: 1}),
    *_LONG,
]
_TOKENS: Final = [
    *(b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\n", b"\r", b"\t", b"\x1b]0;"),
    *(b"{", b"}", b"[", b"]", b'"', b"'", b"\\", b",", b": ", b"- ", b"? ", b"#", b"&a ", b"*a", b"<<: *a"),
    *(b"!!python/object:os.system ", b"|\n", b">-\n", b"---\n", b"...\n", b"%YAML 9.9\n", b"!!binary ", b"!!set "),
    *(b"2001-01-01", b"0x10", b".inf", b"1_000", b"=", b"==", b" \\\n", b"--hash=sha256:", b"; python_version<'3'"),
    *(b"[extra]", b"@ file:///x", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"PAR1", b"ARROW1"),
    *(b"x" * 5000, b"9" * 5000, b"[" * 5000, b"{a: " * 5000),
]

any_json = st.recursive(
    st.sampled_from(_SPOILT) | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def schema_of(kind: Any) -> Mapping[str, Any]:
    """The JSON schema of a model, a dataclass or a type."""
    return TypeAdapter(kind).json_schema()


def valid(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Documents that a JSON schema of pydantic allows; what it cannot say, as that one value names another, is wrong."""
    definitions = schema.get("$defs", {})
    known: dict[str, st.SearchStrategy[Any]] = {}

    def of(part: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            if name not in known:
                known[name] = st.deferred(lambda: of(definitions[name]))
            return known[name]
        if "const" in part or "enum" in part:
            return st.sampled_from(part.get("enum", [part.get("const")]))
        for union in ("anyOf", "oneOf"):
            if union in part:
                return st.one_of([of(member) for member in part[union]])
        return _OF_KIND.get(part.get("type", ""), lambda _part, _of: any_json)(part, of)

    return of(schema)


def _objects(part: Mapping[str, Any], of: Any) -> st.SearchStrategy[Any]:
    required = set(part.get("required", ()))
    values = {name: of(value) for name, value in part.get("properties", {}).items()}
    named = st.fixed_dictionaries(
        {name: value for name, value in values.items() if name in required},
        optional={name: value for name, value in values.items() if name not in required},
    )
    others = {} if (said := part.get("additionalProperties")) is True else said
    if not isinstance(others, dict):
        return named
    names = of({"type": "string", **part.get("propertyNames", {})})
    free = st.dictionaries(names, of(others), min_size=part.get("minProperties", 0), max_size=3)
    return st.tuples(free, named).map(lambda pair: {**pair[0], **pair[1]})


def _lists(part: Mapping[str, Any], of: Any) -> st.SearchStrategy[Any]:
    if "prefixItems" in part:
        return st.tuples(*map(of, part["prefixItems"])).map(list)
    least = part.get("minItems", 0)
    return st.lists(of(part.get("items", {})), min_size=least, max_size=part.get("maxItems", least + 2))


def _texts(part: Mapping[str, Any], _of: Any) -> st.SearchStrategy[Any]:
    return st.from_regex(part["pattern"]) if "pattern" in part else st.text(max_size=part.get("maxLength", 20))


def _integers(part: Mapping[str, Any], _of: Any) -> st.SearchStrategy[Any]:
    least = part.get("minimum", part.get("exclusiveMinimum", 0))
    return st.integers(least + ("exclusiveMinimum" in part), part.get("maximum", least + 100))


_OF_KIND: Final[dict[str, Any]] = {
    "object": _objects,
    "array": _lists,
    "string": _texts,
    "integer": _integers,
    "number": lambda _part, _of: st.floats(0, 1e9),
    "boolean": lambda _part, _of: st.booleans(),
    "null": lambda _part, _of: st.none(),
}


def cells(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of an Arrow type, the extreme ones among them; null stands in all types."""
    if pa.types.is_struct(kind):
        inner: Any = st.fixed_dictionaries({field.name: cells(field.type) for field in kind})
    elif pa.types.is_map(kind):
        inner = st.lists(st.tuples(st.text(max_size=5), cells(kind.item_type)), max_size=2)
    elif pa.types.is_list(kind):
        inner = st.lists(cells(kind.value_type), max_size=3)
    elif pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        inner = st.sampled_from([0, 1, -1, most - 1, -most]) | st.integers(-most, most - 1)
    elif pa.types.is_floating(kind):
        inner = st.floats()
    elif pa.types.is_boolean(kind):
        inner = st.booleans()
    elif pa.types.is_timestamp(kind):
        far = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)]
        inner = st.sampled_from([*far, -(2**63) + 1, 2**63 - 1]) | st.datetimes(timezones=st.just(UTC))
    else:
        plain = [value for value in _SPOILT if isinstance(value, str) and "\ud800" not in value]
        inner = st.sampled_from([*plain, "[" * 3000 + "]" * 3000, '{"a":1e999}']) | st.text()
    return st.none() | inner


def rows(usual: Mapping[str, Any], schema: pa.Schema) -> st.SearchStrategy[dict[str, Any]]:
    """Rows of which some columns say what no taxmeter writes, be it of the column's type or of another one."""
    spoilt = [st.tuples(st.just(field.name), cells(field.type) | any_json) for field in schema]
    other = st.tuples(st.text(), any_json)
    return st.lists(st.one_of(*spoilt, other), max_size=3).map(lambda changes: {**usual, **dict(changes)})


@st.composite
def mutated(draw: st.DrawFn, documents: st.SearchStrategy[Any]) -> Any:
    """A document with up to three values that are others, gone, doubled or additional."""
    top = [copy.deepcopy(draw(documents))]
    for _ in range(draw(st.integers(0, 3))):
        places = list(_places(top))
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        way = draw(st.sampled_from(("other", "gone", "more", "swapped")))
        if way == "other":
            holder[key] = copy.deepcopy(draw(any_json))
        elif way == "gone" and holder is not top:
            del holder[key]
        elif way == "more":
            inner = holder[key]
            if isinstance(inner, dict):
                inner[draw(st.text(max_size=8))] = copy.deepcopy(draw(any_json))
            elif isinstance(inner, list):
                inner += copy.deepcopy([draw(any_json), *inner])
        elif way == "swapped":
            other, name = places[draw(st.integers(0, len(places) - 1))]
            holder[key] = copy.deepcopy(other[name]) if other is not top else None
    return top[0]


def _places(tree: Any) -> Any:
    for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


def text_of(tree: Any, *, is_ascii: bool = True) -> bytes:
    """A document as JSON, whatever it holds: numbers and depths that no writer of ours would write."""
    text = json.dumps(tree, ensure_ascii=is_ascii, default=str)
    for token, long in _LONG.items():
        if token in text:
            text = text.replace(f'"{token}"', long)
    return text.encode("utf-8", "surrogatepass")


def documents(*seeds: Any, schema: Mapping[str, Any] | None = None) -> st.SearchStrategy[bytes]:
    """Texts of JSON: documents that are valid or nearly so, and damaged ones.

    Args:
        seeds: documents that are valid.
        schema: of all that are.
    """
    known = [*([st.sampled_from(seeds)] if seeds else []), *([] if schema is None else [valid(schema)])]
    trees = mutated(st.one_of(known))
    texts = st.builds(lambda tree, is_ascii: text_of(tree, is_ascii=is_ascii), trees, st.booleans())
    return texts | texts.flatmap(damaged)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes that were cut off, flipped, doubled, lost or put in between, once or a few times."""
    for _ in range(draw(st.integers(1, 4))):
        first, last = sorted(draw(st.integers(0, len(data))) for _ in range(2))
        way = draw(st.sampled_from(("cut", "flip", "lose", "double", "token", "zero", "noise")))
        part = data[first : min(last, first + 4096)]
        if way == "cut":
            data = data[:first]
        elif way == "flip" and part:
            data = data[:first] + bytes([part[0] ^ (1 << draw(st.integers(0, 7)))]) + data[first + 1 :]
        elif way == "lose":
            data = data[:first] + data[first + len(part) :]
        elif way == "double":
            data = data[:first] + part + data[first:]
        elif way == "token":
            data = data[:first] + draw(st.sampled_from(_TOKENS)) + data[first:]
        elif way == "zero":
            data = data[:first] + bytes(len(part)) + data[first + len(part) :]
        elif way == "noise":
            data = data[:first] + draw(st.binary(max_size=16)) + data[first + len(part) :]
    return data
