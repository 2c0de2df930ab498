"""Makes torchvision importable beside a build of torch that it was not compiled for. Import this before either
torchvision or transformers, which imports it whenever it is installed.

There is no CPU build of torchvision on the Python package index; the one for CUDA cannot load its compiled operators
beside a CPU build of torch, and then fails at import because it describes two operators that do not exist. The
models measured here use neither (they suppress overlapping boxes of detectors), so declaring their schemas is enough.
"""

import importlib.util
import os
from typing import List, Tuple

_SCHEMAS: Tuple[Tuple[str, str], ...] = (
    ("torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
    ("torchvision::qnms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
)


def declare_missing_operators() -> List[str]:
    """Declares the operators that torchvision needs at import and could not load. Returns their names.

    Where torchvision's own library loads, nothing is done; nor where torchvision or torch is not installed.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None or importlib.util.find_spec("torch") is None:
        return []
    import torch

    if _own_library_loads(os.path.dirname(found.origin)) or not hasattr(torch.library, "define"):
        return []
    missing = [(name, schema) for name, schema in _SCHEMAS if not _exists(name)]
    for name, schema in missing:
        torch.library.define(name, schema)
    return [name for name, _ in missing]


def _own_library_loads(directory: str) -> bool:
    import torch

    libraries = [name for name in os.listdir(directory) if name.startswith("_C") and name.endswith(".so")]
    try:
        for name in libraries:
            torch.ops.load_library(os.path.join(directory, name))
    except OSError:
        # Its CUDA libraries are not there: it was compiled for another build of torch
        return False
    return True


def _exists(name: str) -> bool:
    import torch

    namespace, _, operator = name.partition("::")
    return hasattr(getattr(torch.ops, namespace), operator)


DECLARED = declare_missing_operators()
"""Operators that exist by name only."""
