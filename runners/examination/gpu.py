"""The GPU that torch uses, found again in NVML: by its UUID, because the two number devices differently."""

import contextlib
import ctypes
from dataclasses import dataclass
from typing import Any, Iterator, Optional

from runners.system import nvml

_UUID_BYTES = 16


class GpuUnavailable(Exception):  # noqa: N818 - a machine without a GPU is no error
    """No GPU, or the driver does not show it here; the message says why."""


class DeviceLost(Exception):  # noqa: N818 - the machine is at fault, not the trial
    """There is a GPU, and the driver does not give it to us; the message says what the driver says."""


@dataclass(frozen=True)
class Gpu:
    """The current CUDA device."""

    ordinal: int
    """CUDA's number for it in this process."""
    uuid: Optional[str]
    """32 hexadecimal digits with dashes, without the `GPU-` of NVML; null if nothing tells it."""


@dataclass(frozen=True)
class NvmlDevice:
    """A device within a session of NVML."""

    library: Any
    """The module `pynvml`."""
    handle: Any

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer of one NVML function for this device; None if this version, driver or device has none."""
        return nvml.ask(self.library, name, self.handle, *arguments)


def gpu_of_torch() -> Gpu:
    """The current device of torch.

    Raises:
        GpuUnavailable: there is none.
    """
    try:
        import torch
    except ImportError:
        raise GpuUnavailable("the environment lacks torch") from None
    if not torch.cuda.is_available():
        raise GpuUnavailable("torch shows no CUDA device")
    ordinal = torch.cuda.current_device()
    uuid = getattr(torch.cuda.get_device_properties(ordinal), "uuid", None)
    # Torch before 2.4 does not tell it
    return Gpu(ordinal, _driver_uuid(ordinal) if uuid is None else str(uuid))


@contextlib.contextmanager
def nvml_device(uuid: Optional[str]) -> Iterator[NvmlDevice]:
    """A session of NVML with the device that has this UUID.

    Raises:
        GpuUnavailable: NVML does not start or does not show the device.
    """
    if uuid is None:
        raise GpuUnavailable("the UUID of the CUDA device is unknown, so NVML cannot be asked about it")
    try:
        with nvml.session() as library:
            yield NvmlDevice(library, _handle(library, uuid))
    except nvml.NvmlUnavailable as reason:
        raise GpuUnavailable(str(reason)) from None


def _handle(library: Any, uuid: str) -> Any:
    for prefix in ("GPU-", "MIG-"):
        handle = nvml.ask(library, "nvmlDeviceGetHandleByUUID", prefix + uuid)
        if handle is not None:
            return handle
    raise GpuUnavailable("NVML shows no device with the UUID %s" % uuid)


def _driver_uuid(ordinal: int) -> Optional[str]:
    """Asks the CUDA driver, which torch has loaded and started."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, raw = ctypes.c_int(), (ctypes.c_ubyte * _UUID_BYTES)()
    # The second version knows the parts of a divided device
    get_uuid = getattr(driver, "cuDeviceGetUuid_v2", None) or getattr(driver, "cuDeviceGetUuid", None)
    if get_uuid is None or driver.cuDeviceGet(ctypes.byref(device), ordinal) or get_uuid(ctypes.byref(raw), device):
        return None
    return format_uuid(bytes(raw))


def format_uuid(raw: bytes) -> str:
    """16 bytes in the form that NVML uses."""
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
