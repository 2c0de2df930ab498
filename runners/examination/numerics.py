"""What the hardware does with a dtype itself, and which shortcuts torch may take with float32."""

import platform
from typing import Any, Dict, Optional, Set, Tuple

from runners.contract.record import FactValue
from runners.system.reading import read_fields

# Instructions that multiply the dtype without widening it first, as /proc/cpuinfo names them
_X86: Dict[str, Tuple[str, ...]] = {
    "float32": ("sse2", "avx", "avx2", "fma", "avx512f"),
    "bfloat16": ("avx512_bf16", "amx_bf16"),
    "float16": ("avx512_fp16", "amx_fp16"),
}
_ARM: Dict[str, Tuple[str, ...]] = {
    "float32": ("asimd", "sve"),
    "bfloat16": ("bf16", "svebf16"),
    "float16": ("asimdhp", "fphp"),
}
_ISA = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}
# What torch found itself, by the flag that it stands for. Private functions: any of them may be missing.
_TORCH_PROBES = {
    "avx512_bf16": "_is_avx512_bf16_supported",
    "amx_bf16": "_is_amx_tile_supported",
    "amx_fp16": "_is_amx_fp16_supported",
}
# Compute capability from which on a GPU computes in the dtype
_LEAST_CAPABILITY = {"float32": (1, 0), "float16": (5, 3), "bfloat16": (8, 0)}


def dtype_support(dtype: str, device: str, root: str = "/") -> Dict[str, FactValue]:
    """Whether a dtype is computed natively or widened to float32 and back, with torch's settings for both.

    Args:
        dtype: `float32`, `float16` or `bfloat16`.
        device: `cpu` or `cuda`.
        root: where /proc lies.

    Returns:
        `dtype_native` (null where nothing tells it) and `dtype_isa`: on a CPU the instructions that do it, on a GPU its
        architecture; `dtype_problem`; and what `matmul_flags` returns.
    """
    facts = _device_support(dtype, device, root)
    facts.update(matmul_flags())
    return facts


def cpu_support(dtype: str, machine: str, flags: Set[str], probes: Dict[str, bool]) -> Dict[str, FactValue]:
    """The verdict for a CPU.

    Args:
        dtype: its name.
        machine: as `uname -m` says it.
        flags: of /proc/cpuinfo; empty if it cannot be read.
        probes: what torch says about some of them; it is believed if it misses one that the kernel shows.
    """
    known = _ISA.get(machine, {}).get(dtype)
    if known is None:
        return _support(None, None, "the instructions of %s for %s are not known here" % (machine, dtype))
    if not flags:
        return _support(None, None, "/proc/cpuinfo shows no flags")
    present = [flag for flag in known if flag in flags and probes.get(flag, True)]
    refused = [flag for flag in known if flag in flags and not probes.get(flag, True)]
    problem = "the CPU has %s, torch does not use it" % ", ".join(refused) if refused else None
    return _support(bool(present), ",".join(present) or None, problem)


def cuda_support(dtype: str, capability: Tuple[int, int]) -> Dict[str, FactValue]:
    """The verdict for a GPU of a compute capability such as (9, 0)."""
    least = _LEAST_CAPABILITY.get(dtype)
    isa = "sm_%d%d" % capability
    if least is None:
        return _support(None, isa, "it is not known since when GPUs compute in %s" % dtype)
    return _support(capability >= least, isa, None)


def matmul_flags() -> Dict[str, FactValue]:
    """What torch may do with float32 and half precision inside matrix products and convolutions.

    Returns:
        `matmul_precision` (`highest`, `high` or `medium`: how far float32 may be shortened in products, on CPUs too),
        `matmul_tf32` and `convolution_tf32` on CUDA, `matmul_reduced_float16` and `matmul_reduced_bfloat16` (sums in
        half precision), `cudnn_benchmark`. Null where this torch has no such setting, or refuses to say because its old
        and its new settings were mixed.
    """
    names = ("precision", "tf32", "reduced_float16", "reduced_bfloat16")
    facts: Dict[str, FactValue] = dict.fromkeys(["matmul_" + name for name in names])
    facts.update(convolution_tf32=None, cudnn_benchmark=None)
    try:
        import torch
    except ImportError:
        return facts
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    facts["matmul_precision"] = _precision()
    facts["matmul_tf32"] = _tf32(matmul, matmul)
    facts["convolution_tf32"] = _tf32(cudnn, getattr(cudnn, "conv", None))
    facts["matmul_reduced_float16"] = _flag(matmul, "allow_fp16_reduced_precision_reduction")
    facts["matmul_reduced_bfloat16"] = _flag(matmul, "allow_bf16_reduced_precision_reduction")
    facts["cudnn_benchmark"] = _flag(cudnn, "benchmark")
    return facts


def _device_support(dtype: str, device: str, root: str) -> Dict[str, FactValue]:
    if device == "cpu":
        return cpu_support(dtype, platform.machine(), _flags(root), _torch_probes())
    try:
        import torch
    except ImportError:
        return _support(None, None, "the environment lacks torch")
    if not torch.cuda.is_available():
        return _support(None, None, "torch shows no CUDA device")
    return cuda_support(dtype, torch.cuda.get_device_capability())


def _support(native: Optional[bool], isa: Optional[str], problem: Optional[str]) -> Dict[str, FactValue]:
    return {"dtype_native": native, "dtype_isa": isa, "dtype_problem": problem}


def _flags(root: str) -> Set[str]:
    info = read_fields(root, "/proc/cpuinfo")
    return set(info.get("flags", info.get("Features", "")).split())


def _torch_probes() -> Dict[str, bool]:
    try:
        import torch.cpu
    except ImportError:
        return {}
    probes = {flag: getattr(torch.cpu, name, None) for flag, name in _TORCH_PROBES.items()}
    return {flag: bool(probe()) for flag, probe in probes.items() if probe is not None}


def _precision() -> Optional[str]:
    import torch

    # Torch before 1.12 has none
    get = getattr(torch, "get_float32_matmul_precision", None)
    try:
        return None if get is None else str(get())
    except RuntimeError:
        return None


def _tf32(old: Any, new: Any) -> Optional[bool]:
    """Out of the setting that torch has since 2.9, or else of the older one."""
    precision = _setting(new, "fp32_precision")
    return precision == "tf32" if precision in ("ieee", "tf32") else _flag(old, "allow_tf32")


def _flag(module: Any, name: str) -> Optional[bool]:
    value = _setting(module, name)
    return None if value is None else bool(value)


def _setting(module: Any, name: str) -> Any:
    try:
        return getattr(module, name, None)
    except (AssertionError, RuntimeError):
        # Old torch says so that it has no such setting, new torch that two of its settings contradict each other
        return None
