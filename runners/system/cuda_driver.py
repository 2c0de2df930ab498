"""The CUDA driver below all frameworks, asked through its C interface. No context is created here."""

import ctypes
import os
from typing import Any, Optional

NOT_INITIALIZED = 3
NO_DEVICE = 100

_NAMES = {
    3: "CUDA_ERROR_NOT_INITIALIZED",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    802: "CUDA_ERROR_SYSTEM_NOT_READY: the fabric manager does not run",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    999: "CUDA_ERROR_UNKNOWN",
}
_UNKNOWN = 999


def named(code: int) -> str:
    """A status of the driver as text."""
    return "%d (%s)" % (code, _NAMES.get(code, "see CUresult in cuda.h"))


def status_here() -> Optional[int]:
    """The status of `cuDeviceGetCount` in this process: NOT_INITIALIZED as long as nothing has started the driver.

    Null where its library is not loaded, and so cannot have been started.
    """
    if not _is_loaded():
        return None
    count = ctypes.c_int()
    return int(_library().cuDeviceGetCount(ctypes.byref(count)))


def start_in_a_child() -> Optional[int]:
    """The status of `cuInit` in a process that ends with it; null where there is no driver.

    A process that has started the driver cannot use it in its children, and so this one must not.
    """
    try:
        library = _library()
    except OSError:
        return None
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, b"%d" % library.cuInit(0))
        finally:
            os._exit(0)
    os.close(writing)
    said = os.read(reading, 16)
    os.close(reading)
    os.waitpid(pid, 0)
    return int(said) if said else _UNKNOWN


def _library() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _is_loaded() -> bool:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
            return any("/libcuda.so" in line for line in stream)
    except OSError:
        return False
