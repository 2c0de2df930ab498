"""A function of ours called on a host: argument and answer travel as JSON, so that reading them runs nothing.

Also as one program, for an interpreter in which nothing of ours is installed: the same code that runs here and in the
containers of trials, and it writes nothing to a disk.
"""

import importlib
import importlib.util
import inspect
import json
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orchestrator
import runners
from orchestrator.boundary import adapter_of, load_json
from orchestrator.errors import ForeignDataError, InfrastructureError, one_line

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")

MARK = "taxmeter-answer:"
"""Begins the line with the answer: a login script may have printed others."""

# Of the runners what needs the standard library alone. The driver's library is asked through one file of Python, so
# that a host needs no package for its GPUs.
_PARTS = ("contract", "statistics", "system")
_NVML = "pynvml"

_LOADER = '''
import importlib.abc, importlib.util, json, sys
sys.dont_write_bytecode = True
SOURCES = json.loads(%(sources)r)


class Sent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports what was sent with this program."""

    def find_spec(self, name, path=None, target=None):
        place = name.replace(".", "/")
        file = next((name for name in (place + "/__init__.py", place + ".py") if name in SOURCES), None)
        if file is None:
            return None
        spec = importlib.util.spec_from_loader(name, self, origin=file, is_package=file.endswith("/__init__.py"))
        spec.has_location = True  # some look at their __file__
        return spec

    def exec_module(self, module):
        origin = module.__spec__.origin
        exec(compile(SOURCES[origin], origin, "exec"), module.__dict__)


sys.meta_path.insert(0, Sent())
%(perform)s
print("\\n" + %(mark)r + perform(%(call)r))
'''

# The same as `perform`, where there is no pydantic.
_PLAIN = """
import importlib, inspect, typing
from runners.contract import decode, encode

def perform(call):
    document = json.loads(call)
    module, _, name = document["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    kind = typing.get_type_hints(function)[next(iter(inspect.signature(function).parameters))]
    return json.dumps({"answer": encode(function(decode(kind, document["argument"], "argument")))})
"""
_FULL = "from orchestrator.hosts.calls import perform"


def encode_call(function: Callable[[Argument], Answer], argument: Argument) -> str:
    """The call as `perform` takes it.

    Args:
        function: of a module, with annotations: one argument and its answer.
        argument: what its annotation says, all of it JSON: frozen dataclasses, models, plain values.
    """
    kind, _ = _annotations(function)
    document = adapter_of(kind).dump_python(argument, mode="json")
    return json.dumps({"function": f"{function.__module__}:{function.__qualname__}", "argument": document})


def perform(call: str) -> str:
    """Runs what `encode_call` gave in this process, and returns what `decode_answer` takes."""
    document = json.loads(call)
    module, _, name = document["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    kind, answers = _annotations(function)
    argument = adapter_of(kind).validate_json(json.dumps(document["argument"]))
    try:
        answer = function(argument)
    except InfrastructureError as error:
        return json.dumps({"problem": str(error)})
    return json.dumps({"answer": adapter_of(answers).dump_python(answer, mode="json")})


def decode_answer(function: Callable[[Argument], Answer], text: str) -> Answer:
    """The answer of a function that ran elsewhere.

    Raises:
        InfrastructureError: what the function raised, or the text is no answer of it.
    """
    try:
        document = load_json(text, "the answer")
        if "problem" in document:
            raise InfrastructureError(
                one_line(str(document["problem"])) or f"{function.__name__} failed without a reason"
            )
        _, answers = _annotations(function)
        answer: Answer = adapter_of(answers).validate_json(json.dumps(document["answer"]))
    except (ForeignDataError, ValueError, TypeError, KeyError) as error:
        said = one_line(str(error), 300)
        raise InfrastructureError(f"what {function.__name__} answered there cannot be read: {said}") from error
    return answer


@dataclass(frozen=True)
class Program:
    """What runs a call."""

    text: str
    """For `python -`."""
    oldest_python: tuple[int, int]
    needs_packages: bool
    """Whether it imports those of requirements/base.lock; else the standard library is enough."""


def call_program(function: Callable[[Argument], Answer], argument: Argument) -> Program:
    """The program that calls a function of `runners.system` or of ours, and prints its answer after `MARK`."""
    needs_packages = function.__module__.partition(".")[0] != runners.__name__
    values = {
        "sources": json.dumps(_sources(needs_packages)),
        "perform": _FULL if needs_packages else _PLAIN,
        "call": encode_call(function, argument),
        "mark": MARK,
    }
    return Program(_LOADER % values, (3, 11) if needs_packages else (3, 8), needs_packages)


def answer_of_program(function: Callable[..., Answer], printed: str) -> Answer | None:
    """What a program of `call_program` answers; null if it printed no answer."""
    line = next((line for line in printed.splitlines() if line.startswith(MARK)), None)
    return None if line is None else decode_answer(function, line.removeprefix(MARK))


def _annotations(function: Callable[..., Any]) -> tuple[Any, Any]:
    """The kinds of the first argument and of the answer."""
    kinds = typing.get_type_hints(function)
    [name, *_] = inspect.signature(function).parameters
    return kinds[name], kinds["return"]


def _sources(with_orchestrator: bool) -> dict[str, str]:
    top, ours = Path(runners.__path__[0]), Path(orchestrator.__path__[0])
    files = [top / "__init__.py", *(path for part in _PARTS for path in (top / part).rglob("*.py"))]
    sources = {str(path.relative_to(top.parent)): path.read_text(encoding="utf-8") for path in sorted(files)}
    if with_orchestrator:
        files = sorted(ours.rglob("*.py"))
        sources |= {str(path.relative_to(ours.parent)): path.read_text(encoding="utf-8") for path in files}
    nvml = importlib.util.find_spec(_NVML)
    if nvml is not None and nvml.origin is not None:
        sources[f"{_NVML}.py"] = Path(nvml.origin).read_text(encoding="utf-8")
    return sources
