"""Models without their initialisers, which would only be overwritten by weights from the seed."""

import contextlib
import importlib
from typing import Any, ContextManager, Dict, Iterator, cast

from runners.workloads.base import Unsupported

_NO_KERNEL = ("not implemented for '", "Unsupported dtype ")


@contextlib.contextmanager
def without_storage() -> Iterator[None]:
    """Within it modules are constructed with parameters that have shapes and no memory.

    Each parameter moves to torch's `meta` device when its module takes it, so that every initialiser, in torch, in a
    library or written out in a constructor, has nothing to do. Buffers keep their values, as do all tensors
    that are no parameters: constructing the whole model on `meta` would lose running statistics and position tables.
    """
    import torch

    module = torch.nn.Module
    register = module.register_parameter

    def register_without_storage(self: Any, name: str, parameter: Any) -> None:
        register(self, name, parameter)
        # One without storage has been taken before: another module shares it
        if parameter is not None and not parameter.is_meta:
            self._parameters[name] = torch.nn.Parameter(parameter.detach().to("meta"), requires_grad=False)

    module.register_parameter = register_without_storage
    try:
        yield
    finally:
        module.register_parameter = register


def allocate(model: Any) -> Any:
    """Gives memory with arbitrary content to parameters without storage; shared ones stay shared."""
    import torch

    given: Dict[Any, Any] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None or not parameter.is_meta:
                continue
            if parameter not in given:
                empty = torch.empty(parameter.shape, dtype=parameter.dtype)
                given[parameter] = torch.nn.Parameter(empty, requires_grad=False)
            module._parameters[name] = given[parameter]
    return model


def without_initialisers_of_transformers() -> ContextManager[Any]:
    """The library's own way to the same end.

    `without_storage` does not serve it: normalised weights are computed while a model is constructed, for which
    old versions of torch have no kernel without storage.
    """
    try:
        from transformers.initialization import no_init_weights
    except ImportError:
        # Where it lived before transformers 5
        from transformers.modeling_utils import no_init_weights
    return cast("ContextManager[Any]", no_init_weights())


@contextlib.contextmanager
def missing_kernels_unsupported(name: str, dtype: str) -> Iterator[None]:
    """Turns torch's report that an operator does not exist for a dtype into `Unsupported`."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        if not any(words in reason for words in _NO_KERNEL):
            raise
        raise Unsupported("%s in %s: %s" % (name, dtype, reason)) from error


def modelling(architecture: str) -> str:
    """The module of transformers that has the models of an architecture."""
    return "transformers.models.{0}.modeling_{0}".format(architecture.lower())


def of_transformers(architecture: str, ending: str) -> Any:
    """A class of transformers, such as that of `Bert` and `Config`; of its part of the library where it is not outside.

    Raises:
        Unsupported: this version has none of that name.
    """
    # transformers imports torchvision where it is installed
    import transformers

    from runners.workloads import torchvision_import  # noqa: F401

    name = architecture + ending
    try:
        return getattr(transformers, name, None) or getattr(importlib.import_module(modelling(architecture)), name)
    except (AttributeError, ModuleNotFoundError) as error:
        raise Unsupported("transformers %s has no %s" % (transformers.__version__, name)) from error
