"""A function of ours called on a host: argument and answer travel as JSON, so that reading them runs nothing."""

import importlib
import inspect
import json
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from orchestrator.errors import InfrastructureError

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")


def encode_call(function: Callable[[Argument], Answer], argument: Argument) -> str:
    """The call as `perform` takes it.

    Args:
        function: of a module, with annotations: one argument and its answer.
        argument: what its annotation says, all of it JSON: frozen dataclasses, models, plain values.
    """
    kind, _ = _annotations(function)
    document = TypeAdapter(kind).dump_python(argument, mode="json")
    return json.dumps({"function": f"{function.__module__}:{function.__qualname__}", "argument": document})


def perform(call: str) -> str:
    """Runs what `encode_call` gave in this process, and returns what `decode_answer` takes."""
    document = json.loads(call)
    module, _, name = document["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    kind, answers = _annotations(function)
    argument = TypeAdapter(kind).validate_json(json.dumps(document["argument"]))
    try:
        answer = function(argument)
    except InfrastructureError as error:
        return json.dumps({"problem": str(error)})
    return json.dumps({"answer": TypeAdapter(answers).dump_python(answer, mode="json")})


def decode_answer(function: Callable[[Argument], Answer], text: str) -> Answer:
    """The answer of a function that ran elsewhere.

    Raises:
        InfrastructureError: what the function raised, or the text is no answer of it.
    """
    try:
        document = json.loads(text)
        if "problem" in document:
            raise InfrastructureError(str(document["problem"]))
        _, answers = _annotations(function)
        answer: Answer = TypeAdapter(answers).validate_json(json.dumps(document["answer"]))
    except (ValueError, TypeError, KeyError, ValidationError) as error:
        said = " ".join(str(error).split())[:300]
        raise InfrastructureError(f"what {function.__name__} answered there cannot be read: {said}") from error
    return answer


def _annotations(function: Callable[..., Any]) -> tuple[Any, Any]:
    """The kinds of the first argument and of the answer."""
    kinds = typing.get_type_hints(function)
    [name, *_] = inspect.signature(function).parameters
    return kinds[name], kinds["return"]
