"""How many operators a call runs, as Python sees them."""

from collections import Counter
from typing import Any, Callable, ContextManager, Dict, List, Optional, cast

_NOT_COMPUTING = ("prim", "profiler")


def count_aten_calls(function: Callable[[], object]) -> Optional[Dict[str, int]]:
    """Calls of `function` that reach aten below Python by operator, views included; null where this torch cannot tell.

    They are counted in inference mode, where an operator such as `linear` arrives whole. With gradients it would arrive
    in the parts that autograd knows, and the count would depend on the caller. TorchScript is counted as it runs. What
    torch.compile made is not: it steps aside while anybody looks, so that it raises (with `fullgraph`) or the count is
    eager's. `profiler_operators` of the profiler's pass counts that, and agrees with this count elsewhere.

    Raises:
        RuntimeError: `function` was compiled with `fullgraph`.
    """
    import torch

    calls: List[str] = []
    watching = _watching(calls)
    if watching is None:
        return None
    with torch.inference_mode(), watching:
        function()
    return Counter(calls)


def _watching(calls: List[str]) -> Optional[ContextManager[Any]]:
    """Adds its operator to the list for each call while it is entered; None where this torch has no such mode."""
    from torch.utils import _python_dispatch

    if not hasattr(_python_dispatch, "TorchDispatchMode"):
        return None

    class Counter(_python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if str(func).partition(".")[0] not in _NOT_COMPUTING:
                calls.append(str(func))
            return func(*args, **(kwargs or {}))

    if hasattr(Counter, "__enter__"):
        return cast("ContextManager[Any]", Counter())
    # torch 1.12 makes the mode itself, and knows what lies below it
    push = getattr(_python_dispatch, "push_torch_dispatch_mode", None)
    return None if push is None else cast("ContextManager[Any]", push(Counter))
