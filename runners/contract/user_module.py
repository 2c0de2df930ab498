"""A model of somebody's own: one Python file, with a function that builds it. Its text travels in the specification.

    def build(hidden_size=256):
        model = torch.nn.Linear(hidden_size, 10)
        return model, lambda generator: torch.randn(1, hidden_size, generator=generator)

The file is read here and not run: what it says wrong is known before anything is built.
"""

import ast
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Iterator, List, Optional, Tuple, Union

MODULE_OPTION = "module"
"""The option of such a workload that names it, `FILE.py:FUNCTION@DIGEST`. The others are the function's arguments."""
MAX_MODULE_BYTES = 1 << 16
ATTENTION = "attention"
"""A function with this parameter is told which attention a backend asks for, `sdpa` or `eager`."""
SHRUNK = "shrunk"
"""A function with this parameter makes the twin for the dispatch floor when it is true."""
TWIN_BATCH = "twin_batch"
"""The default of a parameter of this name, a number, is the twin's batch."""

_DIGITS = 16
_PAIR = 2
_RETURN = "end it with `return model, example`, where example(generator) draws the inputs of one example"

_Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]


class ModuleError(ValueError):
    """What is wrong with the file, with the number of the line where that is known."""

    def __init__(self, problem: str, line: Optional[int] = None) -> None:
        super().__init__(problem)
        self.line = line


@dataclass(frozen=True)
class Signature:
    """What the function takes by name, and what its file imports."""

    parameters: Tuple[str, ...]
    required: Tuple[str, ...]
    takes_any: bool
    imports: Tuple[str, ...]
    """Names of packages, sorted."""
    twin_batch: Optional[int]
    """Null without a parameter that says so."""

    def problem(self, given: Tuple[str, ...]) -> Optional[str]:
        """Why the function cannot be called with these arguments, in a few words; None if it can."""
        unknown = [name for name in given if name not in self.parameters and not self.takes_any]
        missing = [name for name in self.required if name not in given and name not in (ATTENTION, SHRUNK)]
        if unknown:
            return "takes no %s; it takes %s" % (unknown[0], ", ".join(self.parameters) or "nothing")
        return "needs %s; give it under options" % missing[0] if missing else None


def module_option(file: str, function: str, source: str) -> str:
    """How a workload's options name a function of a file with this text."""
    return "%s:%s@%s" % (file, function, hashlib.sha256(source.encode("utf-8")).hexdigest()[:_DIGITS])


def module_named(option: str) -> Tuple[str, str]:
    """The names of the file and of the function in what `module_option` made."""
    file, _, rest = option.partition(":")
    return file, rest.partition("@")[0]


@lru_cache(maxsize=32)
def signature_of(source: str, function: str) -> Signature:
    """What the text of a file says of one of its functions.

    Raises:
        ModuleError: it is no Python, imports its neighbours, or has no such function that returns a pair.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise ModuleError("no Python that can be read: %s" % getattr(error, "msg", error), line) from None
    defined = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    found = [node for node in defined if node.name == function]
    if not found:
        known = ", ".join(node.name for node in defined) or "none"
        raise ModuleError("no function %s at its top level; it has: %s" % (function, known))
    _check_returns(found[-1])
    taken = found[-1].args
    named = [*taken.args, *taken.kwonlyargs]
    defaults = dict(zip(reversed([arg.arg for arg in taken.args]), reversed(taken.defaults)))
    given = zip(taken.kwonlyargs, taken.kw_defaults)
    defaults.update({arg.arg: value for arg, value in given if value is not None})
    return Signature(
        parameters=tuple(arg.arg for arg in named),
        required=tuple(arg.arg for arg in [*taken.posonlyargs, *named] if arg.arg not in defaults),
        takes_any=taken.kwarg is not None,
        imports=tuple(sorted(set(_imported(tree)))),
        twin_batch=_twin_batch(defaults.get(TWIN_BATCH)),
    )


def _twin_batch(default: Optional[ast.expr]) -> Optional[int]:
    if default is None:
        return None
    value = default.value if isinstance(default, ast.Constant) else None
    if type(value) is not int or value < 1:
        raise ModuleError("the default of %s is the twin's batch, a number from 1" % TWIN_BATCH, default.lineno)
    return value


def _check_returns(function: _Function) -> None:
    if isinstance(function, ast.AsyncFunctionDef):
        raise ModuleError("%s is async; make it a plain function" % function.name, function.lineno)
    returns = list(_returns(function.body))
    if not returns:
        raise ModuleError("%s returns nothing; %s" % (function.name, _RETURN), function.lineno)
    for statement in returns:
        if not isinstance(statement.value, ast.Tuple) or len(statement.value.elts) != _PAIR:
            raise ModuleError("%s does not return a pair; %s" % (function.name, _RETURN), statement.lineno)


def _returns(body: List[ast.stmt]) -> Iterator[ast.Return]:
    """Those of a function itself, and not of functions within it."""
    waiting: List[ast.AST] = list(body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting = [*ast.iter_child_nodes(node), *waiting]


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            if node.level or node.module is None:
                raise ModuleError("it imports a file beside it, but travels alone; put all into one file", node.lineno)
            yield node.module.partition(".")[0]
