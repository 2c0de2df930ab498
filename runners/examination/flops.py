"""The arithmetic of a model: two floating-point operations per multiply-add of matrix products and convolutions."""

import contextlib
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Set

from runners.contract.record import FactValue

# Operators that multiply and add, but that torch's counter leaves out, beside those of _FORMULAS
_UNCOUNTED = {
    "aten._fft_c2c",
    "aten._fft_c2r",
    "aten._fft_r2c",
    "aten._native_multi_head_attention",
    "aten._transformer_encoder_layer_fwd",
    "aten._triton_multi_head_attention",
    "aten._triton_scaled_dot_attention",
    "aten.lstm",
    "aten.mkldnn_rnn_layer",
}
# Namespaces of quantised and fused kernels, none of which has a formula
_UNCOUNTED_NAMESPACES = ("mkldnn", "onednn", "quantized", "_quantized")


def count_flops(model: Callable[..., Any], inputs: Sequence[Any]) -> Dict[str, FactValue]:
    """Counts while the model runs once, eager, with torch's `FlopCounterMode`.

    Its table lacks the attention kernel that runs on CPUs and products with vectors; formulas for them are added here.
    Masks save nothing: attention counts as dense, a padded sequence at its padded length.

    Returns:
        `flops`, `macs` (half as many) and `flops_problem`. Operators without a formula are named in the latter; the
        count is null then, because it would be too low.
    """
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:
        return _facts(None, "this torch has no FlopCounterMode (it came with 2.1)")
    seen: Set[str] = set()
    with _plain_eager(), _names(seen), FlopCounterMode(display=False, custom_mapping=_formulas()) as counter:
        model(*inputs)
    uncounted = sorted(name for name in seen if name in _UNCOUNTED or name.partition(".")[0] in _UNCOUNTED_NAMESPACES)
    if uncounted:
        return _facts(None, "no formula for " + ", ".join(uncounted))
    return _facts(int(counter.get_total_flops()), None)


def _facts(flops: Optional[int], problem: Optional[str]) -> Dict[str, FactValue]:
    return {"flops": flops, "macs": None if flops is None else flops // 2, "flops_problem": problem}


@contextlib.contextmanager
def _plain_eager() -> Iterator[None]:
    import torch

    fast_path: Any = getattr(torch.backends, "mha", None)
    enabled = fast_path is not None and fast_path.get_fastpath_enabled()
    # Not inference mode: composite operators would arrive whole, and old counters have no formula for those
    with torch.inference_mode(False), torch.no_grad():
        if not enabled:
            yield
            return
        # One fused operator for a whole layer; without it the same products arrive one by one
        fast_path.set_fastpath_enabled(False)
        try:
            yield
        finally:
            fast_path.set_fastpath_enabled(True)


@contextlib.contextmanager
def _names(seen: Set[str]) -> Iterator[None]:
    """Collects the operators that arrive after the counter has taken composite ones apart."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.add(".".join(str(func).split(".")[:2]))
            return func(*args, **(kwargs or {}))

    with Names():
        yield


def _formulas() -> Dict[Any, Callable[..., int]]:
    import torch
    from torch.utils.flop_counter import flop_registry

    found = {}
    for name, formula in _FORMULAS.items():
        operator = getattr(torch.ops.aten, name, None)
        if operator is not None and operator not in flop_registry:
            found[operator] = formula
    return found


def _attention(query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: Any, **__: Any) -> int:
    """Scores and weighted sum; shapes are (batch, heads, length, width), and heads of keys may be shared."""
    *outer, length, width = query
    products = 1
    for size in outer:
        products *= size
    return 2 * products * length * key[-2] * (width + value[-1])


# Shapes stand in place of the tensors
_FORMULAS: Dict[str, Callable[..., int]] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_fused_attention_overrideable": _attention,
    "_addmm_activation": lambda _added, left, right, *_, **__: 2 * left[0] * left[1] * right[1],
    "addbmm": lambda _added, left, right, *_, **__: 2 * left[0] * left[1] * left[2] * right[2],
    "addmv": lambda _added, matrix, *_, **__: 2 * matrix[0] * matrix[1],
    "mv": lambda matrix, *_, **__: 2 * matrix[0] * matrix[1],
    "dot": lambda left, *_, **__: 2 * left[0],
    "vdot": lambda left, *_, **__: 2 * left[0],
}
