"""Which kernel computes scaled dot-product attention (SDPA), and how to choose it."""

import collections
from typing import Any, Callable, ContextManager, Optional, cast

from runners.backends.preparation import preparing
from runners.backends.python_calls import count_calls_of
from runners.workloads.base import Unsupported

AUTO = "auto"

_NAMES = {"math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
_KERNELS = ("aten::_scaled_dot_product_", "aten::_transformer_encoder_layer_fwd")


def pinned(kernel: str) -> ContextManager[Any]:
    """Within it, SDPA has this kernel to choose and no other.

    Raises:
        Unsupported: this torch cannot pin one.
    """
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError as error:
        raise Unsupported("this torch has no torch.nn.attention.sdpa_kernel (it came with 2.3)") from error
    return cast("ContextManager[Any]", sdpa_kernel([getattr(SDPBackend, _NAMES[kernel])]))


def require_pinned(kernel: str, call: Callable[[], object]) -> None:
    """Makes one call to see that it runs, and that there is something whose kernel is pinned.

    Raises:
        Unsupported: the kernel does not serve this device, dtype or mask, or the model has no SDPA.
    """
    with preparing("SDPA with the kernel %s alone" % kernel):
        calls = count_calls_of("scaled_dot_product_attention", call)
    if not calls:
        raise Unsupported("the model makes no call of scaled_dot_product_attention: there is no kernel to choose")


def attention_operators(call: Callable[[], object]) -> Optional[str]:
    """The attention kernels that one call runs, by torch's names, with how often; None if it runs none."""
    from torch.autograd.profiler import profile

    with profile() as profiled:
        call()
    names = [event.name for event in profiled.function_events if event.name.startswith(_KERNELS)]
    counted = sorted(collections.Counter(name[len("aten::") :] for name in names).items())
    return ", ".join("%s x%d" % item for item in counted) or None
