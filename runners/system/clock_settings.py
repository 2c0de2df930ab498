"""The settings that decide at which clock a trial's cores and GPUs run. What the system does not tell is left out."""

from typing import Dict, Iterable, List, Sequence

from runners.system.gpu_state import CLOCKS_SET, GpuState
from runners.system.reading import read_flag, read_text

_CPUS = "/sys/devices/system/cpu"
_OF_A_CORE = {
    "governor": "scaling_governor",
    "energy preference": "energy_performance_preference",
    "lowest clock": "scaling_min_freq",
    "highest clock": "scaling_max_freq",
}


def read_settings(cores: Iterable[int], gpus: Sequence[GpuState] = (), root: str = "/") -> Dict[str, str]:
    """By name, the settings of some cores of the system below `root`, and of GPUs that were read before."""
    settings: Dict[str, str] = {}
    wanted = list(cores)
    for name, file in _OF_A_CORE.items():
        values = {read_text(root, "%s/cpu%d/cpufreq/%s" % (_CPUS, core, file)) for core in wanted}
        if None not in values and values:
            unit = " kHz" if file.endswith("_freq") else ""
            settings[name] = ",".join(sorted(value for value in values if value)) + unit
    no_turbo = read_flag(root, _CPUS + "/intel_pstate/no_turbo")
    boost = read_flag(root, _CPUS + "/cpufreq/boost") if no_turbo is None else not no_turbo
    if boost is not None:
        settings["boost"] = "on" if boost else "off"
    for gpu in gpus:
        settings.update(_of_gpu(gpu))
    return settings


def changed(before: Dict[str, str], after: Dict[str, str]) -> List[str]:
    """What differs, in words; a setting that only one side tells does not count."""
    both = [name for name in before if name in after]
    return ["%s %s → %s" % (name, before[name], after[name]) for name in both if before[name] != after[name]]


def movable(settings: Dict[str, str], gpus: Sequence[GpuState] = ()) -> List[str]:
    """What lets a clock move by itself, in words, as far as the system tells."""
    wanted = {"governor": "performance", "boost": "off"}
    loose = ["%s %s" % (name, settings[name]) for name in wanted if settings.get(name, wanted[name]) != wanted[name]]
    loose += ["gpu%d application clocks at their default" % gpu.number for gpu in gpus if _is_loose(gpu)]
    return loose


def _is_loose(gpu: GpuState) -> bool:
    clock, default = gpu.application_clock_mhz, gpu.application_clock_default_mhz
    is_known = clock is not None and default is not None
    return is_known and clock == default and not (gpu.reasons or 0) & CLOCKS_SET


def _of_gpu(gpu: GpuState) -> Dict[str, str]:
    values = {
        "application clock": (gpu.application_clock_mhz, "MHz"),
        "memory clock": (gpu.memory_clock_setting_mhz, "MHz"),
        "power limit": (gpu.power_limit_mw, "mW"),
    }
    return {
        "gpu%d %s" % (gpu.number, name): "%d %s" % (value, unit)
        for name, (value, unit) in values.items()
        if value is not None
    }
