"""The clocks of a GPU while calls are timed: read right after the device's work, before it falls back to idle."""

import contextlib
import statistics
from typing import Dict, Iterator, List, Optional

from runners.contract.record import FactValue
from runners.examination.gpu import GpuUnavailable, NvmlDevice, gpu_of_torch, nvml_device

_STEADY_TOLERANCE = 0.02
_STEADY_READINGS = 3
_PERIOD_NS = 100_000_000
_PATIENCE_NS = 3_000_000_000


class GpuClock:
    """Reads the SM clock beside each series, and tells whether it has settled."""

    def __init__(self, device: NvmlDevice) -> None:
        self._device = device
        self._by_mode: Dict[str, List[int]] = {}
        self._settling: List[int] = []
        self._first_ns = self._last_ns = 0

    def sm_mhz(self) -> Optional[int]:
        """The SM clock now; null where the driver does not tell it."""
        mhz: Optional[int] = self._device.ask("nvmlDeviceGetClockInfo", self._device.library.NVML_CLOCK_SM)
        return mhz

    def note(self, mode: str) -> None:
        """A series, or a turn of it, has just ended."""
        mhz = self.sm_mhz()
        if mhz is not None:
            self._by_mode.setdefault(mode, []).append(mhz)

    def has_settled(self, now_ns: int) -> bool:
        """Whether the last readings, a tenth of a second apart, agree within 2 %; true after three seconds at last.

        Args:
            now_ns: on one clock for all calls.
        """
        if not self._settling:
            self._first_ns = now_ns
        if not self._settling or now_ns - self._last_ns >= _PERIOD_NS:
            self._last_ns = now_ns
            mhz = self.sm_mhz()
            if mhz is None:
                return True
            self._settling.append(mhz)
        last = self._settling[-_STEADY_READINGS:]
        steady = len(last) == _STEADY_READINGS and max(last) - min(last) <= _STEADY_TOLERANCE * max(last)
        return steady or now_ns - self._first_ns >= _PATIENCE_NS

    def facts(self) -> Dict[str, FactValue]:
        """`clock_<series>_sm_mhz`: the median of the readings; `clock_sync_sm_least_mhz` of those of turns."""
        facts: Dict[str, FactValue] = {
            "clock_%s_sm_mhz" % mode: statistics.median_low(readings) for mode, readings in self._by_mode.items()
        }
        if "sync" in self._by_mode:
            facts["clock_sync_sm_least_mhz"] = min(self._by_mode["sync"])
        return facts


@contextlib.contextmanager
def gpu_clock(is_on_gpu: bool) -> Iterator[Optional[GpuClock]]:
    """The clock of torch's GPU; None without a GPU or NVML, which reading conditions has said already."""
    with contextlib.ExitStack() as stack:
        clock = None
        if is_on_gpu:
            with contextlib.suppress(GpuUnavailable):
                clock = GpuClock(stack.enter_context(nvml_device(gpu_of_torch().uuid)))
        yield clock
