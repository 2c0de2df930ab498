"""How many operators a call runs, as Python sees them."""

from typing import Callable, Optional

_NOT_COMPUTING = ("prim", "profiler")


def count_aten_calls(function: Callable[[], object]) -> Optional[int]:
    """Calls of `function` that reach aten below Python, views included; null where this torch cannot tell.

    They are counted in inference mode, where an operator such as `linear` arrives whole. With gradients it would arrive
    in the parts that autograd knows, and the count would depend on the caller. TorchScript is counted as it runs. What
    torch.compile made is not: it steps aside while anybody looks, so that it raises (with `fullgraph`) or the count is
    eager's. `profiler_operators` of the profiler's pass counts that, and agrees with this count elsewhere.

    Raises:
        RuntimeError: `function` was compiled with `fullgraph`.
    """
    import torch

    try:
        from torch.utils._python_dispatch import TorchDispatchMode
    except ImportError:
        return None
    if not hasattr(TorchDispatchMode, "__enter__"):
        return None
    calls = 0

    class Counter(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal calls
            if str(func).partition(".")[0] not in _NOT_COMPUTING:
                calls += 1
            return func(*args, **(kwargs or {}))

    with torch.inference_mode(), Counter():
        function()
    return calls
