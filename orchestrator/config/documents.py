"""Reads the YAML files that people write, once, and says exactly where one is wrong."""

import json
import math
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from orchestrator.boundary import read_foreign_file
from orchestrator.errors import ConfigurationError, ForeignDataError, did_you_mean, one_line

Location = tuple[int | str, ...]
AnyDocument = TypeVar("AnyDocument", bound="Document")

# A document may be somebody else's, out of a store; a few aliases of aliases are gigabytes of values.
MAX_BYTES: Final = 2**18
MAX_DEPTH: Final = 20
MAX_NODES: Final = 20_000
MAX_TEXT: Final = 4096
"""Characters of one value: some of the patterns that values have to match take the square of it in time."""

_INT64: Final = 2**63

_UNKNOWN_KEY: Final = ("extra_forbidden", "unexpected_keyword_argument")
_TOO_SHORT: Final = "too_short"
_PLAIN: Final = (dict, list, str, int, float, type(None))


class StrictModel(BaseModel):
    """Base of every part of a document: values are frozen, unknown keys and converted types are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SettingError(ValueError):
    """A validator's error about a value below the one that it validates, such as a key of a mapping."""

    def __init__(self, problem: str, *location: int | str) -> None:
        super().__init__(problem)
        self.location = location


@dataclass(frozen=True)
class Source:
    """A YAML file as it was read once. Errors that are found later still name its lines."""

    path: Path | None = None
    """Null for a value that no file says."""
    text: str = field(default="", repr=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a file.

        Raises:
            ConfigurationError: it is missing, cannot be read, or is too long to be one of ours.
        """
        try:
            content = read_foreign_file(path, MAX_BYTES, follows_links=True)
            return cls(path, content.decode("utf-8-sig"))
        except FileNotFoundError:
            fix = "correct the path, or run this in the directory that it is seen from"
            raise ConfigurationError(f"no such file; {fix}", file=path) from None
        except (ForeignDataError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"cannot be read: {error}", file=path) from None

    @property
    def tree(self) -> Any:
        """What the file says, with the places where it says it.

        Raises:
            ConfigurationError: it is no YAML, too deep, or has too many values.
        """
        return _parsed(self)

    def line(self, *location: int | str) -> int:
        """The line of a key; of the nearest key above it that is there."""
        return _line_in(self.tree, location)

    def error(self, problem: str, *location: int | str) -> ConfigurationError:
        """An error of the file: `path:line: key: problem`, as far as these are known.

        Args:
            problem: what is wrong, and how to mend it.
            location: the key that is to blame, step by step, such as `"hosts", "a100-01", "gpus"`; without one the
                file as a whole.
        """
        is_written = self.path is not None and _steps_in(self.tree, location)
        line = self.line(*location) if is_written else None
        return ConfigurationError(
            one_line(problem), file=self.path, line=line, key=".".join(map(str, location)) or None
        )


class Document(StrictModel):
    """Base of what a whole file says, with the file that it was read from."""

    _file: Source = PrivateAttr(default_factory=Source)

    @property
    def file(self) -> Source:
        """The file, with its text; without a path if the value was made in another way."""
        return self._file

    def error(self, problem: str, *location: int | str) -> ConfigurationError:
        """An error of this file; see `Source.error`."""
        return self._file.error(problem, *location)


def load_yaml(
    source: Path | Source, model: type[AnyDocument], context: Mapping[str, object] | None = None
) -> AnyDocument:
    """Reads a file, or what was read from one, as `model`, whose validators may ask for `context`.

    Raises:
        ConfigurationError: the file cannot be read, is no YAML, or breaks the model; names file, line and key.
    """
    if isinstance(source, Path):
        source = Source.read(source)
    tree = source.tree
    if not isinstance(tree, CommentedMap):
        raise ConfigurationError("expected keys and values at the top of the file", file=source.path, line=1)
    try:
        # Strict validation through JSON: YAML lists may become tuples and strings enums, "3" never becomes 3.
        document = model.model_validate_json(json.dumps(tree), context=context)
    except ValidationError as error:
        details = error.errors(include_url=False)
        # A list whose parts are all wrong is too short as well: what is wrong with them helps.
        details = [detail for detail in details if detail["type"] != _TOO_SHORT] or details
        # A misspelt key is also a missing one: the misspelling is what helps.
        first = min(details, key=lambda d: (d["type"] not in _UNKNOWN_KEY, source.line(*_place_of(d))))
        raise _explain(first, len(details), source, model) from None
    document._file = source
    return document


def nodes(tree: Any, location: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Every value of a document with where it stands, from the top down; what an alias repeats is repeated."""
    yield location, tree
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, child in children:
        yield from nodes(child, (*location, step))


class _LimitError(Exception):
    """A document has more in it than one of ours."""


class _Composer(Composer):
    """Ends where there is more than a document of ours has: to read on takes seconds, and a level of Python each."""

    _composed = _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.warn_double_anchors = False
        self._composed, self._depth = self._composed + 1, self._depth + 1
        if self._depth > MAX_DEPTH + 1:
            raise _LimitError(f"nested more than {MAX_DEPTH} deep")
        if self._composed > MAX_NODES:
            raise _LimitError(f"more than {MAX_NODES} values")
        event = self.parser.peek_event()
        if getattr(event, "ctag", None) is not None:
            raise _LimitError(
                f"line {event.start_mark.line + 1}: a tag such as {one_line(str(event.ctag), 100)} is not supported"
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


@lru_cache(maxsize=8)
def _parsed(source: Source) -> Any:
    try:
        yaml = YAML(typ="rt", pure=True)
        yaml.Composer = _Composer
        tree = yaml.load(source.text)
    except _LimitError as error:
        raise ConfigurationError(str(error), file=source.path) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = one_line(str(error.problem or error.context), 300)
        line = None if mark is None else mark.line + 1
        raise ConfigurationError(f"not valid YAML: {problem}", file=source.path, line=line) from None
    except (YAMLError, TypeError, ValueError) as error:  # also a mapping as a key, an integer of 5,000 digits
        raise ConfigurationError(f"not valid YAML: {one_line(str(error), 300)}", file=source.path) from None
    for number, (location, value) in enumerate(nodes(tree)):
        if len(location) > MAX_DEPTH or number > MAX_NODES:
            limit = f"nested more than {MAX_DEPTH} deep" if number <= MAX_NODES else f"more than {MAX_NODES} values"
            raise ConfigurationError(f"{limit}, aliases followed", file=source.path)
        problem = _problem(location[-1] if location else "") or _problem(value)
        if problem:
            line, key = _line_in(tree, location), ".".join(map(str, location))[:MAX_TEXT]
            raise ConfigurationError(problem, file=source.path, line=line, key=key)
    return tree


def _problem(value: object) -> str:
    """Why a key or a value is nothing that a document may hold; empty if it may."""
    if not isinstance(value, _PLAIN):
        return f"a value of type {type(value).__name__} is not supported; put it in quotes"
    if isinstance(value, str) and (len(value) > MAX_TEXT or not _can_be_encoded(value)):
        return f"longer than {MAX_TEXT} characters" if len(value) > MAX_TEXT else "half of a surrogate pair is no text"
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        return "an integer beyond 64 bits; put it in quotes"
    if isinstance(value, float) and not math.isfinite(value):
        return "expected a finite number"
    return ""


def _can_be_encoded(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _place_of(detail: ErrorDetails) -> Location:
    return (*detail["loc"], *getattr(detail.get("ctx", {}).get("error"), "location", ()))


def _explain(detail: ErrorDetails, count: int, source: Source, model: type[BaseModel]) -> ConfigurationError:
    location = _place_of(detail)
    known = _steps_in(source.tree, location)
    key = ".".join(str(step) for step in (location if detail["type"] == "missing" else known))
    if detail["type"] in _UNKNOWN_KEY:
        problem = f"unknown key; {did_you_mean(str(location[-1]), _keys_at(model, location[:-1]))}"
    elif detail["type"] == "missing":
        problem = "this key is missing; add it"
    elif detail["type"] == "value_error":
        problem = str(detail["ctx"]["error"]) if "ctx" in detail else detail["msg"]
    else:
        message = detail["msg"][0].lower() + detail["msg"][1:]
        problem = f"{message}, but it is {_shown(detail['input'])}"
    more = f" (and {count - 1} more)" if count > 1 else ""
    return ConfigurationError(one_line(problem) + more, file=source.path, line=source.line(*location), key=key or None)


def _shown(given: object) -> str:
    scalar = given is None or isinstance(given, str | int | float | bool)
    return json.dumps(given) if scalar else {"dict": "a mapping", "list": "a list"}[type(given).__name__]


def _steps_in(tree: Any, location: Sequence[int | str]) -> list[int | str]:
    """The part of a location that stands in the file; a missing key or the name of a union's member ends it."""
    steps: list[int | str] = []
    for step in location:
        in_mapping = isinstance(tree, CommentedMap) and step in tree
        in_list = isinstance(tree, CommentedSeq) and isinstance(step, int) and step < len(tree)
        if not in_mapping and not in_list:
            break
        steps.append(step)
        tree = tree[step]
    return steps


def _line_in(tree: Any, location: Sequence[int | str]) -> int:
    """The line of a key; of the nearest key above it that is there."""
    line: int = getattr(getattr(tree, "lc", None), "line", 0)
    for step in _steps_in(tree, location):
        line = (tree.lc.key(step) if isinstance(tree, CommentedMap) else tree.lc.item(step))[0]
        tree = tree[step]
    return line + 1


def _keys_at(kind: Any, location: Sequence[int | str]) -> list[str]:
    """The keys that a model or a class of the contract allows at a location."""
    for step in location:
        keys = _keys_of(kind)
        if step in keys:
            kind = keys[str(step)]
        elif typing.get_origin(kind) in (list, tuple, dict):
            kind = next((argument for argument in reversed(typing.get_args(kind)) if argument is not Ellipsis), kind)
    return list(_keys_of(kind))


def _keys_of(kind: Any) -> dict[str, Any]:
    """The keys of the first member of a type that has keys, with their types."""
    for member in (kind, *typing.get_args(kind)):
        if isinstance(member, type) and issubclass(member, BaseModel):
            return {name: key.annotation for name, key in member.model_fields.items()}
        if isinstance(member, type) and is_dataclass(member):
            return typing.get_type_hints(member)
    return {}
