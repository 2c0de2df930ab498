"""Time in which processes of this machine waited for a CPU, by the kernel's pressure stall information (PSI)."""

import os
from typing import Optional

_PATH = "/proc/pressure/cpu"
_SIZE = 256


class PressureGauge:
    """Reads one counter. A read costs some microseconds, so it is done between samples, never inside one."""

    def __init__(self, path: str = _PATH) -> None:
        try:
            self._descriptor: Optional[int] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            os.pread(self._descriptor, _SIZE, 0)
        except OSError:
            # Kernels without PSI have no such file, or one that cannot be read
            self._descriptor = None

    def total_ns(self) -> Optional[int]:
        """Stall time since the machine started; None where the kernel does not tell."""
        if self._descriptor is None:
            return None
        return parse_total_ns(os.pread(self._descriptor, _SIZE, 0))

    def close(self) -> None:
        """Gives the file back."""
        if self._descriptor is not None:
            os.close(self._descriptor)


def parse_total_ns(text: bytes) -> int:
    """The total of the line `some avg10=... total=MICROSECONDS`."""
    first = text.split(b"\n", 1)[0]
    return int(first.rpartition(b"=")[2]) * 1000
