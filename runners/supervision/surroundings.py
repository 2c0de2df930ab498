"""The variables that a runner is started with: what would change results is removed, and the GPU is named.

Frameworks read them when they are imported, and CUDA when it starts: all of this comes before either.
"""

import os
import re
from typing import List, MutableMapping, Optional, Tuple

from runners.system import nvml

_CHANGING = re.compile(
    r"(TORCH|PYTORCH|TRITON|OMP|GOMP|KMP|MKL|OPENBLAS|ORT|ONNXRUNTIME|CUBLAS|CUBLASLT|CUDNN|CUFFT)[A-Z0-9]*_[A-Z0-9_]+"
    r"|CUDA_(LAUNCH_BLOCKING|CACHE_DISABLE|FORCE_PTX_JIT|DISABLE_PTX_JIT|MODULE_LOADING|DEVICE_MAX_CONNECTIONS|INJECTION64_PATH)"
    r"|NVIDIA_TF32_OVERRIDE"
)
_PLACES = ("TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH")
"""Where tools are that a machine may keep in an unusual place."""


def settle(on_gpu: bool, environ: MutableMapping[str, str] = os.environ) -> List[str]:
    """Removes what changes results, and leaves CUDA one GPU, by its UUID; returns the names of what was removed.

    With no GPU named, or a number, it is that one in the order of the bus, which is NVML's.

    Args:
        on_gpu: whether any trial uses one.
        environ: is changed.
    """
    removed = sorted(name for name in environ if _CHANGING.fullmatch(name) and name not in _PLACES)
    for name in removed:
        del environ[name]
    if not on_gpu:
        return removed
    environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    uuid = _first(environ.get("CUDA_VISIBLE_DEVICES"), nvml.probe().uuids)
    if uuid is not None:
        environ["CUDA_VISIBLE_DEVICES"] = uuid
    return removed


def _first(visible: Optional[str], uuids: Tuple[Optional[str], ...]) -> Optional[str]:
    """The first of the GPUs that are visible, by UUID; null if that cannot be told."""
    first = "0" if visible is None else visible.partition(",")[0].strip()
    if first.isdecimal():
        return uuids[int(first)] if int(first) < len(uuids) else None
    return first if first.startswith(("GPU-", "MIG-")) else None
