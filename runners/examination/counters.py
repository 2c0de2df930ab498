"""Counters of energy: of a GPU through NVML, of the processor packages through RAPL."""

import contextlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Optional

from runners.examination.gpu import GpuUnavailable, nvml_device
from runners.system.reading import below, list_names, parse_int, read_int, read_text

_POWERCAP = "/sys/class/powercap"
# Not `intel-rapl-mmio`, which counts the same packages once more
_ZONE = r"intel-rapl:\d+"


class EnergyUnavailable(Exception):  # noqa: N818 - a machine without a counter is no error
    """There is no counter that this process may read; the message says why."""


class EnergyCounter(ABC):
    """Counts joules from an arbitrary zero on."""

    source: str
    """What is counted, and by whom."""

    @abstractmethod
    def read_j(self) -> float:
        """The energy so far.

        Raises:
            EnergyUnavailable: the counter no longer answers.
        """


class NvmlEnergyCounter(EnergyCounter):
    """The board of one GPU, memory included; it moves every 20 to 100 ms. Volta and newer have it."""

    source = "nvml total energy of the board"

    def __init__(self, uuid: Optional[str]) -> None:
        """Opens a session that lasts until `close`.

        Raises:
            EnergyUnavailable: NVML does not show this GPU, or the GPU does not count.
        """
        self._session = contextlib.ExitStack()
        try:
            self._device = self._session.enter_context(nvml_device(uuid))
        except GpuUnavailable as reason:
            raise EnergyUnavailable(str(reason)) from None
        try:
            self.read_j()
        except EnergyUnavailable:
            self.close()
            raise

    def read_j(self) -> float:
        millijoules = self._device.ask("nvmlDeviceGetTotalEnergyConsumption")
        if millijoules is None:
            raise EnergyUnavailable("the GPU has no energy counter")
        return float(millijoules) / 1000

    def close(self) -> None:
        """Ends the session with NVML; the end of the process does it too."""
        self._session.close()


@dataclass
class _Package:
    name: str
    path: str
    range_uj: int
    last_uj: int
    total_uj: int = 0


class RaplEnergyCounter(EnergyCounter):
    """All processor packages, with everything that runs on them; memory is not in it.

    The counters start again at zero after some minutes at full power: they have to be read more often than that.
    """

    def __init__(self, root: str = "/") -> None:
        """Finds the packages below `root`.

        Raises:
            EnergyUnavailable: there is no package, or this process may not read it.
        """
        self._root = root
        zones = list_names(root, _POWERCAP, _ZONE)
        if not zones:
            raise EnergyUnavailable("there is no RAPL in %s" % _POWERCAP)
        self._packages = tuple(package for package in map(self._package, zones) if package is not None)
        if not self._packages:
            raise EnergyUnavailable("RAPL has no package domain")
        self.source = "rapl " + ", ".join(package.name for package in self._packages)

    def read_j(self) -> float:
        for package in self._packages:
            now_uj = self._energy_uj(package.path)
            step_uj = now_uj - package.last_uj
            package.total_uj += step_uj if step_uj >= 0 else step_uj + package.range_uj
            package.last_uj = now_uj
        return sum(package.total_uj for package in self._packages) / 1e6

    def _package(self, zone: str) -> Optional[_Package]:
        path = _POWERCAP + "/" + zone
        name = read_text(self._root, path + "/name")
        # `psys` is the whole platform, with the packages in it
        if name is None or not name.startswith("package"):
            return None
        range_uj = read_int(self._root, path + "/max_energy_range_uj")
        if range_uj is None:
            raise EnergyUnavailable("%s/max_energy_range_uj cannot be read" % path)
        return _Package(name, path, range_uj, self._energy_uj(path))

    def _energy_uj(self, path: str) -> int:
        file = path + "/energy_uj"
        try:
            with open(below(self._root, file), encoding="ascii") as opened:
                value = parse_int(opened.read().strip())
        except OSError as error:
            raise EnergyUnavailable("%s: %s" % (file, error.strerror)) from None
        if value is None:
            raise EnergyUnavailable("%s holds no number" % file)
        return value
