"""Reads the YAML files that people write, and says exactly where one is wrong."""

import difflib
import json
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from orchestrator.errors import ConfigurationError

Location = tuple[int | str, ...]
Document = TypeVar("Document", bound="StrictModel")


class StrictModel(BaseModel):
    """Base of every document: values are frozen, unknown keys and converted types are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def load_yaml(path: Path, model: type[Document]) -> Document:
    """Reads `path` as `model`.

    Raises:
        ConfigurationError: the file cannot be read, is no YAML, or breaks the model; names file, line and key.
    """
    return validated(read_yaml(path), path, model)


def validated(tree: Any, path: Path, model: type[Document]) -> Document:
    """Takes what `read_yaml` read from `path` as `model`.

    Raises:
        ConfigurationError: it breaks the model; names file, line and key.
    """
    if not isinstance(tree, CommentedMap):
        raise ConfigurationError("expected keys and values at the top of the file", file=path, line=1)
    try:
        # Strict validation through JSON: YAML lists may become tuples and strings enums, "3" never becomes 3.
        return model.model_validate_json(json.dumps(tree, default=_refuse_exotic))
    except ValidationError as error:
        details = error.errors(include_url=False)
        # A misspelt key is also a missing one: the misspelling is what helps.
        first = min(details, key=lambda d: (d["type"] != "extra_forbidden", line_in(tree, d["loc"])))
        raise _explain(first, len(details), tree, path, model) from None
    except _ExoticValueError as error:
        place = _location_of(tree, error.value)
        raise ConfigurationError(
            f"a value of type {type(error.value).__name__} is not supported; put it in quotes",
            file=path,
            line=line_in(tree, place),
            key=".".join(map(str, place)),
        ) from None


def line_of_key(path: Path, location: Location) -> int:
    """The line of a key of a file that was already read without error, for errors found later."""
    return line_in(read_yaml(path), location)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that ends an error about an unknown name: the nearest known one and all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1)
    return (f"did you mean {near[0]}? " if near else "") + f"known: {', '.join(names)}"


class _ExoticValueError(TypeError):
    """YAML produced a value that JSON has no form for, such as a date."""

    def __init__(self, value: object) -> None:
        super().__init__(value)
        self.value = value


def read_yaml(path: Path) -> Any:
    """What a YAML file says, with the places where it says it.

    Raises:
        ConfigurationError: it cannot be read, or is no YAML.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            return YAML(typ="rt", pure=True).load(stream)
    except FileNotFoundError:
        raise ConfigurationError("no such file", file=path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot be read: {error}", file=path) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(error.problem or error.context).split())
        raise ConfigurationError(
            f"not valid YAML: {problem}", file=path, line=None if mark is None else mark.line + 1
        ) from None
    except YAMLError as error:
        raise ConfigurationError(f"not valid YAML: {' '.join(str(error).split())}", file=path) from None


def _refuse_exotic(value: object) -> object:
    raise _ExoticValueError(value)


def _location_of(tree: Any, value: object) -> Location:
    """Where a value stands in a document; it is there."""
    children = tree.items() if isinstance(tree, CommentedMap) else enumerate(tree if isinstance(tree, list) else ())
    for step, child in children:
        if child is value:
            return (step,)
        deeper = _location_of(child, value)
        if deeper:
            return (step, *deeper)
    return ()


def _explain(
    detail: ErrorDetails, count: int, tree: CommentedMap, path: Path, model: type[BaseModel]
) -> ConfigurationError:
    location = detail["loc"]
    known = _steps_in(tree, location)
    key = ".".join(str(step) for step in (location if detail["type"] == "missing" else known))
    if detail["type"] == "extra_forbidden":
        problem = f"unknown key; {did_you_mean(str(location[-1]), _keys_at(model, location[:-1]))}"
    elif detail["type"] == "missing":
        problem = "this key is missing; add it"
    elif detail["type"] == "value_error":
        problem = str(detail["ctx"]["error"]) if "ctx" in detail else detail["msg"]
    else:
        message = detail["msg"][0].lower() + detail["msg"][1:]
        problem = f"{message}, but it is {_shown(detail['input'])}"
    more = f" (and {count - 1} more)" if count > 1 else ""
    return ConfigurationError(problem + more, file=path, line=line_in(tree, location), key=key or None)


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


def line_in(tree: Any, location: Sequence[int | str]) -> int:
    """The line of a key in what `read_yaml` read; of the nearest key above it that is there."""
    line: int = getattr(getattr(tree, "lc", None), "line", 0)
    for step in _steps_in(tree, location):
        line = (tree.lc.key(step) if isinstance(tree, CommentedMap) else tree.lc.item(step))[0]
        tree = tree[step]
    return line + 1


def _keys_at(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """The keys that the model allows at a location."""
    kind: Any = model
    for step in location:
        members = [kind, *typing.get_args(kind)]
        models = [m for m in members if isinstance(m, type) and issubclass(m, BaseModel)]
        if isinstance(step, str) and models and step in models[0].model_fields:
            kind = models[0].model_fields[step].annotation
        elif typing.get_origin(kind) in (list, tuple, dict):
            kind = next((a for a in reversed(typing.get_args(kind)) if a is not Ellipsis), kind)
    members = [kind, *typing.get_args(kind)]
    found = [m for m in members if isinstance(m, type) and issubclass(m, BaseModel)]
    return list(found[0].model_fields) if found else []
