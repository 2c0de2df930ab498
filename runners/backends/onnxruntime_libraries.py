"""The libraries of ONNX Runtime: what they know, and what some of them need to be there before they are loaded."""

import contextlib
import ctypes
import glob
import importlib.util
import mmap
import os
from typing import Optional, Tuple

_LOADS_BY_ITSELF = "ORT_CUDA_UNAVAILABLE"


def load_packaged_cuda() -> None:
    """Loads the CUDA libraries that were installed as Python packages, for an ONNX Runtime that does not look there.

    Loading starts no driver. What cannot be loaded is left to the runtime's own message.
    """
    for package in ("nvidia", "torch"):
        found = importlib.util.find_spec(package)
        for root in (found.submodule_search_locations if found is not None else None) or ():
            pattern = ("*", "lib", "lib*.so*") if package == "nvidia" else ("lib", "libcu*.so.*")
            for path in sorted(glob.glob(os.path.join(root, *pattern))):
                with contextlib.suppress(OSError):
                    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def library_knows(name: str) -> bool:
    """Whether the name of an option or entry stands in the runtime's libraries: some ignore names that they lack.

    As a string of its own: 1.13 has `has_user_compute_stream`, and no `user_compute_stream`.
    """
    return any(_contains(path, b"\0" + name.encode() + b"\0") for path in _libraries())


def _package() -> Optional[str]:
    found = importlib.util.find_spec("onnxruntime")
    return None if found is None or found.origin is None else os.path.dirname(found.origin)


def looks_for_cuda_when_imported() -> bool:
    """Whether this version looks for CUDA's libraries by their names when it is imported, once and for all."""
    path = os.path.join(_package() or "", "capi", "_ld_preload.py")
    if not os.path.exists(path):
        return False
    with open(path, encoding="utf-8") as stream:
        return _LOADS_BY_ITSELF in stream.read()


def _libraries() -> Tuple[str, ...]:
    package = _package()
    if package is None:
        return ()
    directory = os.path.join(package, "capi")
    return tuple(os.path.join(directory, name) for name in sorted(os.listdir(directory)) if ".so" in name)


def _contains(path: str, text: bytes) -> bool:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text) >= 0
