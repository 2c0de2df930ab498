"""A model that comes with its own file, for workloads outside of the catalogue."""

import linecache
import sys
import traceback
import types
from dataclasses import replace
from functools import lru_cache
from typing import Any, Callable, Dict, List, Optional, Tuple, cast

from runners.contract import TrialSpec, WorkloadSpec
from runners.contract.catalogue import own
from runners.contract.record import FactValue
from runners.contract.user_module import ATTENTION, MODULE_OPTION, SHRUNK, module_named, signature_of
from runners.workloads.base import Inputs, Unsupported
from runners.workloads.construction import without_storage
from runners.workloads.library_model import TWIN_BATCH, LibraryModel
from runners.workloads.tensors import PRELOAD

_SDPA = "sdpa"
_LIBRARIES = ("transformers", "torchvision", "timm")
"""Imported once for all trials, if the file names them; what else it imports, each trial does."""


class ModuleFailed(Exception):  # noqa: N818 - it says what failed, in its first words
    """The file of a model did what it may not do; the message names its line where that is known."""

    __module__ = "builtins"  # reasons and tracebacks then say the name alone


class OwnModel(LibraryModel):
    """The model and the inputs that the function of a file returns."""

    # Whether they are is for its author to know
    rows_are_independent = False

    def __init__(self, spec: TrialSpec) -> None:
        super().__init__(spec)
        self._source = spec.workload.source or ""
        self._file, self._function = module_named(str(spec.workload.options[MODULE_OPTION]))
        self._signature = signature_of(self._source, self._function)
        self._draw: Optional[Callable[[Any], Any]] = None
        self.preload = (*PRELOAD, *(name for name in _LIBRARIES if name in self._signature.imports))

    @property
    def is_shrunk(self) -> bool:
        return bool(self.options.get(SHRUNK))

    def construct(self, attention: Optional[str]) -> Any:
        arguments = own.arguments(self.spec.workload)
        if ATTENTION in self._signature.parameters:
            arguments.setdefault(ATTENTION, attention or _SDPA)
        elif attention not in (None, _SDPA):
            raise Unsupported("%s has no parameter %s, so there is none to choose" % (self._called, ATTENTION))
        import torch

        # Its own initialisers draw the weights: they alone know what keeps its outputs in range
        torch.manual_seed(self.spec.seed)
        function = self._do(lambda: _function(self._source, self._file, self._function))
        model, self._draw = self._do(lambda: function(**arguments))
        if not isinstance(model, torch.nn.Module):
            self._refuse("%s in place of a torch.nn.Module as its first value" % type(model).__name__)
        if not callable(self._draw):
            self._refuse("%s in place of a function example(generator)" % type(self._draw).__name__)
        return with_tensors(model)

    def build(self, attention: Optional[str] = None) -> Any:
        model = self.construct(attention).eval().requires_grad_(False)
        return model.to(device=self.spec.device, dtype=self._dtype())

    def example(self, generator: Any) -> Inputs:
        import torch

        if self._draw is None:
            # A backend that needs no model here does not pay for its weights, unless something computes with them
            try:
                with without_storage():
                    self.construct(None)
            except ModuleFailed:
                self.construct(None)
        draw = cast(Callable[[Any], Any], self._draw)
        drawn = self._do(lambda: draw(generator))
        tensors = drawn if isinstance(drawn, (tuple, list)) else (drawn,)
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor):
                self._refuse("an example with %s in place of a tensor" % type(tensor).__name__)
            if tensor.ndim == 0 or tensor.shape[0] != 1:
                shape = list(tensor.shape)
                self._refuse("an example with a tensor of shape %s; its first axis is 1, for one example" % shape)
        return tuple(tensors)

    def facts(self, model: Any) -> Dict[str, FactValue]:
        chosen = getattr(getattr(model.model, "config", None), "_attn_implementation", None)
        facts = super().facts(model)
        return facts if chosen is None else dict(facts, attn_implementation=str(chosen))

    def shrunk(self) -> WorkloadSpec:
        if SHRUNK not in self._signature.parameters:
            raise Unsupported("no dispatch floor: %s has no parameter %s" % (self._called, SHRUNK))
        workload = self.spec.workload
        batch = self._signature.twin_batch or TWIN_BATCH
        return replace(workload, batch=batch, options={**workload.options, SHRUNK: True})

    @property
    def _called(self) -> str:
        return "%s of %s" % (self._function, self._file)

    def _refuse(self, what: str) -> None:
        raise ModuleFailed("%s returned %s" % (self._called, what))

    def _do(self, call: Callable[[], Any]) -> Any:
        """Calls what the file defines, and says in which of its lines it failed."""
        try:
            return call()
        except (Unsupported, ModuleNotFoundError, MemoryError):
            raise
        except Exception as error:
            lines = [
                frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self._file
            ]
            where = "%s line %s" % (self._file, lines[-1]) if lines else self._called
            raise ModuleFailed("%s: %s: %s" % (where, type(error).__name__, error)) from error


@lru_cache(maxsize=4)
def _function(source: str, file: str, function: str) -> Callable[..., Any]:
    """Runs the text of a file and returns one of its functions.

    Raises:
        Unsupported: this version of Python cannot read it.
    """
    # transformers and timm import torchvision where it is installed
    from runners.workloads import torchvision_import  # noqa: F401

    try:
        code = compile(source, file, "exec")
    except SyntaxError as error:
        version = "%d.%d" % sys.version_info[:2]
        raise Unsupported("%s line %s is no Python %s: %s" % (file, error.lineno, version, error.msg)) from None
    module = types.ModuleType(file[: -len(".py")])
    module.__file__ = file
    # For tracebacks and compilers, which look for the text of what they see
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[module.__name__ + "-of-a-workload"] = module
    exec(code, module.__dict__)  # noqa: S102 - what this workload is for
    return cast(Callable[..., Any], getattr(module, function))


def with_tensors(model: Any) -> Any:
    """A module that calls another and returns the tensors of what that returned, in a tuple."""
    import torch

    class WithTensors(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            return tensors_in(self.model(*inputs))

    return WithTensors()


def tensors_in(returned: Any) -> Tuple[Any, ...]:
    """The tensors in a tensor, a list, a dictionary or a nest of them, in order; other objects have none."""
    import torch

    if isinstance(returned, torch.Tensor):
        return (returned,)
    parts: List[Any] = []
    if isinstance(returned, (tuple, list)):
        parts = list(returned)
    elif isinstance(returned, dict):
        parts = list(returned.values())
    found: List[Any] = []
    for part in parts:
        found.extend(tensors_in(part))
    return tuple(found)
